"""Engines that hang, die and answer oddly, a full disk under the journal, restarts."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from environment_harness import Harness, labelled, owns, until
from thunder_router.environments import Store
from thunder_router.environments.actions import Forget, Keep
from thunder_router.environments.engine import EngineError
from thunder_router.environments.records import Kind, State


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


async def test_a_hung_engine_costs_a_request_nothing(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        engine.gate = asyncio.Event()
        environments.released("p1")
        for number in range(1000):
            environments.request(f"q{number}")
            environments.prepare(f"q{number}", 100)
        await until(environments, lambda: environments.status().programs == 1001)
        assert engine.names() == {"box"}
        engine.gate.set()
        await until(environments, lambda: not engine.objects)


async def test_an_engine_that_dies_is_unavailable_and_work_resumes_when_it_is_back(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        engine.put(Kind.CONTAINER, "removed-meanwhile", labelled("p1"))
        await owns(environments, "p1", 2)
        engine.crash()
        await until(environments, lambda: environments.status().environments == "unavailable")
        environments.released("p1")
        del engine.objects[next(k for k, s in engine.objects.items() if s.name != "box")]
        engine.put(Kind.CONTAINER, "made-meanwhile", labelled("p1"), told=False)
        engine.up = True
        await until(environments, lambda: environments.status().environments == "ok")
        await until(environments, lambda: not engine.objects)
        await owns(environments, "p1", 0)


async def test_a_restarted_router_takes_up_where_it_stood(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for program in ("lives", "ends"):
            environments.request(program)
            engine.put(Kind.CONTAINER, program, labelled(program))
            await owns(environments, program, 1)
        engine.gate = asyncio.Event()
        environments.released("ends")
        await until(environments, lambda: environments.owned("ends")[0].state is State.RELEASING)
    engine.gate = None
    async with harness.router() as environments:
        await owns(environments, "ends", 0)
        assert [r.state for r in environments.owned("lives")] == [State.READY]
        environments.released("lives")
        await until(environments, lambda: not engine.objects)


class FullDisk(Store):
    """A journal on a disk that is full for a while."""

    full = False

    async def commit(self, lines: Sequence[Keep | Forget]) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        await super().commit(lines)


async def test_a_journal_on_a_full_disk_does_not_keep_teardown_from_making_room(
    harness: Harness,
) -> None:
    engine = harness.engine
    store = FullDisk(harness.folder / "full.db")
    async with harness.router(store) as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        store.full = True
        environments.released("p1")
        await owns(environments, "p1", 0)
        assert environments.status().journal_error == "database or disk is full"
        store.full = False
        environments.request("p2")
        await until(environments, lambda: environments.status().journal_error is None)
    assert engine.objects == {}
    reopened = Store(harness.folder / "full.db")
    assert [r for r in reopened.load() if not hasattr(r, "released")] == []
    reopened.close()


async def test_an_answer_that_cannot_be_read_is_an_outage_and_not_the_end_of_watching(
    harness: Harness,
) -> None:
    engine = harness.engine
    engine.fault("everything", KeyError("Labels"), EngineError(500, "out of order"))
    async with harness.router() as environments:
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        environments.request("p1")
        await owns(environments, "p1", 1)


async def test_an_object_that_cannot_be_inspected_does_not_break_the_watch(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        engine.fault("sight", EngineError(500, "driver failed"))
        engine.put(Kind.VOLUME, "odd", labelled("p1"))
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.reconcile()
        await owns(environments, "p1", 2)
        assert len([1 for call, _ in engine.calls if call == "events"]) == 1


async def test_waiting_ends_however_many_requests_keep_coming(harness: Harness) -> None:
    async with harness.router() as environments:

        async def hammer() -> None:
            while True:
                environments.request("busy")
                await asyncio.sleep(0)

        hammering = asyncio.create_task(hammer())
        environments.open("p1")
        await until(environments, lambda: environments.status().programs == 2)
        hammering.cancel()
