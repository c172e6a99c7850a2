"""What another policy would have done with a journal's traffic.

Under another policy requests are admitted at other times, so what followed from that must move:
here each request is served for as long as it was (one that never was, for the mean of all others),
each program takes the time between its turns that it took, a client that left waits for as long as
it had patience, and workers come and go as recorded. That says what another policy does to the
waiting. How much faster or slower workers would have been is not in a journal: the simulator says.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from thunder_router.scheduling.core import Admit, Pause, Reject, Restore, Scheduler
from thunder_router.scheduling.journal import Line
from thunder_router.scheduling.recorder import BEGIN, TICK

__all__ = ["Outcome", "Turn", "as_recorded", "turns_of", "under"]

_ENDS: Final = frozenset({"finished", "failed", "cancelled"})
_UNSAID: Final[dict[str, Any]] = {"prompt_tokens": None, "completion_tokens": None}
_OF_REQUESTS: Final = _ENDS | {"arrive", "bounced", "progress", BEGIN, TICK}


@dataclass(slots=True)
class Turn:
    """One request of the journal.

    Attributes:
        arrival: Arguments of its `arrive`.
        arrived_ms: When it came.
        after: The turn of its program whose end it followed, or None.
        gap_ms: Milliseconds between that end and its arrival.
        held_ms: How long it waited until its last admission, or until its end without one.
        served_ms: How long it was then served; None: it never was.
        end: The event that ended it, and its arguments; None: the journal stops before.
    """

    arrival: dict[str, Any]
    arrived_ms: int
    after: "Turn | None" = None
    gap_ms: int = 0
    held_ms: int = 0
    served_ms: int | None = None
    end: tuple[str, dict[str, Any]] | None = None
    ended_ms: int | None = None


@dataclass(slots=True)
class Outcome:
    """What a policy did to the waiting. Times in milliseconds, one entry per admitted request."""

    admitted: int = 0
    rejected: int = 0
    left: int = 0
    pauses: int = 0
    restores: int = 0
    last_ms: int = 0
    held_ms: list[int] = field(default_factory=list)

    def quantile(self, share: float) -> int:
        """Held time that `share` of the admitted requests stayed within; 0 without any."""
        held = sorted(self.held_ms)
        return held[min(len(held) - 1, int(share * len(held)))] if held else 0


def turns_of(lines: Iterable[Line]) -> tuple[list[Turn], list[Line]]:
    """The requests of a journal in the order of their arrival, and all else that happened."""
    turns: dict[tuple[str, int], Turn] = {}
    latest: dict[tuple[str, str], Turn] = {}
    others: list[Line] = []
    for line in lines:
        pool, now_ms, event, arguments = line
        if event == "arrive":
            turn = turns[pool, arguments["request"]] = Turn(arguments, now_ms)
            program = arguments["program"]
            before = None if program is None else latest.get((pool, program))
            if before is not None and before.ended_ms is not None:
                turn.after, turn.gap_ms = before, now_ms - before.ended_ms
        elif event == TICK:
            for row in arguments:
                if row[0] == "admit":
                    turn = turns[pool, row[1]]
                    turn.held_ms, turn.served_ms = now_ms - turn.arrived_ms, 0
        elif event in _ENDS:
            turn = turns[pool, arguments["request"]]
            turn.end, turn.ended_ms = (event, arguments), now_ms
            waited = now_ms - turn.arrived_ms
            if turn.served_ms is None:
                turn.held_ms = waited
            else:
                turn.served_ms = waited - turn.held_ms
            if turn.arrival["program"] is not None:
                latest[pool, turn.arrival["program"]] = turn
        elif event not in _OF_REQUESTS:
            others.append(line)
    return list(turns.values()), others


def as_recorded(lines: Iterable[Line]) -> Outcome:
    """The outcome that the journal itself tells."""
    outcome = Outcome()
    arrived: dict[int, int] = {}
    for _, now_ms, event, arguments in lines:
        outcome.last_ms = max(outcome.last_ms, now_ms)
        if event == "arrive":
            arrived[arguments["request"]] = now_ms
        elif event == TICK:
            for row in arguments:
                match row[0]:
                    case "admit":
                        outcome.admitted += 1
                        outcome.held_ms.append(now_ms - arrived[row[1]])
                    case "reject":
                        outcome.rejected += 1
                    case "pause":
                        outcome.pauses += 1
                    case "restore":
                        outcome.restores += 1
    return outcome


def under(
    turns: list[Turn], others: list[Line], new_core: Callable[[], Scheduler], *, patience_ms: int
) -> Outcome:
    """What a core that `new_core` makes would have done with one pool's traffic.

    Args:
        turns: The pool's requests.
        others: All else that happened in it.
        new_core: Makes an empty core.
        patience_ms: After the last event, requests that still wait get so long.
    """
    return _Day(turns, others, new_core()).run(patience_ms)


class _Day:
    """One run: a heap of what happens, and a core that decides."""

    def __init__(self, turns: list[Turn], others: list[Line], core: Scheduler) -> None:
        self._core = core
        self._outcome = Outcome()
        self._order = itertools.count()
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._followers: dict[int, list[Turn]] = {}
        self._arrived: dict[int, int] = {}
        self._turns = {turn.arrival["request"]: turn for turn in turns}
        served = [turn.served_ms for turn in turns if turn.served_ms and turn.end]
        self._mean_ms = sum(served) // len(served) if served else 0
        for turn in turns:
            if turn.after is None:
                self._at(turn.arrived_ms, self._arrival(turn))
            else:
                self._followers.setdefault(turn.after.arrival["request"], []).append(turn)
        for _, now_ms, event, arguments in others:
            self._at(now_ms, self._other(event, arguments))

    def run(self, patience_ms: int) -> Outcome:
        now = 0
        tick_ms: int | None = None
        until_ms = max((due for due, _, _ in self._heap), default=0) + patience_ms
        while True:
            due = self._heap[0][0] if self._heap else None
            if tick_ms is not None and (due is None or tick_ms <= due):
                if due is None and (not self._core.counts()["waiting"] or tick_ms > until_ms):
                    return self._outcome
                now = max(now, tick_ms)
            elif due is not None:
                now = max(now, due)
                heapq.heappop(self._heap)[2](now)
            else:
                return self._outcome
            self._decide(now)
            wait = self._core.next_tick_ms(now)
            tick_ms = None if wait is None else now + max(1, wait)

    def _at(self, ms: int, happens: Callable[[int], None]) -> None:
        heapq.heappush(self._heap, (ms, next(self._order), happens))

    def _arrival(self, turn: Turn) -> Callable[[int], None]:
        def arrive(now: int) -> None:
            request = turn.arrival["request"]
            self._arrived[request] = now
            self._core.arrive(**turn.arrival, now_ms=now)
            if turn.served_ms is None and turn.end is not None:
                self._at(now + turn.held_ms, lambda at: self._leave(request, at))

        return arrive

    def _other(self, event: str, arguments: dict[str, Any]) -> Callable[[int], None]:
        return lambda now: getattr(self._core, event)(**arguments, now_ms=now)

    def _leave(self, request: int, now: int) -> None:
        """Its client's patience is over, if it still waits."""
        if request in self._arrived:
            self._outcome.left += 1
            self._core.cancelled(request, now)
            self._over(request, now)

    def _decide(self, now: int) -> None:
        outcome = self._outcome
        outcome.last_ms = max(outcome.last_ms, now)
        for decision in self._core.tick(now):
            match decision:
                case Admit(request):
                    outcome.admitted += 1
                    outcome.held_ms.append(now - self._arrived[request])
                    self._serve(self._turns[request], now)
                case Reject(request):
                    outcome.rejected += 1
                    self._over(request, now)
                case Pause():
                    outcome.pauses += 1
                case Restore():
                    outcome.restores += 1
                case _:
                    pass

    def _serve(self, turn: Turn, now: int) -> None:
        """It ends as it did, once it was served for as long; where that is not known, plainly."""
        request = turn.arrival["request"]
        event, arguments, served_ms = "finished", _UNSAID | {"request": request}, self._mean_ms
        if turn.served_ms is not None and turn.end is not None:
            (event, arguments), served_ms = turn.end, turn.served_ms

        def end(at: int) -> None:
            if request in self._arrived:
                getattr(self._core, event)(**arguments, now_ms=at)
                self._over(request, at)

        self._at(now + served_ms, end)

    def _over(self, request: int, now: int) -> None:
        del self._arrived[request]
        for follower in self._followers.pop(request, ()):
            self._at(now + follower.gap_ms, self._arrival(follower))
