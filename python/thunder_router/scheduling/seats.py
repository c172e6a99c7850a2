"""The seats of one pool, as the driver must know them without the core.

A seat is a (worker, DP rank) pair: every rank has a KV cache of its own. The core owns capacity and
programs. What stands here is what is needed to carry decisions out, to announce everything again to
a fresh core, and to serve plainly should the core ever fail.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from thunder_router.scheduling.recorder import Core

__all__ = ["Placement", "Seat", "SeatFacts", "Seats"]


@dataclass(frozen=True, slots=True)
class SeatFacts:
    """What the scheduler wants to know of one DP rank.

    Attributes:
        device_tokens: KV cache capacity in tokens, or None where unknown.
        host_tokens: HiCache's host tier in tokens; 0 without one.
        write_back: The host tier holds only what the device has evicted.
        prefill_us_per_token: Linear part of prefill time, µs per token.
        prefill_ns_per_token2: Quadratic part, ns per token and token of context.
        load_back_us_per_token: From the host tier to the device, µs per token.
        sessions: The engine can be told which program's KV to drop first.
    """

    device_tokens: int | None
    host_tokens: int
    write_back: bool
    prefill_us_per_token: float
    prefill_ns_per_token2: float
    load_back_us_per_token: float
    sessions: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request goes, and what its body must say there.

    Attributes:
        worker: The worker's id.
        rank: The DP rank.
        session_id: What the engine is to tag the request's KV cache with, or None.
        priority: The engine's queue priority, or None.
    """

    worker: int
    rank: int
    session_id: str | None = None
    priority: int | None = None


class Seat:
    """One (worker, rank).

    Attributes:
        facts: As last announced.
        ready: It takes new work.
        draining: It is about to go.
        in_flight: Requests placed here that have not ended, whether or not the core knows them.
    """

    __slots__ = ("_anonymous", "draining", "facts", "in_flight", "rank", "ready", "worker")

    def __init__(self, worker: int, rank: int, facts: SeatFacts) -> None:
        self.worker = worker
        self.rank = rank
        self.facts = facts
        self.ready = True
        self.draining = False
        self.in_flight = 0
        self._anonymous = Placement(worker, rank)

    def placement(self, program: str | None) -> Placement:
        """A place here for a request of `program`: tagged where the engine can use it."""
        if program is None or not self.facts.sessions:
            return self._anonymous
        return Placement(self.worker, self.rank, program)

    def announce(self, core: Core, now_ms: int) -> None:
        """Tells a core all that is known of this seat's capacity and costs."""
        facts = self.facts
        core.worker_up(
            self.worker,
            self.rank,
            device_tokens=facts.device_tokens,
            host_tokens=facts.host_tokens,
            write_back=facts.write_back,
            prefill_us_per_token=facts.prefill_us_per_token,
            prefill_ns_per_token2=facts.prefill_ns_per_token2,
            load_back_us_per_token=facts.load_back_us_per_token,
            sessions=facts.sessions,
            now_ms=now_ms,
        )


class Seats:
    """The seats of one pool by (worker, rank), with what was last heard of each."""

    def __init__(self) -> None:
        self._seats: dict[tuple[int, int], Seat] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._seats.values())

    def get(self, worker: int, rank: int) -> Seat | None:
        """That seat, if it is up."""
        return self._seats.get((worker, rank))

    def of(self, worker: int) -> list[Seat]:
        """Every rank of that worker."""
        return [seat for seat in self._seats.values() if seat.worker == worker]

    def up(self, worker: int, rank: int, facts: SeatFacts) -> Seat:
        """The seat, ready, with these facts."""
        seat = self._seats.get((worker, rank))
        if seat is None:
            seat = self._seats[worker, rank] = Seat(worker, rank, facts)
        seat.facts = facts
        seat.ready = True
        seat.draining = False
        return seat

    def down(self, worker: int) -> None:
        """The worker's seats are gone. Requests placed there keep theirs until they end."""
        for seat in self.of(worker):
            del self._seats[worker, seat.rank]

    def least_loaded(self, refused: Container[int] = ()) -> Seat | None:
        """The ready seat with the fewest requests in flight, on a worker that did not refuse."""
        return min(
            (s for s in self if s.ready and not s.draining and s.worker not in refused),
            key=lambda seat: seat.in_flight,
            default=None,
        )
