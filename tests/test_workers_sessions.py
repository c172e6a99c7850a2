"""Sessions are closed when programs pause or end, where engines have them, and never in the way."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fake_worker import Asked, Ear, FakeWorker, Network, TurnedClock, edited, settle
from thunder_router.config import WorkerSettings
from thunder_router.scheduling.events import (
    Paused,
    Prepared,
    ProgramEvent,
    Released,
    Restored,
)
from thunder_router.workers.registry import Registry
from thunder_router.workers.sessions import Sessions


@dataclass
class House:
    registry: Registry
    worker: FakeWorker
    sessions: Sessions
    clock: TurnedClock

    def closed(self) -> list[Any]:
        return [
            json.loads(asked.body or b"")["session_id"]
            for asked in self.worker.asked
            if asked.path == "/close_session"
        ]


@asynccontextmanager
async def house(*, enabled: bool = True) -> AsyncIterator[House]:
    clock, network = TurnedClock(), Network()
    worker = network.place("http://a:1", FakeWorker(clock))
    info = (await worker.answer(_question("/server_info"), 1.0)).body

    def flags(found: dict[str, Any]) -> None:
        found["enable_session_radix_cache"] = enabled

    worker.statuses["/server_info"] = (200, edited(info, flags))
    worker.statuses["/close_session"] = (200, b"")
    settings = WorkerSettings(urls=("http://a:1",))
    async with Registry(settings, Ear(), network, clock) as registry:
        await clock.advance()
        sessions = Sessions(registry)
        yield House(registry, worker, sessions, clock)
        await sessions.aclose()


def _question(path: str) -> Any:
    return Asked("GET", path, None, None)


def paused(program: str) -> ProgramEvent:
    return Paused(program, 0, 0)


async def test_a_paused_and_an_ended_program_close_their_sessions() -> None:
    async with house() as h:
        assert h.registry.endpoint(0).knows_session
        h.sessions(paused("p-1"))
        h.sessions(Released("p-2", 0, 0))
        await settle()
        assert h.closed() == ["p-1", "p-2"]


async def test_other_events_and_programs_without_a_worker_close_nothing() -> None:
    async with house() as h:
        h.sessions(Prepared("p-1", 100))
        h.sessions(Released("p-2", None, None))
        h.sessions(Paused("p-3", 7, 0))
        await settle()
        assert h.closed() == []


async def test_an_engine_without_session_radix_caching_is_left_alone() -> None:
    async with house(enabled=False) as h:
        h.sessions(paused("p-1"))
        await settle()
        assert h.closed() == []


async def test_a_close_that_a_restore_overtook_is_not_sent() -> None:
    async with house() as h:
        h.sessions(paused("p-1"))
        h.sessions(Restored("p-1", 0, 0))
        await settle()
        assert h.closed() == []
        h.sessions(paused("p-1"))
        await settle()
        assert h.closed() == ["p-1"]


async def test_a_worker_that_does_not_answer_holds_nothing_up_and_is_not_asked_twice() -> None:
    async with house() as h:
        h.worker.hanging = {"/close_session"}
        h.sessions(paused("p-1"))
        await settle()
        h.sessions(paused("p-1"))
        await settle()
        assert h.closed() == ["p-1"]
        await h.clock.advance(10)
        h.worker.hanging = False
        h.sessions(paused("p-1"))
        await settle()
        assert h.closed() == ["p-1", "p-1"]
