"""The scheduler's shell: it owns the clock, the pools, and every request that waits.

Theory of operation. Workers that serve the same model form a pool with a core of its own, since a
program can only move between workers of its model. A request is named (`identity`), measured
(`estimate`), and taken to its pool; what comes back is a ticket that is placed already, or held.
All of it is synchronous: no task, no lock, no await between an arrival and its place.

The relay sees `arrive` and `farewell`, the worker registry sees `worker_up` and its like, and
people see programs through `programs.Programs`. Whoever wants to know what happens to programs
subscribes.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from thunder_router import identity
from thunder_router.errors import UnknownModelError
from thunder_router.identity import Identity, WeakHint
from thunder_router.scheduling.clock import Clock
from thunder_router.scheduling.continuations import Continuations
from thunder_router.scheduling.estimate import PromptFacts, TokenEstimator
from thunder_router.scheduling.events import ProgramEvent, Released, Seen, Subscriber
from thunder_router.scheduling.pool import Pool
from thunder_router.scheduling.recorder import Core
from thunder_router.scheduling.seats import SeatFacts
from thunder_router.scheduling.tenancy import Tenancy
from thunder_router.scheduling.ticket import Ticket

__all__ = ["Arrival", "BodyFacts", "Driver"]

_LOG = logging.getLogger(__name__)
_UNREAD_TOKENS: Final = 1
"""Charged for a path whose body was not read: embeddings and the like leave no KV cache behind."""


class BodyFacts(PromptFacts, Protocol):
    """What the driver wants to know of a request's body."""

    @property
    def model(self) -> str | None: ...  # noqa: D102
    @property
    def identity(self) -> tuple[tuple[str, str], ...]: ...  # noqa: D102
    @property
    def final(self) -> bool: ...  # noqa: D102
    @property
    def docker_ids(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def prefix(self) -> int | None: ...  # noqa: D102


class Arrival(Protocol):
    """A request as the relay hands it in. `facts` None: its body was not read."""

    @property
    def facts(self) -> BodyFacts | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...  # noqa: D102
    @property
    def peer(self) -> str: ...  # noqa: D102


class Driver:
    """All pools of one router.

    Attributes:
        pools: In the order in which their first workers came; never empty.
    """

    def __init__(
        self,
        new_core: Callable[[str], Core],
        clock: Clock,
        *,
        weak_hints: Collection[WeakHint] = (),
        tenancy: Tenancy | None = None,
        strict_models: bool = False,
        on_worker_up: Callable[[Pool, int], None] = lambda _pool, _worker: None,
    ) -> None:
        """A driver without workers.

        Args:
            new_core: Makes an empty core for the pool of that name.
            clock: All time comes from here.
            weak_hints: Identity forms to accept beyond the usual ones.
            tenancy: Whom requests are accounted to. None: to nobody.
            strict_models: Refuse models that no worker serves even where all serve one.
            on_worker_up: Called when a worker of that pool has come up, before anything runs on it.
        """
        self.pools: list[Pool] = []
        self._new_core = new_core
        self._clock = clock
        self._weak_hints = weak_hints
        self._continuations = Continuations() if "previous_response_id" in weak_hints else None
        self._tenancy = tenancy
        self._strict_models = strict_models
        self._on_worker_up = on_worker_up
        self._estimator = TokenEstimator()
        self._by_model: dict[str, Pool] = {}
        self._by_worker: dict[int, Pool] = {}
        self._subscribers: list[Subscriber] = []
        self._next_request = 1
        self._sync_began_ms: int | None = None
        self._new_pool("default")

    def subscribe(self, subscriber: Subscriber) -> None:
        """`subscriber` hears what happens to programs from now on."""
        self._subscribers.append(subscriber)

    def close(self) -> None:
        """No timer runs on. Tickets can still be ended."""
        for pool in self.pools:
            pool.close()

    # --- for the relay -------------------------------------------------------------------------

    def arrive(self, arrival: Arrival) -> Ticket:
        """Takes a request in, and places it at once where that is possible.

        Raises:
            IdentityConflictError: header and body name different programs.
            RejectedError: a limit was reached.
            NoWorkerError: nobody serves it.
            UnknownModelError: no worker serves its model.
            OversizeError: it fits no worker.
        """
        facts = arrival.facts
        model = ""
        tokens = _UNREAD_TOKENS
        who = identity.NOBODY
        prefix = None
        if facts is not None:
            model = facts.model or ""
            who = self._who(arrival, facts)
            tokens = self._estimator.estimate(model, facts)
            prefix = facts.prefix
        pool = self._by_model.get(model) or self._pool_without_model(model, who.program)
        request = self._next_request
        self._next_request = request + 1
        ticket = Ticket(
            pool,
            request,
            program=who.program,
            group=who.group,
            final=who.final,
            model=model,
            facts=facts,
            prompt_tokens=tokens,
            prefix=prefix,
            now_ms=self._clock.now_ms(),
        )
        if self._tenancy is not None:
            ticket.tenant = self._tenancy.of(arrival.headers, who.group)
        ticket.continuations = self._continuations
        pool.arrive(ticket)
        if who.program is not None and facts is not None and self._subscribers:
            self._publish(Seen(who.program, facts.docker_ids, arrival.peer))
        return ticket

    def farewell(self, arrival: Arrival) -> tuple[str | None, bool]:
        """A final signal with nothing to generate from: ends the program.

        Returns:
            The program named, and whether it was known.

        Raises:
            IdentityConflictError: header and body name different programs.
        """
        facts = arrival.facts
        program = None if facts is None else self._who(arrival, facts).program
        return program, program is not None and self.release(program)

    def release(self, program: str) -> bool:
        """The program ended, in every pool. True if it was known anywhere."""
        known = False
        for pool in self.pools:
            known |= self._release(pool, program)
        return known

    # --- for the worker registry ---------------------------------------------------------------

    def worker_up(
        self,
        worker: int,
        rank: int,
        *,
        models: tuple[str, ...],
        device_tokens: int | None,
        host_tokens: int,
        write_back: bool,
        prefill_us_per_token: float,
        prefill_ns_per_token2: float,
        load_back_us_per_token: float,
        sessions: bool,
    ) -> None:
        """The rank serves, with this capacity; also a change of any of it."""
        if device_tokens is None:
            _LOG.warning(
                "capacity_unknown worker=%d rank=%d effect=requests pass through unscheduled",
                worker,
                rank,
            )
        pool = self._join(worker, models)
        fresh = pool.seats.get(worker, rank) is None
        pool.rank_up(
            worker,
            rank,
            SeatFacts(
                device_tokens=device_tokens,
                host_tokens=host_tokens,
                write_back=write_back,
                prefill_us_per_token=prefill_us_per_token,
                prefill_ns_per_token2=prefill_ns_per_token2,
                load_back_us_per_token=load_back_us_per_token,
                sessions=sessions,
            ),
        )
        if fresh:
            self._on_worker_up(pool, worker)

    def worker_unready(self, worker: int) -> None:
        """It takes nothing new for now; its programs keep their seats."""
        pool = self._by_worker.get(worker)
        if pool is not None:
            for seat in pool.seats.of(worker):
                seat.ready = False
            pool.tell("worker_unready", lambda core, now: core.worker_unready(worker, now))

    def worker_draining(self, worker: int) -> None:
        """Its programs leave as they turn."""
        pool = self._by_worker.get(worker)
        if pool is not None:
            for seat in pool.seats.of(worker):
                seat.draining = True
            pool.tell("worker_draining", lambda core, now: core.worker_draining(worker, now))

    def worker_down(self, worker: int) -> None:
        """Gone: its programs move, and so do the requests that wait for it."""
        pool = self._by_worker.pop(worker, None)
        if pool is not None:
            pool.seats.down(worker)
            pool.tell("worker_down", lambda core, now: core.worker_down(worker, now))

    def kv_flushed(self, worker: int) -> None:
        """It dropped its KV cache."""
        pool = self._by_worker.get(worker)
        if pool is not None:
            pool.tell("kv_flushed", lambda core, now: core.kv_flushed(worker, now))

    def weight_sync_begin(self, elapsed_ms: int = 0) -> None:
        """Admits nothing until the end, or until the core's watchdog ends it.

        Args:
            elapsed_ms: How long ago it began: an earlier run may have seen that.
        """
        self._sync_began_ms = max(0, self._clock.now_ms() - elapsed_ms)
        for pool in self.pools:
            pool.weight_sync_begin(self._sync_began_ms)

    def weight_sync_end(self) -> None:
        """Proceeds, with no KV anywhere. Harmless without a beginning."""
        self._sync_began_ms = None
        for pool in self.pools:
            pool.weight_sync_end()

    def weight_sync_ms(self) -> int | None:
        """How long ago the weight sync began that nobody has ended; None without one."""
        began_ms = self._sync_began_ms
        return None if began_ms is None else self._clock.now_ms() - began_ms

    # --- inside --------------------------------------------------------------------------------

    def _who(self, arrival: Arrival, facts: BodyFacts) -> Identity:
        return identity.name(
            facts.identity,
            arrival.headers,
            final=facts.final,
            weak_hints=self._weak_hints,
            answers=self._continuations or {},
        )

    def _pool_without_model(self, model: str, program: str | None) -> Pool:
        """Where a request goes whose model nobody is known to serve, or that names none.

        With one pool it goes there, unless settings are strict: SGLang does not look at the name.
        With several, a name that fits none must not be answered by another model.

        Raises:
            UnknownModelError: other models are served, and not this one.
        """
        alone = len(self.pools) == 1
        strict = self._strict_models and bool(self.pools[0].models)
        if model and (strict or not alone):
            raise UnknownModelError(f"no worker serves the model {model!r}")
        if alone:
            return self.pools[0]
        if program is not None:
            for pool in self.pools:
                core, now = pool.look()
                if core.program(program, now) is not None:
                    return pool
        return self.pools[0]

    def _join(self, worker: int, models: tuple[str, ...]) -> Pool:
        """The pool of this worker: where its models are served, else an unused one, else new."""
        pool = self._by_worker.get(worker)
        if pool is None:
            pool = next((self._by_model[m] for m in models if m in self._by_model), None)
        if pool is None:
            # A worker that cannot say what it serves is taken to serve what the others do.
            unused = self.pools if not models else [p for p in self.pools if not p.models]
            pool = unused[0] if unused else self._new_pool(models[0])
        self._by_worker[worker] = pool
        if models and not pool.models:
            pool.name = models[0]
        for model in models:
            pool.models.add(model)
            self._by_model.setdefault(model, pool)
        return pool

    def _new_pool(self, name: str) -> Pool:
        pool = Pool(
            name,
            lambda: self._new_core(name),
            self._clock,
            self._estimator,
            self._publish,
            self.release,
        )
        self.pools.append(pool)
        if self._sync_began_ms is not None:
            pool.weight_sync_begin(self._sync_began_ms)
        return pool

    def _release(self, pool: Pool, program: str) -> bool:
        core, now = pool.look()
        try:
            view = core.program(program, now)
        except Exception as error:
            _LOG.warning("core_failure pool=%s event=program error=%r", pool.name, error)
            view = None
        pool.forget(program)
        known = False

        def event(core: Core, now_ms: int) -> None:
            nonlocal known
            known = core.release(program, now_ms)

        pool.tell("release", event)
        if known:
            at = None if view is None else view.origin
            worker, rank = at if at is not None else (None, None)
            if view is not None and view.worker is not None:
                worker, rank = view.worker, view.rank
            self._publish(Released(program, worker, rank))
        return known

    def _publish(self, event: ProgramEvent) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                _LOG.exception("subscriber_failed event=%s", type(event).__name__)
