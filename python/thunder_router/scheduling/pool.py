"""The workers of one model, and the requests that wait for them or run on them.

Theory of operation. A ticket that arrives is told to the core, which is asked at once: an admitted
request goes on without a task or a future. From then on only decisions move it, until its owner
ends it. Where the core refuses an event or fails, the request is served plainly, by the least
loaded worker, and the core forgets it: a bug in scheduling costs scheduling, never an answer.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import assert_never

from thunder_router.errors import InvariantError, NoWorkerError, ThunderError
from thunder_router.scheduling.clock import Clock
from thunder_router.scheduling.core import (
    Admit,
    Decision,
    Expire,
    Hold,
    Pause,
    Prepare,
    Reject,
    Restore,
    rejection,
)
from thunder_router.scheduling.estimate import TokenEstimator
from thunder_router.scheduling.events import Expired, Paused, Prepared, ProgramEvent, Restored
from thunder_router.scheduling.recorder import Core, retell
from thunder_router.scheduling.seats import Seat, SeatFacts, Seats
from thunder_router.scheduling.ticket import Ticket
from thunder_router.scheduling.ticking import TickingCore

__all__ = ["Pool"]

_LOG = logging.getLogger(__name__)


class Pool:
    """One core and everything it decides about.

    Attributes:
        name: For people and the journal: the first model's name.
        models: Names of models that its workers answer to.
        seats: Its (worker, rank) pairs.
        counts: Decisions and incidents since the start, by kind; for metrics.
    """

    def __init__(
        self,
        name: str,
        new_core: Callable[[], Core],
        clock: Clock,
        estimator: TokenEstimator,
        publish: Callable[[ProgramEvent], None],
        final: Callable[[str], object],
    ) -> None:
        """A pool without workers.

        Args:
            name: For people, logs and the journal.
            new_core: Makes an empty core.
            clock: All time comes from here.
            estimator: Learns from this pool's usage.
            publish: Told what happens to programs.
            final: Called with a program whose last request has ended.
        """
        self.name = name
        self.models: set[str] = set()
        self.seats = Seats()
        self.counts: Counter[str] = Counter()
        self._ticking = TickingCore(
            name, new_core, clock, self.counts, self._carry_out, self._refill
        )
        self._estimator = estimator
        self._publish = publish
        self._final = final
        self._live: dict[int, Ticket] = {}
        self._ratios: dict[str, float] = {}
        self._sync_began_ms: int | None = None

    # --- requests ------------------------------------------------------------------------------

    def arrive(self, ticket: Ticket) -> None:
        """Takes a new request in: it is placed or held when this returns.

        Raises:
            RejectedError: a limit was reached.
            OversizeError: it fits no worker.
            NoWorkerError: nobody serves it.
        """
        if ticket.program is not None:
            ratio = self._ratios.get(ticket.program, 1.0)
            ticket.prompt_tokens = max(1, round(ticket.prompt_tokens * ratio))
        self._live[ticket.id] = ticket
        self._enter(ticket, ticket.arrived_ms)
        if ticket.error is not None:
            raise ticket.error

    def bounce(self, ticket: Ticket) -> None:
        """The worker of a placed ticket refused it: it is held again, or placed elsewhere."""
        refused = self._leave(ticket)
        if refused not in ticket.refused:
            ticket.refused = (*ticket.refused, refused)
        ticket.place = None
        ticket.state = "held"
        self.counts["bounce"] += 1
        if self.seats.least_loaded(ticket.refused) is None:
            self._turn_away(ticket, NoWorkerError("every worker refused the request"))
            return
        known = ticket.core_knows and self._ticking.tell(
            "bounced", lambda core, now: core.bounced(ticket.id, now)
        )
        if not (known and self._ticking.decide(self._ticking.now_ms())):
            self._serve_plainly(ticket)

    def progress(self, ticket: Ticket, decoded_tokens: int) -> None:
        """Tells the core how far the answer has come. Nothing is decided on this alone."""
        if ticket.core_knows:
            ticking = self._ticking
            try:
                ticking.core.progress(ticket.id, decoded_tokens, ticking.now_ms())
            except Exception as error:
                ticking.failed("progress", error)

    def finish(
        self,
        ticket: Ticket,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None,
        cached_host_tokens: int | None,
        tools: tuple[str, ...],
    ) -> None:
        """The ticket's end by a whole answer."""
        self._end(ticket)
        if prompt_tokens is not None and prompt_tokens > 0:
            self._learn(ticket, prompt_tokens)
        if ticket.core_knows:
            ticking = self._ticking
            try:
                ticking.core.finished(
                    ticket.id,
                    prompt_tokens=prompt_tokens,
                    completion_tokens=completion_tokens,
                    cached_tokens=cached_tokens,
                    cached_host_tokens=cached_host_tokens,
                    tool=tools[0] if tools else None,
                    now_ms=ticking.now_ms(),
                )
            except Exception as error:
                ticking.failed("finished", error)
        self._after(ticket)

    def fail(self, ticket: Ticket) -> None:
        """The ticket's end by an error."""
        self._end(ticket)
        if ticket.core_knows:
            self.tell("failed", lambda core, now: core.failed(ticket.id, now))
        self._after(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """The ticket's end by a client that left."""
        self._end(ticket)
        if ticket.core_knows:
            self.tell("cancelled", lambda core, now: core.cancelled(ticket.id, now))
        self._after(ticket)

    # --- everything else that happens -----------------------------------------------------------

    def tell(self, name: str, event: Callable[[Core, int], object]) -> None:
        """Gives the core an event on which nobody waits, and the time."""
        self._ticking.tell(name, event)

    def rank_up(self, worker: int, rank: int, facts: SeatFacts) -> None:
        """The rank serves; also a change of what is known of it."""
        self._announce(self.seats.up(worker, rank, facts))

    def weight_sync_begin(self, began_ms: int) -> None:
        """Weights are exchanged since then: nothing is admitted until the end."""
        self._sync_began_ms = began_ms
        self.tell("weight_sync_begin", lambda core, _now: core.weight_sync_begin(began_ms))

    def weight_sync_end(self) -> None:
        """They are not any more."""
        self._sync_began_ms = None
        self.tell("weight_sync_end", lambda core, now: core.weight_sync_end(now))

    def forget(self, program: str) -> None:
        """The program is gone: nothing learned of it is kept."""
        self._ratios.pop(program, None)

    def look(self) -> tuple[Core, int]:
        """The core and the time, for what only reads, or answers for itself."""
        return self._ticking.core, self._ticking.now_ms()

    def why_held(self, program: str) -> str | None:
        """Why a request of the program waits, in numbers; None where none does."""
        for ticket in self._live.values():
            if ticket.program == program and ticket.held_by and ticket.state == "held":
                return ticket.held_by.reason
        return None

    def ask_soon(self) -> None:
        """Something changed: the core is asked in the next turn of the loop."""
        self._ticking.ask_soon()

    def check(self) -> None:
        """Recounts the core's books and ours.

        Raises:
            InvariantError: a count does not add up.
        """
        self._ticking.core.check()
        placed = Counter(id(t.seat) for t in self._live.values() if t.state == "placed")
        for seat in self.seats:
            if seat.in_flight != placed[id(seat)]:
                raise InvariantError(
                    f"pool {self.name}: worker {seat.worker}.{seat.rank} counts"
                    f" {seat.in_flight} in flight, its tickets are {placed[id(seat)]}"
                )

    def close(self) -> None:
        """No timer runs on. Tickets can still be ended."""
        self._ticking.close()

    # --- decisions -----------------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Admit():
                self._admit(decision)
            case Hold():
                self.counts["hold"] += 1
                ticket = self._live.get(decision.request)
                if ticket is not None:
                    ticket.held_by = decision
            case Reject():
                self.counts[f"reject_{decision.kind}"] += 1
                ticket = self._live.get(decision.request)
                if ticket is not None:
                    ticket.core_knows = False
                    self._turn_away(ticket, rejection(decision))
            case Pause():
                self.counts["pause"] += 1
                self._publish(Paused(decision.program, decision.worker, decision.rank))
            case Restore():
                self.counts["restore"] += 1
                self._publish(Restored(decision.program, decision.worker, decision.rank))
            case Prepare():
                self.counts["prepare"] += 1
                self._publish(Prepared(decision.program, decision.expected_wait_ms))
            case Expire():
                self.counts["expire"] += 1
                self.forget(decision.program)
                self._publish(Expired(decision.program))
            case _:
                assert_never(decision)

    def _admit(self, decision: Admit) -> None:
        self.counts["admit"] += 1
        ticket = self._live.get(decision.request)
        if ticket is None or ticket.state != "held":
            self._ticking.failed("admit", RuntimeError(f"request {decision.request} is not held"))
            return
        seat = self.seats.get(decision.worker, decision.rank)
        if seat is None:
            self._ticking.failed("admit", RuntimeError(f"worker {decision.worker} is not up"))
            self._serve_plainly(ticket)
        else:
            self._place(ticket, seat)

    # --- tickets -------------------------------------------------------------------------------

    def _enter(self, ticket: Ticket, now_ms: int) -> None:
        """Tells the core of a held ticket, and serves it plainly where that fails."""
        ticking = self._ticking
        try:
            ticking.core.arrive(
                ticket.id,
                program=ticket.program,
                group=ticket.group,
                tenant=None if ticket.tenant is None else ticket.tenant.name,
                weight=1 if ticket.tenant is None else ticket.tenant.weight,
                prompt_tokens=ticket.prompt_tokens,
                prefix=ticket.prefix,
                now_ms=now_ms,
            )
        except Exception as error:
            ticking.failed("arrive", error)
        else:
            if ticking.decide(now_ms):
                return
        self._serve_plainly(ticket)

    def _place(self, ticket: Ticket, seat: Seat) -> None:
        seat.in_flight += 1
        ticket.seat = seat
        ticket.place = seat.placement(ticket.program)
        ticket.state = "placed"
        ticket.wake()

    def _leave(self, ticket: Ticket) -> int:
        """Takes a placed ticket off its seat; returns the worker."""
        seat = ticket.seat
        assert seat is not None, "a placed ticket has a seat"
        seat.in_flight -= 1
        ticket.seat = None
        return seat.worker

    def _end(self, ticket: Ticket) -> None:
        if ticket.state == "placed":
            self._leave(ticket)
        ticket.state = "ended"
        self._live.pop(ticket.id, None)
        ticket.wake()

    def _after(self, ticket: Ticket) -> None:
        if ticket.final and ticket.program is not None:
            self._final(ticket.program)
        self._ticking.ask_soon()

    def _turn_away(self, ticket: Ticket, error: ThunderError) -> None:
        """Ends a held ticket with an error, for its owner to raise."""
        ticket.error = error
        self._end(ticket)
        if ticket.core_knows:
            self.tell("cancelled", lambda core, now: core.cancelled(ticket.id, now))

    def _serve_plainly(self, ticket: Ticket) -> None:
        """Places a ticket that is still held without the core, which forgets it."""
        if ticket.state != "held":
            return
        self.counts["plain"] += 1
        if ticket.core_knows:
            ticket.core_knows = False
            core, now = self.look()
            try:
                core.cancelled(ticket.id, now)
            except Exception as error:
                _LOG.debug("core_failure pool=%s event=cancelled error=%r", self.name, error)
        seat = self.seats.least_loaded(ticket.refused)
        if seat is None:
            self._turn_away(ticket, NoWorkerError("no worker is ready"))
        else:
            self._place(ticket, seat)

    def _learn(self, ticket: Ticket, prompt_tokens: int) -> None:
        """Moves the model's weights, and notes how this program differs from its model.

        What a template makes of a program's history (dropped reasoning, rendered tools) repeats
        from turn to turn, so its next estimate is right even where its model's is not.
        """
        facts = ticket.facts
        if facts is None:
            return
        plain = self._estimator.learn(ticket.model, facts, prompt_tokens)
        if ticket.program is not None and not ticket.final:
            self._ratios[ticket.program] = min(max(prompt_tokens / plain, 0.1), 10.0)

    # --- a core starts empty -------------------------------------------------------------------

    def _refill(self, broken: Core) -> None:
        """Tells a fresh core the workers, the programs and the held requests again."""
        try:
            views = broken.programs(self._ticking.now_ms())
        except Exception as error:
            _LOG.warning("core_lost pool=%s programs=all error=%r", self.name, error)
            views = []
        if self._sync_began_ms is not None:
            self.weight_sync_begin(self._sync_began_ms)  # first: its time lies before all others
        for seat in self.seats:
            self._announce(seat)
        for view in views:
            self.tell("remember", partial(retell, view))
        for ticket in [*self._live.values()]:
            if ticket.state == "placed":
                ticket.core_knows = False
            else:
                self._enter(ticket, self._ticking.now_ms())

    def _announce(self, seat: Seat) -> None:
        self.tell("worker_up", seat.announce)
        if seat.draining:
            self.tell("worker_draining", lambda core, now: core.worker_draining(seat.worker, now))
        elif not seat.ready:
            self.tell("worker_unready", lambda core, now: core.worker_unready(seat.worker, now))
