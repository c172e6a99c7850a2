"""One emulated worker: an engine per DP rank, one timer each, and the requests that wait on them.

Virtual time is real time since the start, times the speed. An engine says when it next has
something to tell; one `call_at` per engine waits for that instant, and whatever changes the engine
sets it anew. Nothing polls.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Literal, assert_never

from thunder_router._core import (
    Displaced,
    Engine,
    EngineLoads,
    Finished,
    FirstToken,
    Progress,
    Retracted,
)
from thunder_router.emulator.ask import Ask
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.script import Script
from thunder_router.emulator.tally import Tally

__all__ = ["RefusedError", "Turn", "Worker"]

EngineEvent = FirstToken | Progress | Retracted | Displaced | Finished

_MARK_US = 1_000_000


class RefusedError(Exception):
    """The engine did not take the request."""

    def __init__(self, kind: Literal["too_long", "queue_full", "duplicate"]) -> None:
        super().__init__(kind)
        self.kind = kind


class Turn:
    """One request in an engine, and what its exchange has yet to hear of it."""

    __slots__ = ("_events", "_waiter", "arrived_us", "ask", "first_us", "number", "rank")

    def __init__(self, ask: Ask, number: int, rank: int, arrived_us: int) -> None:
        self.ask = ask
        self.number = number
        self.rank = rank
        self.arrived_us = arrived_us
        self.first_us: int | None = None
        self._events: deque[FirstToken | Progress | Displaced | Finished] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def tell(self, event: FirstToken | Progress | Displaced | Finished) -> None:
        """Something happened to it."""
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> FirstToken | Progress | Displaced | Finished:
        """The next thing that happened to it."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()


class Worker:
    """See the module."""

    def __init__(self, options: EmulatorOptions, port: int, script: Script) -> None:
        self.options = options
        self.port = port
        self.script = script
        self.started_at = time.time()
        self.draining = False
        self.paused_at: float | None = None
        self.tally = Tally()
        self.open_sessions: set[str] = set()
        self.engines = [self._engine() for _ in range(options.dp_size)]
        self._turns: dict[int, Turn] = {}
        self._by_rid: dict[str, Turn] = {}
        self._numbers = 0
        self._next_rank = 0
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._timers: list[asyncio.TimerHandle | None] = [None] * options.dp_size
        self._marks = [(0, 0, 0.0)] * options.dp_size
        self._frozen: list[EngineLoads] | None = None

    def _engine(self) -> Engine:
        options = self.options
        # The preset's own capacity is known to the engine alone, and the ratio needs it.
        pool = _engine_of(options, 0).capacity_tokens
        return _engine_of(options, options.host_pool_tokens(pool))

    @property
    def capacity_tokens(self) -> int:
        """KV tokens of each rank."""
        return self.engines[0].capacity_tokens

    @property
    def host_capacity_tokens(self) -> int:
        """Host tier of each rank, tokens."""
        return self.options.host_pool_tokens(self.capacity_tokens)

    @property
    def in_flight(self) -> int:
        """Requests waiting or running, all ranks."""
        return len(self._turns)

    def now_us(self) -> int:
        """Virtual microseconds since the start."""
        return int((self._loop.time() - self._start) * self.options.speed * 1e6)

    def real(self, virtual_s: float) -> float:
        """Virtual seconds as real ones."""
        return virtual_s / self.options.speed

    def start(self, ask: Ask) -> Turn:
        """Hands a request to an engine: to the rank it names, else in turn.

        Raises:
            RefusedError: too long for the pool, the queue is full, or its rid is in flight.
        """
        if ask.rid in self._by_rid:
            raise RefusedError("duplicate")
        rank = ask.rank
        if rank is None:
            rank, self._next_rank = self._next_rank, (self._next_rank + 1) % len(self.engines)
        now_us = self.now_us()
        self._numbers += 1
        turn = Turn(ask, self._numbers, rank, now_us)
        refusal = self.engines[rank].submit(
            turn.number,
            prompt=ask.prompt,
            prompt_tokens=ask.prompt_tokens,
            answer=ask.answer,
            output_tokens=ask.output_tokens,
            max_tokens=ask.max_tokens,
            bytes_per_token=ask.bytes_per_token,
            priority=ask.priority,
            session=ask.session,
            progress=ask.stream,
            now_us=now_us,
        )
        if refusal is not None:
            raise RefusedError(refusal)
        self._turns[turn.number] = turn
        self._by_rid[ask.rid] = turn
        self.tally.started(ask.stream)
        self._wind(rank)
        return turn

    def abort(self, turn: Turn) -> None:
        """Cuts one request short."""
        if turn.number in self._turns:
            self.engines[turn.rank].abort(turn.number, self.now_us())
            self._wind(turn.rank)

    def abort_matching(self, rid: str, *, everything: bool = False) -> None:
        """Cuts short whatever has a rid that begins so: SGLang matches by prefix."""
        for turn in list(self._turns.values()):
            if everything or (rid and turn.ask.rid.startswith(rid)):
                self.abort(turn)

    def close_session(self, session: str) -> None:
        """Its KV goes first from now on, on every rank."""
        self.open_sessions.discard(session)
        for engine in self.engines:
            engine.close_session(session, self.now_us())

    def flush(self) -> bool:
        """Drops every rank's cache, if nothing is in flight on any."""
        if self._turns:
            return False
        flushed = [engine.flush() for engine in self.engines]
        return all(flushed)

    def pause(self, mode: str) -> None:
        """Stands still. `mode` is one of SGLang's.

        Raises:
            ValueError: it is not.
        """
        for rank, engine in enumerate(self.engines):
            engine.pause(mode, self.now_us())
            self._wind(rank)
        self.paused_at = time.time()
        self._freeze()

    def go_on(self) -> None:
        """Ends a pause."""
        self.paused_at = None
        self._frozen = None
        for rank, engine in enumerate(self.engines):
            engine.resume(self.now_us())
            self._wind(rank)

    def loads(self) -> list[EngineLoads]:
        """Every rank's load. Stands still while paused, as the real one's snapshot does."""
        if self._frozen is not None:
            return self._frozen
        now_us = self.now_us()
        return [engine.loads(now_us) for engine in self.engines]

    def throughput(self, rank: int) -> float:
        """Tokens per virtual second, over at least the last one of them."""
        now_us, generated = self.now_us(), self.engines[rank].counts().generated_tokens
        marked_us, marked, rate = self._marks[rank]
        if now_us - marked_us >= _MARK_US:
            rate = (generated - marked) * 1e6 / (now_us - marked_us)
            self._marks[rank] = (now_us, generated, rate)
        return rate

    def close(self) -> None:
        """Stops the timers."""
        for timer in self._timers:
            if timer is not None:
                timer.cancel()

    def _freeze(self) -> None:
        if all(engine.next_event_us() is None for engine in self.engines):
            self._frozen = None
            self._frozen = self.loads()

    def _wind(self, rank: int) -> None:
        """Sets the rank's timer to when its engine next has something to tell."""
        timer = self._timers[rank]
        if timer is not None:
            timer.cancel()
            self._timers[rank] = None
        due_us = self.engines[rank].next_event_us()
        if due_us is not None:
            due = self._start + due_us / 1e6 / self.options.speed
            self._timers[rank] = self._loop.call_at(due, self._strike, rank)

    def _strike(self, rank: int) -> None:
        self._timers[rank] = None
        due_us = self.engines[rank].next_event_us()
        if due_us is not None:
            self.tally.event_lag.observe(max(0.0, (self.now_us() - due_us) / 1e6))
        self._hear(self.engines[rank].advance(self.now_us()))
        self._wind(rank)
        if self.paused_at is not None and self._frozen is None:
            self._freeze()

    def _hear(self, events: Iterable[EngineEvent]) -> None:
        for event in events:
            turn = self._turns.get(event.request)
            if turn is None:
                continue
            match event:
                case FirstToken():
                    turn.first_us = event.at_us
                    turn.tell(event)
                case Progress():
                    turn.tell(event)
                case Retracted():
                    pass
                case Displaced() | Finished():
                    del self._turns[event.request]
                    del self._by_rid[turn.ask.rid]
                    if isinstance(event, Finished):
                        self.tally.finished(turn, event)
                    turn.tell(event)
                case _:
                    assert_never(event)


def _engine_of(options: EmulatorOptions, host_tokens: int) -> Engine:
    coalesced = int(options.coalesce_s * options.speed * 1e6)
    return Engine(
        model=options.preset,
        capacity_tokens=options.capacity_tokens,
        page_tokens=options.page_size,
        host_tokens=host_tokens,
        write_policy=options.write_policy,
        max_running=options.max_running,
        max_queued=options.max_queued,
        session_radix=options.session_radix,
        priority_scheduling=options.priority_scheduling,
        progress_us=coalesced,
    )
