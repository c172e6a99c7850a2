"""One router over two emulated workers, shared by the tests of a module that only send requests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.stack import Router, Worker, call, emulated_worker, say, served_router

HERE = Path(__file__).parent

SCRIPT = [
    say("The capital of France is Paris.", match="capital of France"),
    call("ls -la", match="list the files"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    folder = tmp_path_factory.mktemp("workers")
    with ExitStack() as stack:
        yield [stack.enter_context(emulated_worker(folder, script=SCRIPT)) for _ in range(2)]


@pytest.fixture(scope="module")
def router(workers: list[Worker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    urls = [worker.url for worker in workers]
    with served_router(tmp_path_factory.mktemp("router"), urls) as served:
        yield served
