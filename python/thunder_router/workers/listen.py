"""Listens to what one worker publishes.

One socket and one small task per rank and kind of news. ZeroMQ connects and reconnects by itself,
so a publisher that is away is only silent; silence is what the reader of the loads looks at. A rank
sends its load whenever that changes, and once a second besides: three seconds of nothing, and the
worker is asked again instead.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import zmq
import zmq.asyncio

from thunder_router.workers.clock import Clock
from thunder_router.workers.feeds import address
from thunder_router.workers.frames import load_of
from thunder_router.workers.observations import Feed, RankLoad
from thunder_router.workers.report import Reading, Source

__all__ = ["Listener"]

log = logging.getLogger(__name__)

SILENT_AFTER_S = 3.0
"""Three heart-beats of a publisher. Source: SGLANG.md §1.3."""

LARGEST_MESSAGE = 64 * 1024 * 1024


class Listener:
    """A `feeds.Follower` over ZeroMQ. Everything runs in one event loop."""

    def __init__(self, worker: int, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._feeds: tuple[Feed, ...] = ()
        self._host = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._loads: dict[int, tuple[RankLoad, float]] = {}

    def follow(self, feeds: tuple[Feed, ...], host: str) -> None:
        """Listens to these from now on; what was heard so far may be of another run."""
        self._loads.clear()
        if (feeds, host) == (self._feeds, self._host):
            return
        self._feeds, self._host = feeds, host
        self._stop()
        self._tasks = [asyncio.create_task(self._carefully(task)) for task in self._all()]

    def _all(self) -> list[Coroutine[None, None, None]]:
        return [self._hear_loads(feed) for feed in self._feeds if feed.loads is not None]

    def loads(self) -> Reading[tuple[RankLoad, ...]] | None:
        """Every rank's last load; `None` while one of them does not publish or is silent."""
        oldest_s = min((at_s for _, at_s in self._loads.values()), default=0.0)
        if not self._feeds or len(self._loads) < len(self._feeds):
            return None
        if self._clock.now_s() - oldest_s >= SILENT_AFTER_S:
            return None
        lines = tuple(self._loads[rank][0] for rank in sorted(self._loads))
        return Reading(lines, Source.PUBLISHED, oldest_s)

    async def aclose(self) -> None:
        """Listens no more."""
        tasks, self._feeds = self._tasks, ()
        self._stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _carefully(self, listening: Coroutine[None, None, None]) -> None:
        """What cannot be listened to is asked for instead."""
        try:
            await listening
        except zmq.ZMQError as error:
            log.warning("worker=%d event=listening_failed error=%s", self._worker, error)

    async def _hear_loads(self, feed: Feed) -> None:
        if feed.loads is None:
            return

        def take(frames: list[bytes]) -> None:
            load = load_of(frames, feed.rank)
            if load is not None:
                self._loads[feed.rank] = load, self._clock.now_s()

        await _hear(address(feed.loads, self._host), feed.loads_topic, take)


async def _hear(where: str, topic: bytes, take: Callable[[list[bytes]], None]) -> None:
    """Gives every message published there to `take`, until cancelled."""
    context = zmq.asyncio.Context.instance()
    with context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.setsockopt(zmq.SUBSCRIBE, topic)
        socket.connect(where)
        while True:
            take(await socket.recv_multipart())
            await asyncio.sleep(0)  # a burst is taken one message at a time, between others' turns
