"""The driver against the real core, with a clock turned by hand."""

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from scheduling_clock import HandClock
from thunder_router import errors
from thunder_router.config import SchedulingSettings
from thunder_router.scheduling.core import Decision, Scheduler, new_scheduler
from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.events import Expired, ProgramEvent, Released, Seen
from thunder_router.scheduling.recorder import Core, Recorder
from thunder_router.scheduling.ticket import Ticket


@dataclass(frozen=True)
class Facts:
    model: str | None = "m"
    identity: tuple[tuple[str, str], ...] = ()
    final: bool = False
    docker_ids: tuple[str, ...] = ()
    prefix: int | None = None
    text_bytes: int = 400
    text_chars: int = 400
    wide_chars: int = 0
    media_items: int = 0
    token_ids: int = 0
    messages: int = 1


@dataclass(frozen=True)
class Arrival:
    facts: Facts | None = field(default_factory=Facts)
    headers: Sequence[tuple[bytes, bytes]] = ()
    peer: str = "10.0.0.9"


def request(program: str | None = None, tokens: int = 100, **facts: object) -> Arrival:
    """A request of so many token ids, exactly."""
    named = () if program is None else (("program_id", program),)
    exact = {"token_ids": tokens, "text_bytes": 0, "text_chars": 0, "messages": 0}
    return Arrival(Facts(identity=named, **(exact | facts)))  # type: ignore[arg-type]


class House:
    """A driver with its clock, and what its subscribers heard."""

    def __init__(
        self,
        wrap: Callable[[Scheduler], Core] = lambda core: core,
        driver: Mapping[str, Any] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        chosen = SchedulingSettings.model_validate({"policy": "off", **settings})
        self.clock = HandClock()
        self.cores: list[Core] = []

        def new_core(_pool: str) -> Core:
            self.cores.append(wrap(new_scheduler(chosen)))
            return self.cores[-1]

        self.driver = Driver(new_core, self.clock, **driver)
        self.heard: list[ProgramEvent] = []
        self.driver.subscribe(self.heard.append)

    def up(
        self,
        worker: int = 0,
        rank: int = 0,
        tokens: int | None = 1000,
        models: tuple[str, ...] = ("m",),
        sessions: bool = False,
    ) -> None:
        self.driver.worker_up(
            worker,
            rank,
            models=models,
            device_tokens=tokens,
            host_tokens=0,
            write_back=False,
            prefill_us_per_token=50.0,
            prefill_ns_per_token2=0.1,
            load_back_us_per_token=1.0,
            sessions=sessions,
        )
        self.clock.advance()

    def arrive(self, program: str | None = None, tokens: int = 100, **facts: Any) -> Ticket:
        return self.driver.arrive(request(program, tokens, **facts))

    def counts(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for pool in self.driver.pools:
            for key, value in pool.look()[0].counts().items():
                total[key] = total.get(key, 0) + value
        return total

    def check(self) -> None:
        """Nothing is held or in flight, and all books are right."""
        self.clock.advance()
        for pool in self.driver.pools:
            pool.check()
        counts = self.counts()
        assert (counts["waiting"], counts["in_flight"]) == (0, 0)


def finish(
    ticket: Ticket, prompt: int = 100, completion: int = 10, tools: tuple[str, ...] = ()
) -> None:
    ticket.finished(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=None,
        cached_host_tokens=None,
        tools=tools,
    )


def where(ticket: Ticket) -> tuple[int, int] | None:
    return None if ticket.place is None else (ticket.place.worker, ticket.place.rank)


def test_a_request_is_placed_before_arrive_returns() -> None:
    house = House()
    house.up(worker=3, rank=1)
    ticket = house.arrive("p")
    assert where(ticket) == (3, 1)
    finish(ticket)
    house.check()


async def test_placed_answers_at_once_for_a_ticket_that_has_a_place() -> None:
    house = House()
    house.up()
    ticket = house.arrive("p")
    assert await ticket.placed() is ticket.place


def test_a_program_returns_to_its_worker() -> None:
    house = House()
    for worker in range(4):
        house.up(worker)
    first = house.arrive("p")
    home = where(first)
    others = [house.arrive(f"q{n}") for n in range(3)]
    finish(first)
    again = house.arrive("p")
    assert where(again) == home
    for ticket in (again, *others):
        finish(ticket)
    house.check()


def test_requests_without_a_program_spread_over_the_workers() -> None:
    house = House()
    house.up(0)
    house.up(1)
    tickets = [house.arrive() for _ in range(10)]
    assert sorted(map(str, map(where, tickets))) == ["(0, 0)"] * 5 + ["(1, 0)"] * 5
    assert house.counts()["programs"] == 0
    for ticket in tickets:
        ticket.cancelled()
    house.check()


async def test_a_held_request_is_placed_when_a_worker_comes_up() -> None:
    house = House()
    ticket = house.arrive("p")
    assert ticket.place is None
    waiting = asyncio.ensure_future(ticket.placed())
    await asyncio.sleep(0)
    assert not waiting.done()
    house.up(5)
    assert (await waiting).worker == 5


async def test_a_held_request_that_waits_too_long_is_rejected_with_a_retry_time() -> None:
    house = House(hold_limit_s=10.0)
    house.up()
    house.driver.weight_sync_begin()
    held = house.arrive("late")
    waiting = asyncio.ensure_future(held.placed())
    await asyncio.sleep(0)
    house.clock.advance(10_001)
    with pytest.raises(errors.RejectedError) as caught:
        await waiting
    assert caught.value.retry_after_s > 0
    house.check()


def test_a_full_queue_rejects_at_once() -> None:
    house = House(queue_limit=1)
    held = house.arrive("a")
    with pytest.raises(errors.RejectedError):
        house.arrive("b")
    held.cancelled()
    house.check()


def test_a_cancelled_held_request_leaves_no_trace() -> None:
    house = House()
    held = house.arrive("p")
    held.cancelled()
    house.up()
    newcomer = house.arrive("q")
    assert newcomer.place is not None
    finish(newcomer)
    house.check()
    assert house.driver.pools[0].look()[0].program("p", house.clock.now_ms()) is None


async def test_cancelling_the_wait_leaves_the_ticket_to_its_owner() -> None:
    house = House()
    ticket = house.arrive("p")
    waiting = asyncio.ensure_future(ticket.placed())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ticket.state == "held"
    again = asyncio.ensure_future(ticket.placed())
    await asyncio.sleep(0)
    house.up()
    assert (await again).worker == 0
    finish(ticket)
    house.check()


async def test_a_place_that_comes_as_the_client_leaves_is_given_back() -> None:
    house = House()
    ticket = house.arrive("p")
    waiting = asyncio.ensure_future(ticket.placed())
    await asyncio.sleep(0)
    house.up()
    waiting.cancel()
    await asyncio.wait([waiting])
    ticket.cancelled()
    house.check()


@pytest.mark.parametrize("first", ["finished", "failed", "cancelled"])
@pytest.mark.parametrize("second", ["finished", "failed", "cancelled", "bounced"])
def test_only_the_first_end_counts(first: str, second: str) -> None:
    house = House()
    house.up()
    ticket = house.arrive("p")
    for how in (first, second):
        finish(ticket) if how == "finished" else getattr(ticket, how)()
    house.check()
    assert house.driver.pools[0].counts["core_failure"] == 0


def test_a_bounced_request_goes_to_another_worker_and_only_there() -> None:
    house = House()
    house.up(0)
    house.up(1)
    ticket = house.arrive("p")
    refused = where(ticket)
    ticket.bounced()
    assert ticket.place is not None
    assert where(ticket) != refused
    finish(ticket)
    house.check()


async def test_a_request_that_every_worker_refused_is_told_so_at_once() -> None:
    house = House()
    house.up(0)
    ticket = house.arrive("p")
    ticket.bounced()
    with pytest.raises(errors.NoWorkerError):
        await ticket.placed()
    house.check()


def test_a_failed_request_keeps_its_programs_size() -> None:
    house = House()
    house.up()
    first = house.arrive("p")
    finish(first, prompt=300, completion=50)
    second = house.arrive("p", tokens=350)
    second.failed()
    view = house.driver.pools[0].look()[0].program("p", house.clock.now_ms())
    assert view is not None
    assert (view.context_tokens, view.in_flight, view.phase) == (350, 0, "acting")


def test_overlapping_requests_of_a_program_reason_until_the_last_ends() -> None:
    house = House()
    house.up()
    large, small = house.arrive("p", tokens=800), house.arrive("p", tokens=80)
    finish(small, prompt=80, completion=40)
    core, now = house.driver.pools[0].look()
    view = core.program("p", now)
    assert view is not None
    assert (view.phase, view.in_flight) == ("reasoning", 1)
    finish(large, prompt=800, completion=20)
    view = core.program("p", now)
    assert view is not None
    assert (view.phase, view.context_tokens) == ("acting", 820)


def test_requests_move_when_their_worker_goes_down() -> None:
    house = House()
    house.up(0)
    home = house.arrive("p")
    finish(home)
    house.driver.worker_unready(0)
    held = house.arrive("p")
    house.up(1)
    house.driver.worker_down(0)
    house.clock.advance(1000)
    assert where(held) == (1, 0)
    finish(held)
    house.check()


def test_a_weight_sync_holds_newcomers_until_its_end() -> None:
    house = House()
    house.up()
    house.driver.weight_sync_begin()
    house.clock.advance()
    held = house.arrive("p")
    assert held.place is None
    house.driver.weight_sync_end()
    house.clock.advance()
    assert held.place is not None
    finish(held)
    house.check()


def test_a_weight_sync_that_never_ends_is_ended_by_the_watchdog() -> None:
    house = House(weight_sync_timeout_s=300.0)
    house.up()
    house.driver.weight_sync_begin()
    held = house.arrive("p")
    house.clock.advance(299_000)
    assert held.place is None
    house.clock.advance(2_000)
    assert held.place is not None
    finish(held)
    house.check()


def test_an_unknown_capacity_serves_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    house = House(policy="adaptive")
    with caplog.at_level(logging.WARNING):
        house.up(tokens=None)
    assert "capacity_unknown worker=0 rank=0" in caplog.text
    tickets = [house.arrive(f"p{n}", tokens=10_000) for n in range(20)]
    assert all(ticket.place is not None for ticket in tickets)
    for ticket in tickets:
        finish(ticket, prompt=10_000)
    house.check()


def test_a_final_request_releases_its_program_when_it_ends() -> None:
    house = House()
    house.up()
    ticket = house.arrive("p", final=True)
    finish(ticket)
    assert house.heard[-1] == Released("p", 0, 0)
    house.check()
    assert house.counts()["programs"] == 0


def test_a_mere_farewell_releases_without_a_worker() -> None:
    house = House()
    house.up()
    finish(house.arrive("p"))
    assert house.driver.farewell(request("p", final=True)) == ("p", True)
    assert house.driver.farewell(request("p", final=True)) == ("p", False)
    assert house.driver.farewell(request(None, final=True)) == (None, False)


def test_one_release_ends_eight_parallel_requests_of_a_program() -> None:
    house = House(policy="adaptive")
    house.up(tokens=100_000)
    tickets = [house.arrive("group") for _ in range(8)]
    assert all(ticket.place is not None for ticket in tickets)
    assert house.driver.release("group")
    for ticket in tickets:
        finish(ticket)
    house.check()
    assert house.counts()["programs"] == 0


def test_a_silent_program_expires_and_subscribers_hear_of_it() -> None:
    house = House(idle_timeout_s=60.0)
    house.up()
    finish(house.arrive("p", docker_ids=("c1",)))
    assert house.heard == [Seen("p", ("c1",), "10.0.0.9")]
    house.clock.advance(61_000)
    assert house.heard[-1] == Expired("p")
    assert house.counts()["programs"] == 0


def test_a_subscriber_that_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.up()

    def broken(_event: ProgramEvent) -> None:
        raise RuntimeError("mine alone")

    house.driver.subscribe(broken)
    later: list[ProgramEvent] = []
    house.driver.subscribe(later.append)
    ticket = house.arrive("p")
    assert ticket.place is not None
    assert later == [Seen("p", (), "10.0.0.9")]
    assert "subscriber_failed event=Seen" in caplog.text


def test_workers_of_different_models_are_never_mixed() -> None:
    house = House()
    house.up(0, models=("glm",))
    house.up(1, models=("minimax", "alias"))
    assert where(house.arrive("p", model="glm")) == (0, 0)
    assert where(house.arrive("p", model="minimax")) == (1, 0)
    assert where(house.arrive("p", model="alias")) == (1, 0)
    with pytest.raises(errors.UnknownModelError, match="gpt-9"):
        house.arrive("p", model="gpt-9")
    assert [pool.name for pool in house.driver.pools] == ["glm", "minimax"]
    assert house.driver.release("p")


def test_with_one_model_any_name_is_served() -> None:
    house = House()
    house.up(0, models=("glm",))
    assert house.arrive("p", model="whatever").place is not None


def test_settings_may_be_strict_about_the_only_model() -> None:
    house = House(driver={"strict_models": True})
    house.up(0, models=())
    assert house.arrive("p", model="whatever").place is not None, "nobody said what is served"
    house.up(1, models=("glm",))
    assert house.arrive("q", model="glm").place is not None
    with pytest.raises(errors.UnknownModelError, match="whatever"):
        house.arrive("r", model="whatever")


def test_a_request_without_a_model_goes_where_its_program_is() -> None:
    house = House()
    house.up(0, models=("glm",))
    house.up(1, models=("minimax",))
    finish(house.arrive("p", model="minimax"))
    assert where(house.arrive("p", model=None)) == (1, 0)


def test_engines_that_take_sessions_are_told_the_program() -> None:
    house = House()
    house.up(sessions=True)
    tagged, plain = house.arrive("p"), house.arrive(None)
    assert tagged.place is not None
    assert plain.place is not None
    assert (tagged.place.session_id, plain.place.session_id) == ("p", None)


def test_a_body_that_was_not_read_belongs_to_no_program() -> None:
    house = House()
    house.up()
    ticket = house.driver.arrive(Arrival(None, [(b"x-program-id", b"p")]))
    assert ticket.place is not None
    assert house.counts()["programs"] == 0
    finish(ticket)
    house.check()


def test_contradicting_names_are_refused_before_anything_is_counted() -> None:
    house = House()
    house.up()
    wrong = Arrival(Facts(identity=(("program_id", "a"),)), [(b"x-program-id", b"b")])
    with pytest.raises(errors.IdentityConflictError):
        house.driver.arrive(wrong)
    house.check()


def test_a_programs_next_estimate_learns_from_its_last_turn() -> None:
    house = House(policy="adaptive")
    house.up(tokens=10**6)
    text: dict[str, Any] = {"token_ids": 0, "text_bytes": 40_000, "text_chars": 40_000}
    first = house.arrive("p", **text)
    guessed = first.prompt_tokens
    finish(first, prompt=guessed * 3)
    again = house.arrive("p", **text)
    assert abs(again.prompt_tokens / (guessed * 3) - 1) < 0.05


# --- the core may fail -------------------------------------------------------------------------


class Faulty(Recorder):
    """A core whose named methods raise, a number of times."""

    def __init__(self, core: Scheduler, faults: dict[str, tuple[int, Exception]]) -> None:
        super().__init__(core, lambda _record: None)
        self.faults = faults

    def _fail(self, name: str) -> None:
        times, error = self.faults.get(name, (0, RuntimeError()))
        if times > 0:
            self.faults[name] = (times - 1, error)
            raise error

    def arrive(self, request: int, **rest: Any) -> None:
        self._fail("arrive")
        super().arrive(request, **rest)

    def finished(self, request: int, **rest: Any) -> None:
        self._fail("finished")
        super().finished(request, **rest)

    def tick(self, now_ms: int) -> list[Decision]:
        self._fail("tick")
        return super().tick(now_ms)


def faulty(faults: dict[str, tuple[int, Exception]]) -> House:
    return House(wrap=lambda core: Faulty(core, faults))


@pytest.mark.parametrize("event", ["arrive", "tick"])
def test_when_the_core_fails_on_an_arrival_the_request_is_served_plainly(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults: dict[str, tuple[int, Exception]] = {}
    house = faulty(faults)
    house.up(0)
    house.up(1)
    faults[event] = (1, RuntimeError("a bug"))
    plain = house.arrive("p")
    assert plain.place is not None
    assert f"core_failure pool=default event={event}" in caplog.text
    scheduled = house.arrive("p")
    assert scheduled.place is not None
    finish(plain)
    finish(scheduled)
    house.check()
    assert house.driver.pools[0].counts["plain"] == 1


def test_a_broken_core_is_replaced_and_told_everything_again() -> None:
    faults: dict[str, tuple[int, Exception]] = {}
    house = faulty(faults)
    house.up(0)
    house.up(1)
    finish(house.arrive("old"), prompt=300)
    running = house.arrive("running")
    faults["finished"] = (1, errors.InvariantError("books"))
    finish(house.arrive("p"))
    assert len(house.cores) == 2
    counts = house.counts()
    assert counts["workers"] == 2
    core, now = house.driver.pools[0].look()
    old = core.program("old", now)
    assert old is not None
    assert old.context_tokens == 310
    finish(running)
    finish(house.arrive("old"))
    house.check()


def test_held_requests_survive_a_core_that_fails_to_tick() -> None:
    faults: dict[str, tuple[int, Exception]] = {}
    house = faulty(faults)
    held = [house.arrive(f"p{n}") for n in range(5)]
    faults["tick"] = (3, RuntimeError("a bug"))
    house.up(0)
    house.clock.advance(5_000)
    assert all(ticket.place is not None for ticket in held)
    for ticket in held:
        finish(ticket)
    house.check()


def test_a_core_that_always_fails_still_serves() -> None:
    house = faulty({"tick": (10**9, errors.InvariantError("books"))})
    house.up(0)
    house.up(1)
    tickets = [house.arrive(f"p{n}") for n in range(10)]
    assert sorted(map(str, map(where, tickets))) == ["(0, 0)"] * 5 + ["(1, 0)"] * 5
    for ticket in tickets:
        finish(ticket)
    house.clock.advance(10_000)
    assert all(seat.in_flight == 0 for seat in house.driver.pools[0].seats)


# --- anything in any order ---------------------------------------------------------------------


def something_happens(house: House, rng: random.Random) -> None:
    """To a worker, a program or the weights."""
    worker = rng.randrange(3)
    match rng.randrange(8):
        case 0 | 1:
            tokens = rng.choice([None, 1000, 5000])
            for rank in range(2):
                house.up(worker, rank, tokens)
        case 2:
            house.driver.worker_unready(worker)
        case 3:
            house.driver.worker_draining(worker)
        case 4:
            house.driver.worker_down(worker)
        case 5:
            house.driver.kv_flushed(worker)
        case 6:
            house.driver.release(rng.choice("abcdefgh"))
        case _:
            house.driver.weight_sync_begin()
            house.clock.advance(rng.randrange(3_000))
            house.driver.weight_sync_end()


@pytest.mark.parametrize("policy", ["off", "paper", "adaptive"])
@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_random_events_end_with_all_counts_exact(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    house = House(policy=policy, hold_limit_s=20.0, queue_limit=50)
    live: list[Ticket] = []
    for step in range(2_500):
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                program = rng.choice([None, *"abcdefgh"])
                with contextlib.suppress(
                    errors.RejectedError, errors.NoWorkerError, errors.OversizeError
                ):
                    live.append(house.arrive(program, rng.randrange(1, 400)))
            case 4 | 5 | 6 if live:
                ticket = live.pop(rng.randrange(len(live)))
                if ticket.place is None:
                    ticket.cancelled()
                else:
                    finish(ticket, rng.randrange(1, 500), rng.randrange(50), ("bash",))
            case 7 if live:
                live.pop(rng.randrange(len(live))).failed()
            case 8 if live:
                rng.choice(live).bounced()
            case 9 if live:
                rng.choice(live).progress(rng.randrange(400))
            case 10:
                something_happens(house, rng)
            case _:
                house.clock.advance(rng.randrange(3_000))
        live = [ticket for ticket in live if ticket.state != "ended"]
        if step % 50 == 0:
            for pool in house.driver.pools:
                pool.check()
    for ticket in live:
        ticket.cancelled()
    house.check()
    [pool] = house.driver.pools
    assert pool.counts["core_failure"] == 0
    assert pool.counts["plain"] == 0


async def test_nothing_is_left_behind_by_requests_that_were_never_held() -> None:
    house = House()
    house.up()
    gc.collect()
    before = sum(isinstance(thing, (asyncio.Future, Ticket)) for thing in gc.get_objects())
    for _ in range(100):
        finish(house.arrive("p"))
    gc.collect()
    after = sum(isinstance(thing, (asyncio.Future, Ticket)) for thing in gc.get_objects())
    assert after == before
