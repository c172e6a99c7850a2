"""The pause and resume loops of the public ThunderAgent, timed on the state of a town.

Nothing of it is part of this project. `git clone` it (github.com/ThunderAgent-org/ThunderAgent),
and give the folder's path: its own classes are imported from there and run as they stand, without
its HTTP side, so that only the two loops are measured.

The state and what is asked of it are those of `bench.relief`.
"""

import asyncio
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

from bench.relief import SHARE, Relief
from bench.town import CAPACITY

__all__ = ["load", "published_relief"]


def load(folder: Path) -> ModuleType:
    """Its package.

    Raises:
        SystemExit: it is not there, or lacks something that it needs.
    """
    if not (folder / "ThunderAgent" / "scheduler" / "router.py").is_file():
        raise SystemExit(f"error: {folder} is no clone of ThunderAgent")
    sys.path.insert(0, str(folder))
    try:
        package = importlib.import_module("ThunderAgent")
        importlib.import_module("ThunderAgent.scheduler.router")
    except ImportError as error:
        raise SystemExit(f"error: ThunderAgent cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    logging.getLogger("ThunderAgent").setLevel(logging.WARNING)
    return package


def published_relief(package: ModuleType, cluster: Sequence[Sequence[int]]) -> Relief:
    """One relief and one refill by its loops."""
    return asyncio.run(_relief(package, cluster))


async def _relief(package: ModuleType, cluster: Sequence[Sequence[int]]) -> Relief:
    module: Any = importlib.import_module(f"{package.__name__}.scheduler.router")
    urls = [f"http://worker-{index}" for index in range(len(cluster))]
    router = module.MultiBackendRouter(urls, backend_type="sglang")
    try:
        for url, tokens in zip(urls, cluster, strict=True):
            backend = router.backends[url]
            for index, context in enumerate(tokens):
                name = f"{url}/{index}"
                program = module.Program(
                    program_id=name, backend_url=url, total_tokens=context, step_count=2
                )
                router.programs[name] = program
                backend.register_program(name, program)
        _set_capacity(router, round(CAPACITY * (1 - SHARE)))
        before = perf_counter()
        for backend in router.backends.values():
            if backend.remaining_capacity() < 0:
                await router._pause_until_safe(backend)
        between = perf_counter()
        paused = len(router.global_waiting_queue)
        for name in router.global_waiting_queue:
            router.programs[name].status = module.ProgramStatus.REASONING
        _set_capacity(router, CAPACITY)
        middle = perf_counter()
        await router._greedy_resume()
        after = perf_counter()
        resumed = paused - len(router.global_waiting_queue)
    finally:
        await router.client.aclose()
    return Relief(between - before, paused, after - middle, resumed)


def _set_capacity(router: Any, tokens: int) -> None:
    for backend in router.backends.values():
        client = backend.metrics_client
        client.cache_config = SimpleNamespace(total_tokens_capacity=tokens)
        client.healthy = True
