"""The relay as a whole: what all its connections share, and the one clock that ends the slow ones.

Time-outs are swept, not timed: every connection and exchange carries a deadline, and a single
task compares them a few times within the shortest of them. A timer per request would cost more
than all its header parsing.
"""

import asyncio
import json
import logging
import os
from collections.abc import Coroutine
from itertools import count
from typing import Any, Final, Protocol, Self

from thunder_router.config import RelaySettings
from thunder_router.relay.contract import Admission, Observer, Workers
from thunder_router.relay.keys import ClientKey
from thunder_router.relay.pool import Pool
from thunder_router.relay.routes import Routes

__all__ = ["Connection", "Relay"]

_log = logging.getLogger(__name__)

_SWEEPS_PER_DEADLINE: Final = 4
_SWEEP_MAX_S: Final = 1.0


class Connection(Protocol):
    """A client's connection, as the relay sees it."""

    def expire(self, now: float) -> None:
        """Ends what has taken too long."""

    def drain(self) -> None:
        """Ends with the answer that is under way, or now if there is none."""

    def cut(self) -> None:
        """Ends now."""


class Relay:
    """Everything that the connections share. Use as an async context manager.

    Args:
        settings: The byte relay's settings.
        admission: Decides where and when requests go.
        workers: Knows where the workers listen.
        observer: Sees every exchange end.
        key: What clients must show on the inference routes; None: nothing.

    Attributes:
        connections: Every client's connection now open.
        draining: No connection outlives the answer it is giving.
    """

    def __init__(
        self,
        settings: RelaySettings,
        *,
        admission: Admission,
        workers: Workers,
        observer: Observer | None = None,
        key: ClientKey | None = None,
    ) -> None:
        self.settings: Final = settings
        self.admission: Final = admission
        self.workers: Final = workers
        self.observer: Final = observer
        self.key: Final = key
        self.routes: Final = Routes(settings.passthrough_paths)
        self.pool: Final = Pool(
            idle_s=settings.pool_idle_s,
            connect_timeout_s=settings.connect_timeout_s,
            uses=settings.requests_per_connection,
        )
        self.connections: Final[set[Connection]] = set()
        self.draining = False
        self._ids = count()
        self._id_prefix = os.urandom(8).hex()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self.run(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in list(self.connections):
            connection.cut()
        self.pool.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drain(self) -> None:
        """Lets every connection end with the answer that is under way."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()

    def next_id(self) -> str:
        """A name for a request, unique and always 32 characters long.

        The length matters: SGLang aborts every request whose name begins with the one it is told.
        """
        return f"{self._id_prefix}{next(self._ids):016x}"

    def run(self, errand: Coroutine[Any, Any, None]) -> None:
        """Runs `errand` beside the requests; it ends with the relay at the latest."""
        task = self.loop.create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def farewell_body(self, program: str | None, known: bool) -> bytes:
        """What a client hears that only said good-bye."""
        return json.dumps({"program_id": program, "released": known}).encode()

    async def _sweep(self) -> None:
        settings = self.settings
        deadlines_s = (
            settings.request_read_timeout_s,
            settings.pool_idle_s,
            settings.first_byte_timeout_s,
            settings.stream_idle_timeout_s,
        )
        shortest_s = min(seconds for seconds in deadlines_s if seconds)
        period_s = min(_SWEEP_MAX_S, shortest_s / _SWEEPS_PER_DEADLINE)
        while True:
            await asyncio.sleep(period_s)
            now = self.loop.time()
            for connection in list(self.connections):
                try:
                    connection.expire(now)
                except Exception:
                    _log.exception("sweep=failed")
            self.pool.sweep(now)
