"""`Environments` over the fake engine, with a clock that is turned by hand."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine
from thunder_router.config import EnvironmentSettings
from thunder_router.environment_settings import DiskSettings, DockerSettings, ImageSettings
from thunder_router.environments import Environments, Store, labels
from thunder_router.environments.disk import Room
from thunder_router.environments.events import Tick


class Clock:
    """Unix milliseconds, as told."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Harness:
    """A router's environments and the world they look after."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.clock = Clock()
        self.engine = FakeEngine(self.clock)
        self.folder = folder
        self.changes = changes
        self.busy: set[str] = set()
        self.room = Room(total=1000, free=900)

    def settings(self) -> EnvironmentSettings:
        defaults: dict[str, Any] = {
            "enabled": True,
            "router_id": "mine",
            "startup_grace_s": 0,
            "docker": DockerSettings(ping_interval_s=0.01, relist_interval_s=60),
            "images": ImageSettings(allow=("swe/*",)),
            "disk": DiskSettings(interval_s=60),
        }
        return EnvironmentSettings(**(defaults | self.changes))

    @asynccontextmanager
    async def router(self, store: Store | None = None) -> AsyncIterator[Environments]:
        """A router, up and listed; a second call is the same router restarted."""
        environments = Environments(
            self.settings(),
            engine=self.engine,
            store=store or Store(self.folder / "journal.db"),
            busy=self.busy.__contains__,
            clock=self.clock,
            dice=random.Random(0),
            measure=lambda _: self.room,
        )
        async with environments:
            if self.engine.up:
                await until(environments, lambda: environments.status().environments == "ok")
            yield environments

    async def turn(self, environments: Environments, seconds: float) -> None:
        """Turns the clock once all is told, and lets the ledger notice."""
        await settled(environments)
        self.clock.now_ms += round(seconds * 1000)
        environments.tell(Tick())
        await settled(environments)


async def until(environments: Environments, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        await environments.until(holds)


async def owns(environments: Environments, program: str, count: int) -> None:
    await until(environments, lambda: len(environments.owned(program)) == count)


async def settled(environments: Environments) -> None:
    """Waits until nothing is queued and nothing is in flight."""
    await until(environments, lambda: environments.status().in_flight == 0)


def labelled(program: str) -> dict[str, str]:
    """The labels by which an agent gives a container to its program."""
    return {labels.PROGRAM: program}
