"""Watches one worker, from the moment it is added until it is gone.

A few small loops per worker: one finds out what it is, the others ask for loads, readiness, gauges
and the weight version, each at its own pace and with its own time-out, so that nothing slow here
delays anything else, here or on another worker. Whatever comes back is put into the report; then
the sign of the moment is looked up in the table of `life`, and the scheduler hears what the table
says.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConnectError, UpstreamError
from thunder_router.workers.breaker import Breaker, Circuit, Outcome
from thunder_router.workers.compose import Seen, compose
from thunder_router.workers.departure import Departure
from thunder_router.workers.endpoint import endpoint_of
from thunder_router.workers.evidence import idle_at, newest_snapshot, same_engine, work_done
from thunder_router.workers.feeds import FollowerMaker
from thunder_router.workers.health import Limits, Vitals
from thunder_router.workers.life import Effect, Sign, State, next_state
from thunder_router.workers.observations import Facts
from thunder_router.workers.offer import Offer, SchedulerEvents, offers_of
from thunder_router.workers.probe import Door, Found, probe
from thunder_router.workers.report import Engine, Source, WorkerReport

__all__ = ["Watch"]

log = logging.getLogger(__name__)

SPACING_S = 0.02
"""Many workers are asked less often each: a question costs the router up to a millisecond, and no
more than fifty a second of each kind may go out."""

EMPTIED_ONCE_S = 1.0
"""Ranks that say so within this were emptied by the same flush."""


class Watch:
    """One worker's life. Everything runs in one event loop; nothing here blocks it."""

    def __init__(
        self,
        worker: int,
        entry: WorkerEntry,
        door: Door,
        settings: WorkerSettings,
        events: SchedulerEvents,
        tls: ssl.SSLContext | None,
        crowd: Callable[[], int],
        follower: FollowerMaker | None = None,
    ) -> None:
        """Knows nothing of it yet; `crowd` says how many workers are watched in all.

        `follower` makes what listens to what the worker publishes; without one, it is only asked.
        """
        self.id = worker
        self.entry = entry
        self._whole = settings.complete(entry)
        self.door = door
        self.state = State.PROBING
        clock = door.clock
        self.since_s = clock.now_s()
        self.report: WorkerReport | None = None
        self.problem: str | None = None
        self.endpoint = endpoint_of(door.url, door.key, None, tls)
        self.breaker = Breaker(failures=settings.breaker_failures, open_s=settings.breaker_open_s)
        self._settings = settings
        self._events = events
        self._clock = clock
        self._tls = tls
        self._crowd = crowd
        self._follower = follower(worker, self._emptied) if follower else None
        self._emptied_at_s = 0.0
        limits = Limits(settings.down_after_s, settings.hung_after_s, settings.unready_limit_s)
        self._vitals = Vitals(limits, clock.now_s())
        self._found: Found | None = None
        self._seen = Seen()
        self._offers: tuple[Offer, ...] = ()
        self._announced = False
        self._probe_now = asyncio.Event()
        self._gone = asyncio.Event()
        self._removed = False
        self._departure = Departure(settings.drain_limit_s)

    # What the registry does with it.

    async def run(self) -> None:
        """Watches until the worker is gone or the task is cancelled."""
        pace = self._settings
        loops = [
            asyncio.create_task(self._probing()),
            asyncio.create_task(self._repeat(pace.loads_interval_s, self._ask_loads)),
            asyncio.create_task(
                self._repeat(pace.ready_interval_s, partial(self._confirm, Source.READY))
            ),
            asyncio.create_task(
                self._repeat(pace.metrics_interval_s, partial(self._confirm, Source.HEALTH))
            ),
            asyncio.create_task(self._awaiting()),
            asyncio.create_task(self._repeat(pace.ready_interval_s, self._probe_circuit)),
            asyncio.create_task(self._repeat(pace.metrics_interval_s, self._ask_gauges)),
            asyncio.create_task(self._repeat(pace.metrics_interval_s, self._ask_model)),
        ]
        try:
            await self._gone.wait()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            if self._follower is not None:
                await self._follower.aclose()

    def change(self, entry: WorkerEntry, door: Door) -> None:
        """The operator changed its settings: what is known of it is asked anew."""
        self.entry, self.door = entry, door
        self._whole = self._settings.complete(entry)
        self.look_again()
        if self.report is not None:
            self._compose()

    def leave(self) -> None:
        """Drain, then go. Goes at once where nothing can be running."""
        if self.state in (State.PROBING, State.UNHEALTHY):
            self.remove()
        else:
            self._departure.ask(self._clock.now_s())
            self.step()

    def stay(self) -> None:
        """Takes a `leave` back."""
        self._departure.take_back()
        self.step()

    def remove(self) -> None:
        """Go at once, whatever runs there."""
        self._removed = True
        self.step()

    @property
    def leaving(self) -> bool:
        """An operator asked it to leave."""
        return self._departure.asked

    def answered(self) -> None:
        """The relay got a fair answer from it. Cheap: this is once per request."""
        self._vitals.answered(self._clock.now_s())
        if self.breaker.touched:
            self.breaker.note(Outcome.SUCCESS, self._clock.now_s())
            self.step()

    def faulted(self, *, unreachable: bool) -> None:
        """The relay saw it fail. One it could not even reach is looked at now."""
        self.breaker.note(Outcome.FAILURE, self._clock.now_s())
        if unreachable:
            self.look_again()
        self.step()

    def look_again(self) -> None:
        """Find out now what it is, rather than at the next turn."""
        self._probe_now.set()

    def flushed(self) -> None:
        """Its KV cache is empty."""
        if self._announced:
            self._events.kv_flushed(self.id)

    def residency(self) -> tuple[object, ...]:
        """Whose KV its ranks hold, as far as they publish that."""
        return self._follower.residency() if self._follower else ()

    def _restarted(self) -> None:
        self.breaker.close()
        self.flushed()
        if self._follower is not None:
            self._follower.restart()

    def _emptied(self) -> None:
        """A rank says that its cache is empty; the ranks of one flush say so one after another."""
        last_s, self._emptied_at_s = self._emptied_at_s, self._clock.now_s()
        if self._emptied_at_s - last_s >= EMPTIED_ONCE_S:
            self.flushed()

    # The loops.

    async def _repeat(self, interval_s: float, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(max(interval_s, self._crowd() * SPACING_S))
            if self._found is not None:
                await self._carefully(ask)

    async def _probing(self) -> None:
        while True:
            if self._found is None or not self._found.complete or self._probe_now.is_set():
                self._probe_now.clear()
                await self._carefully(self._probe)
            rest = asyncio.ensure_future(self._clock.sleep(self._settings.retry_interval_s))
            wake = asyncio.ensure_future(self._probe_now.wait())
            try:
                await asyncio.wait({rest, wake}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                rest.cancel()
                wake.cancel()

    async def _carefully(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Asks, and takes every way in which it may fail for what it says about the worker."""
        try:
            await ask()
        except ConnectError as error:
            self._vitals.refused(self._clock.now_s())
            self._found = None
            self.problem = f"nobody listens there ({error})"
        except TimeoutError as error:
            self.problem = str(error)
        except UpstreamError as error:
            self.problem = f"the answer broke off ({error})"
        except Exception:
            log.exception("worker=%d event=watch_failed", self.id)
        self.step()

    async def _probe(self) -> None:
        was_absent = self._vitals.absent
        found = await probe(self.door)
        now_s = self._clock.now_s()
        self._vitals.answered(now_s)
        self.problem = found.problem
        if found.problem is not None:
            self._vitals.readiness(False, now_s)
            return
        self._vitals.readiness(found.seen.ready is None or found.seen.ready.value, now_s)
        if was_absent:
            self.breaker.close()
        known_before = self.report is not None
        same = same_engine(self._seen, found.seen)
        self._found, self._seen = found, found.seen
        if self._follower is not None and found.seen.facts is not None:
            self._follower.follow(found.seen.facts.value.feeds, self.endpoint.host)
        self._compose()
        # A listener that was gone and came back is another run, unless it can prove the contrary.
        if known_before and (same is False or (same is None and was_absent)):
            log.info("worker=%d event=restarted", self.id)
            self.step()
            self._restarted()

    async def _ask_loads(self) -> None:
        if self._found is None:
            return
        published = self._follower.loads() if self._follower else None
        if published is not None and self._vitals.trusted:
            self._see(replace(self._seen, loads=published))
            return
        if self._found.loads is None:
            return
        _, reading = await self.door.loads(self._found.loads)
        self._vitals.answered(self._clock.now_s())
        if reading is None:
            self._found = replace(self._found, complete=False)  # so it is probed again, in time
            return
        taken_at_s = newest_snapshot(reading.value)
        if taken_at_s is not None:
            self._vitals.snapshot(taken_at_s, work_done(reading.value))
        self._see(replace(self._seen, loads=reading))

    async def _awaiting(self) -> None:
        """Asks one that takes no work, as often as one that is away, until it does."""
        while True:
            await self._clock.sleep(self._settings.retry_interval_s)
            found = self._found
            if found is not None and found.readiness is not None and not self._vitals.trusted:
                await self._carefully(partial(self._ask_readiness, found.readiness))

    async def _confirm(self, source: Source) -> None:
        found = self._found
        if found is not None and found.readiness is source and self._vitals.trusted:
            await self._ask_readiness(source)

    async def _ask_readiness(self, source: Source) -> None:
        reading = await self.door.readiness(source)
        if reading is not None:
            self._vitals.answered(reading.at_s)
            self._vitals.readiness(reading.value, reading.at_s)
            self._see(replace(self._seen, ready=reading))

    async def _ask_gauges(self) -> None:
        if self.report is None or self._seen.gauges is None:
            return
        _, reading = await self.door.gauges(self.report.engine)
        self._vitals.answered(self._clock.now_s())
        if reading is not None:
            self._see(replace(self._seen, gauges=reading))

    async def _ask_model(self) -> None:
        if self._seen.model_facts is None:
            return
        reading = await self.door.model_facts()
        self._vitals.answered(self._clock.now_s())
        if reading is not None:
            self._see(replace(self._seen, model_facts=reading))

    async def _probe_circuit(self) -> None:
        if not self.breaker.take_probe(self._clock.now_s()):
            return
        outcome = Outcome.FAILURE
        try:
            sglang = self.report is not None and self.report.engine is not Engine.VLLM
            answer = await self.door.get("/health_generate" if sglang else "/health")
            if answer.ok:
                outcome = Outcome.SUCCESS
            elif answer.status < 500 or answer.status == 503:
                outcome = Outcome.NEUTRAL
        except TimeoutError:
            outcome = Outcome.NEUTRAL  # busy is not broken
        finally:
            self.breaker.probed(outcome, self._clock.now_s())

    # What it adds up to.

    def _see(self, seen: Seen) -> None:
        """Takes one new answer in. A counter that went back means a start behind our back."""
        if same_engine(self._seen, seen) is False:
            # Its facts are of the last run: without them, the probe will not flush again.
            seen = replace(seen, facts=seen.facts and replace(seen.facts, value=_nameless(seen)))
            self.look_again()
            self._restarted()
        self._seen = seen
        self._compose()

    def _compose(self) -> None:
        """Takes the report anew, and tells the scheduler what changed in it for it."""
        before, self.report = self.report, compose(self._seen, self._whole)
        endpoint = endpoint_of(self.door.url, self.door.key, self.report, self._tls)
        if endpoint != self.endpoint:
            self.endpoint = endpoint
        self._departure.look(idle_at(self.report))
        old = before.weight_version if before else None
        new = self.report.weight_version
        if old is not None and new is not None and old.value != new.value:
            log.info("worker=%d event=weights_changed version=%s", self.id, new.value)
            self.flushed()
        offers = offers_of(self.report, self._whole)
        changed = offers != self._offers
        shrunk = len(offers) < len(self._offers)
        self._offers = offers
        if self.state is State.READY and changed:
            if shrunk:
                self._events.worker_down(self.id)
            for offer in offers:
                offer.announce(self.id, self._events)

    def step(self) -> None:
        """Looks at the worker as it is now, and lets the table of `life` decide."""
        if self.leaving and (
            self.state is State.UNHEALTHY or self._departure.due(self._clock.now_s())
        ):
            self._removed = True
        state, effect = next_state(self.state, self._sign())
        if state is not self.state:
            log.info("worker=%d event=state from=%s to=%s", self.id, self.state, state)
            self.state, self.since_s = state, self._clock.now_s()
        match effect:
            case Effect.UP:
                self._announced = True
                for offer in self._offers:
                    offer.announce(self.id, self._events)
            case Effect.UNREADY:
                self._events.worker_unready(self.id)
            case Effect.DRAINING:
                self._events.worker_draining(self.id)
            case Effect.DOWN:
                self._announced = False
                self._events.worker_down(self.id)
            case Effect.NOTHING:
                pass
        if self.state is State.GONE:
            self._gone.set()

    def _sign(self) -> Sign:
        if self._removed:
            return Sign.REMOVED
        sign = self._vitals.sign(self._clock.now_s())
        if sign is Sign.LOST:
            return sign
        if self.leaving:
            return Sign.LEAVING
        if sign is Sign.SERVING and (
            self._found is None or self.breaker.circuit is not Circuit.CLOSED
        ):
            return Sign.NOT_READY
        return sign


def _nameless(seen: Seen) -> Facts:
    """The facts of `seen`, without the name of the run that they are of."""
    return replace(seen.facts.value if seen.facts else Facts(Engine.UNKNOWN), incarnation=None)
