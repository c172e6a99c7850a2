"""A registry of fake workers, with the clock, the network and the ear that it lives on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fake_worker import Ear, FakeWorker, Network, TurnedClock
from thunder_router.config import WorkerSettings
from thunder_router.workers.life import State
from thunder_router.workers.registry import Registry

A, B = "http://a:30000", "http://b:30000"


class House:
    """One registry, its clock, its network and its listener."""

    def __init__(self, registry: Registry, clock: TurnedClock, network: Network, ear: Ear) -> None:
        self.registry = registry
        self.clock = clock
        self.network = network
        self.ear = ear

    def state(self, worker: int = 0) -> State:
        return self.registry.get(worker).state


@asynccontextmanager
async def house(workers: dict[str, FakeWorker | None], **settings: Any) -> AsyncIterator[House]:
    clock, network, ear = TurnedClock(), Network(), Ear()
    for url, worker in workers.items():
        if worker is not None:
            worker.clock = clock
            network.place(url, worker)
    chosen = WorkerSettings(urls=tuple(workers), **settings)
    async with Registry(chosen, ear, network, clock) as registry:
        await clock.advance()
        yield House(registry, clock, network, ear)


def worker(capture: str = "sglang-0.5.23-radix", **faults: Any) -> FakeWorker:
    return FakeWorker(TurnedClock(), capture, **faults)
