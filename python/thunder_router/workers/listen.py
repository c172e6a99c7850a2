"""Listens to what one worker publishes.

One socket and one small task per rank and kind of news. ZeroMQ connects and reconnects by itself,
so a publisher that is away is only silent; silence is what the reader of the loads looks at. A rank
sends its load whenever that changes, and once a second besides: three seconds of nothing, and the
worker is asked again instead.

Messages about blocks are numbered. Where a number is missing, what was missed is asked for at the
rank's replay socket, as far back as that remembers; what cannot be had leaves the residency
incomplete until the cache is next seen empty. A number that goes back is another run.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing

import zmq
import zmq.asyncio

from thunder_router.workers.clock import Clock
from thunder_router.workers.feeds import address
from thunder_router.workers.frames import batch_of, load_of, sequence_of
from thunder_router.workers.observations import Feed, RankLoad
from thunder_router.workers.report import Reading, Source
from thunder_router.workers.residency import RankResidency, Residency

__all__ = ["Listener"]

log = logging.getLogger(__name__)

SILENT_AFTER_S = 3.0
"""Three heart-beats of a publisher. Source: SGLANG.md §1.3."""

REPLAY_TIMEOUT_S = 5.0

LARGEST_MESSAGE = 64 * 1024 * 1024


class Listener:
    """A `feeds.Follower` over ZeroMQ. Everything runs in one event loop."""

    def __init__(
        self, worker: int, clock: Clock, most_blocks: int, cleared: Callable[[], None]
    ) -> None:
        """Hears nothing yet; calls `cleared` when a rank says that its cache is empty.

        Of blocks it remembers `most_blocks` per rank; with 0 it does not listen to them.
        """
        self._worker = worker
        self._most_blocks = most_blocks
        self._cleared = cleared
        self._blocks: dict[int, Residency] = {}
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
        self.restart()

    def restart(self) -> None:
        """It is another run: listens anew."""
        self._stop()
        self._loads.clear()
        self._blocks.clear()
        self._tasks = [asyncio.create_task(self._carefully(task)) for task in self._all()]

    def _all(self) -> list[Coroutine[None, None, None]]:
        found = [self._hear_loads(feed) for feed in self._feeds if feed.loads is not None]
        if self._most_blocks:
            found += [self._hear_blocks(feed) for feed in self._feeds if feed.blocks is not None]
        return found

    def residency(self) -> tuple[RankResidency, ...]:
        """What the ranks hold, those that were heard of."""
        return tuple(self._blocks[rank].report(rank) for rank in sorted(self._blocks))

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

        async def take(frames: list[bytes]) -> None:
            load = load_of(frames, feed.rank)
            if load is not None:
                self._loads[feed.rank] = load, self._clock.now_s()

        await _hear(address(feed.loads, self._host), feed.loads_topic, take)

    async def _hear_blocks(self, feed: Feed) -> None:
        if feed.blocks is None:
            return
        expected = 0

        async def take(frames: list[bytes]) -> None:
            nonlocal expected
            number = sequence_of(frames[1]) if len(frames) == 3 else None
            if number is None or number < 0:
                return
            blocks = self._blocks.setdefault(feed.rank, Residency(self._most_blocks))
            if number < expected:
                blocks.clear()
                expected = 0
            first, cleared = expected == 0, False
            if number > expected:
                cleared = await self._catch_up(feed, blocks, expected, number)
            batch = batch_of(frames[2])
            if batch is None:
                blocks.complete = False
            else:
                cleared = blocks.take(batch) or (cleared and not first)
            expected = number + 1
            if cleared:
                self._cleared()

        await _hear(address(feed.blocks, self._host), feed.blocks_topic, take)

    async def _catch_up(self, feed: Feed, blocks: Residency, start: int, end: int) -> bool:
        """Takes the messages from `start` up to before `end`; whether a clearing was among them."""
        cleared, expected = False, start
        try:
            if feed.replay is not None:
                where = address(feed.replay, self._host)
                async with (
                    asyncio.timeout(REPLAY_TIMEOUT_S),
                    aclosing(_replay(where, start)) as replayed,
                ):
                    async for number, payload in replayed:
                        if number != expected:
                            blocks.complete = False
                        if number >= end:
                            break
                        batch = batch_of(payload)
                        if batch is None:
                            blocks.complete = False
                        elif blocks.take(batch):
                            cleared = True
                        expected = number + 1
                        if expected == end:
                            break
        except TimeoutError:
            log.info("worker=%d event=replay_timeout rank=%d", self._worker, feed.rank)
        if expected != end:
            blocks.complete = False
        return cleared


async def _replay(where: str, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
    """The messages from number `start` on that the publisher still has."""
    with zmq.asyncio.Context.instance().socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        socket.connect(where)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        while True:
            frames = await socket.recv_multipart()
            number = sequence_of(frames[-2]) if len(frames) >= 3 else None
            if number is None or number < 0:
                return
            yield number, frames[-1]
            await asyncio.sleep(0)  # thousands may come at once; others want their turns


async def _hear(where: str, topic: bytes, take: Callable[[list[bytes]], Awaitable[None]]) -> None:
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
            await take(await socket.recv_multipart())
            await asyncio.sleep(0)  # a burst is taken one message at a time, between others' turns
