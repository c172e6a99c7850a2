"""The registry on real sockets, against an emulated SGLang: what is found, paused and continued."""

import asyncio
from typing import Any

from fake_worker import Ear
from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.emulator import EmulatorOptions, running
from thunder_router.workers.clock import MonotonicClock
from thunder_router.workers.control import CALLS, broadcast
from thunder_router.workers.http import AiohttpClient
from thunder_router.workers.registry import Registry


class Listening(Ear):
    """An ear that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Wakeful()

    async def until(self, *event: Any) -> None:
        """Returns once this was heard, and forgets everything up to it."""
        assert isinstance(self.heard, Wakeful)
        while event not in self.heard:
            self.heard.more.clear()
            await self.heard.more.wait()
        self.heard.clear()


class Wakeful(list[tuple[Any, ...]]):
    """A list that says when it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()

    def append(self, item: tuple[Any, ...]) -> None:
        super().append(item)
        self.more.set()


async def test_an_emulated_worker_is_found_paused_continued_and_lost() -> None:
    ear = Listening()
    quick = WorkerSettings(
        loads_interval_s=0.02, ready_interval_s=0.02, retry_interval_s=0.02, down_after_s=0.05
    )
    async with (
        AiohttpClient() as client,
        Registry(quick, ear, client, MonotonicClock()) as registry,
    ):
        async with running(EmulatorOptions(port=0, capacity_tokens=65_536)) as urls:
            worker = registry.add(WorkerEntry(url=urls[0]))
            await ear.until("up", 0, 0)
            assert ear.ranks[0, 0]["device_tokens"] == 65_536
            assert worker.report is not None
            assert worker.report.engine == "sglang"
            assert worker.report.capabilities.readiness

            (paused,) = await broadcast(registry, CALLS["POST", "/pause_generation"])
            assert paused.ok
            await ear.until("unready", 0)
            (continued,) = await broadcast(registry, CALLS["POST", "/continue_generation"])
            assert continued.ok
            await ear.until("up", 0, 0)
        await ear.until("down", 0)
