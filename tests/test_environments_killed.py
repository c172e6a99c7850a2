"""A router killed at every line of its journal, and before and after every engine call.

The engine is in memory, so that the whole life of a program can be cut at each of its points: an
image that is pulled, a container that is made, initialized and probed, frozen and thawed, objects
of the agent's own, teardown, eviction. `containers/test_restarts.py` does it with processes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from environment_harness import Harness, labelled, settled, until
from thunder_router.environment_settings import (
    DockerSettings,
    ImageSettings,
    PreparationSettings,
    ProbeSettings,
    TemplateSettings,
)
from thunder_router.environments import Environments, Store
from thunder_router.environments.actions import Forget, Keep
from thunder_router.environments.records import Image, Kind

IMAGE = "swe/task:1"
PARTS = 4
"""Every fourth point in each test, so that none takes long."""


class Doom:
    """Everything stops at its nth point, and nothing that was under way is heard of again."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0
        self.armed = False
        self.dead = asyncio.Event()

    async def point(self) -> None:
        self.passed += self.armed
        if self.armed and self.passed >= self.at > 0:
            self.dead.set()
            await asyncio.Event().wait()


class DoomedStore(Store):
    """A journal before and after each of whose commits the router may be killed."""

    def __init__(self, path: Path, doom: Doom) -> None:
        super().__init__(path)
        self._doom = doom

    async def commit(self, lines: Sequence[Keep | Forget]) -> None:
        await self._doom.point()
        await super().commit(lines)
        await self._doom.point()


def harness_in(folder: Path) -> Harness:
    harness = Harness(
        folder,
        # Pings would be points too, and come when they like.
        docker=DockerSettings(ping_interval_s=3600, relist_interval_s=3600),
        images=ImageSettings(allow=("swe/*",), min_idle_s=0, prefetch_window_s=0),
        prepare=PreparationSettings(on_pause="pause"),
        templates={
            "t": TemplateSettings(
                match="", image=IMAGE, init=("true",), probe=ProbeSettings(exec=("true",))
            )
        },
    )
    harness.engine.images_there[IMAGE] = ()
    harness.engine.put(Kind.CONTAINER, "bystander", {"com.example": "1"})
    harness.engine.put(Kind.VOLUME, "precious")
    return harness


@asynccontextmanager
async def doomed(harness: Harness, doom: Doom) -> AsyncIterator[Environments]:
    """A router that is left as soon as it is dead."""
    harness.engine.passing = doom.point
    async with harness.router(DoomedStore(harness.folder / "journal.db", doom)) as environments:
        doom.armed = True
        yield environments
    doom.armed = False


async def life(harness: Harness, doom: Doom) -> None:
    """A program from its first request to the eviction of its image."""
    engine = harness.engine
    async with doomed(harness, doom) as environments:

        async def lives() -> None:
            environments.request("p1")
            engine.put(Kind.CONTAINER, "box", labelled("p1"))
            engine.put(Kind.NETWORK, "net", labelled("p1"))
            environments.prepare("p1", 0)
            await until(environments, lambda: environments.environment("p1").state == "ready")
            await settled(environments)
            environments.paused("p1", waiting=True)
            await until(environments, lambda: len(engine.frozen) == 2)
            environments.restored("p1")
            await until(environments, lambda: not engine.frozen)
            await settled(environments)
            engine.put(Kind.VOLUME, "volume", labelled("p1"), told=False)
            environments.released("p1")
            await until(environments, lambda: not environments.resources())
            environments.collect()
            await until(environments, lambda: not environments.images())

        living = asyncio.create_task(lives())
        dying = asyncio.create_task(doom.dead.wait())
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not doom.dead.is_set():
            await living
        for task in (living, dying):
            task.cancel()
        await asyncio.gather(living, dying, return_exceptions=True)


async def recovered(harness: Harness) -> None:
    """The router again: its program is said to be over, and nothing may be left of it."""
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        for _ in range(4):
            await harness.turn(environments, 61)
            environments.reconcile()
            environments.collect()
            await settled(environments)
        await until(environments, lambda: not environments.resources())
        assert engine.names() == {"bystander", "precious"}
        assert engine.frozen == set()
        assert [image for image in environments.images() if image.ours] == []
    store = Store(harness.folder / "journal.db")
    images = [record for record in store.load() if isinstance(record, Image)]
    store.close()
    assert not any(image.ours for image in images)


@pytest.mark.parametrize("part", range(PARTS))
async def test_wherever_it_is_killed_it_leaves_nothing_once_it_is_back(
    tmp_path: Path, part: int
) -> None:
    (tmp_path / "whole").mkdir()
    harness = harness_in(tmp_path / "whole")
    whole = Doom(0)
    await asyncio.wait_for(life(harness, whole), 20)
    assert harness.engine.names() == {"bystander", "precious"}
    assert harness.engine.images_here == {}
    # Commits and engine calls, each before and after.
    assert whole.passed > 60
    kept = []
    for at in range(1 + part, whole.passed + 1, PARTS):
        folder = tmp_path / str(at)
        folder.mkdir()
        harness = harness_in(folder)
        await asyncio.wait_for(life(harness, Doom(at)), 20)
        await asyncio.wait_for(recovered(harness), 20)
        if harness.engine.images_here:
            kept.append(at)
    # A pull that nobody heard the end of may be a stranger's: its image stays, and no other.
    assert len(kept) <= 1
