"""Two real engines for the whole session, empty of KV at the start of each test."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.sglang_server import HICACHE, SESSIONS, SGLang, lacking, sglang

HERE = Path(__file__).parent
TIMEOUT_S = 400
"""For a test with the start of its engines: half a minute on idle cores, minutes on busy ones."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def installed() -> None:
    """This lane is asked for by name, so it fails where it cannot run."""
    if why := lacking():
        pytest.fail(f"{why}: run make test-engine")


@pytest.fixture(scope="session")
def servers(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SGLang]]:
    """Two engines with HiCache and sessions, started side by side."""
    folder = tmp_path_factory.mktemp("engines")
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        starting = [
            threads.submit(stack.enter_context, sglang(folder, *HICACHE, *SESSIONS))
            for _ in range(2)
        ]
        yield [start.result() for start in starting]


@pytest.fixture
def engines(servers: list[SGLang]) -> list[SGLang]:
    """The two, with nothing in their caches."""
    for server in servers:
        server.ask("/flush_cache", {})
    return servers


@pytest.fixture
def engine(engines: list[SGLang]) -> SGLang:
    """One of them."""
    return engines[0]
