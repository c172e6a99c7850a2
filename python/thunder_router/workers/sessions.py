"""Tells engines whose KV cache may go first.

With SGLang's session radix cache each turn carries its program's name as `session_id`. Closing the
session when the program is paused or ends only takes the tag off: the KV stays until room is
needed, then goes before anything of an active program, and its copy in the host tier survives. The
next turn opens the session again by itself. So a close that is late or lost costs little, nothing
waits for one, and one that a restore has overtaken is not sent.

Source: SGLANG.md §7 (measured on 0.5.23: a closed program's KV was evicted first though used last).
"""

import asyncio
import json
import logging

from thunder_router.errors import UnknownWorkerError, UpstreamError
from thunder_router.scheduling.events import Paused, ProgramEvent, Released, Restored
from thunder_router.workers.registry import Registry

__all__ = ["Sessions"]

log = logging.getLogger(__name__)

MOST_PENDING = 1000
"""Closes under way beyond which further ones are dropped: the engines have other worries then."""


class Sessions:
    """A subscriber of program events that closes sessions. Silent where engines have none."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pending: dict[tuple[str, int], asyncio.Task[None]] = {}

    def __call__(self, event: ProgramEvent) -> None:
        """Takes one event; returns at once."""
        match event:
            case Paused(program=program, worker=worker):
                self._close(program, worker)
            case Released(program=program, worker=int(worker)):
                self._close(program, worker)
            case Restored(program=program, worker=worker):
                late = self._pending.pop((program, worker), None)
                if late is not None:
                    late.cancel()
            case _:
                pass

    async def aclose(self) -> None:
        """Sends nothing more."""
        tasks = list(self._pending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _close(self, program: str, worker: int) -> None:
        key = (program, worker)
        if key in self._pending or len(self._pending) >= MOST_PENDING:
            return
        try:
            report = self._registry.get(worker).report
        except UnknownWorkerError:
            return
        if report is None or not report.capabilities.close_session:
            return
        task = asyncio.create_task(self._send(program, worker))
        self._pending[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: tuple[str, int], done: asyncio.Task[None]) -> None:
        if self._pending.get(key) is done:
            del self._pending[key]

    async def _send(self, program: str, worker: int) -> None:
        try:
            door = self._registry.get(worker).door
            answer = await door.client.ask(
                "POST",
                door.url + "/close_session",
                timeout_s=door.timeout_s,
                key=door.key,
                body=json.dumps({"session_id": program}).encode(),
            )
            if not answer.ok:
                log.debug("worker=%d event=close_session status=%d", worker, answer.status)
        except (TimeoutError, UpstreamError, UnknownWorkerError) as error:
            log.debug("worker=%d event=close_session error=%s", worker, error)
