"""The boundary to the native scheduler: conversions, errors, threads, and its books."""

import contextlib
import threading
from collections.abc import Callable
from itertools import count
from typing import assert_never

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from thunder_router import errors
from thunder_router.config import SchedulingSettings
from thunder_router.scheduling.core import (
    Admit,
    Decision,
    Expire,
    Hold,
    Pause,
    Prepare,
    Reject,
    Restore,
    Scheduler,
    SchedulerConfig,
    new_scheduler,
    rejection,
    scheduler_config,
)


def scheduler(*, policy: str = "off", **settings: object) -> Scheduler:
    return new_scheduler(SchedulingSettings.model_validate({"policy": policy, **settings}))


def up(core: Scheduler, worker: int = 0, rank: int = 0, tokens: int | None = 1000) -> None:
    core.worker_up(
        worker,
        rank,
        device_tokens=tokens,
        host_tokens=0,
        write_back=False,
        prefill_us_per_token=50.0,
        prefill_ns_per_token2=0.1,
        load_back_us_per_token=2.0,
        sessions=False,
        now_ms=0,
    )


def arrive(core: Scheduler, request: int, program: str | None = "p", tokens: int = 100) -> None:
    core.arrive(request, program=program, prompt_tokens=tokens, now_ms=1)


def test_a_request_is_admitted_and_its_reason_is_a_sentence() -> None:
    core = scheduler()
    up(core, worker=3, rank=1)
    arrive(core, 7)
    [decision] = core.tick(1)
    match decision:
        case Admit(request, worker, rank):
            assert (request, worker, rank) == (7, 3, 1)
        case _:
            pytest.fail(f"not an admission: {decision}")
    assert "3.1" in decision.reason


def test_without_a_worker_a_request_is_held() -> None:
    core = scheduler()
    arrive(core, 7)
    [decision] = core.tick(1)
    assert isinstance(decision, Hold)
    assert decision.request == 7
    assert decision.reason.startswith("held")


def test_a_full_queue_rejects_with_a_kind_and_a_retry_time() -> None:
    core = scheduler(queue_limit=1)
    arrive(core, 1)
    arrive(core, 2)
    held, rejected = core.tick(1)
    assert isinstance(held, Hold)
    assert isinstance(rejected, Reject)
    assert (rejected.request, rejected.kind) == (2, "queue_full")
    assert rejected.retry_after_ms > 0
    error = rejection(rejected)
    assert isinstance(error, errors.RejectedError)
    assert error.retry_after_s == rejected.retry_after_ms / 1000


def test_a_program_is_shown_as_it_stands() -> None:
    core = scheduler()
    up(core, worker=2)
    core.arrive(1, program="p", group="g", prompt_tokens=100, prefix=9, now_ms=10)
    core.tick(10)
    core.finished(1, prompt_tokens=120, completion_tokens=30, tool="bash", now_ms=20)
    view = core.program("p", 50)
    assert view is not None
    assert (view.program, view.group, view.phase, view.status) == ("p", "g", "acting", "active")
    assert (view.worker, view.rank, view.context_tokens) == (2, 0, 150)
    assert (view.in_flight, view.waiting, view.steps, view.idle_ms) == (0, 0, 1, 30)
    assert [other.program for other in core.programs(50)] == ["p"]
    assert core.program("q", 50) is None


def test_a_worker_is_shown_as_it_stands() -> None:
    core = scheduler()
    up(core, worker=2, rank=1, tokens=5000)
    arrive(core, 1)
    core.tick(1)
    [view] = core.workers()
    assert (view.worker, view.rank, view.state) == (2, 1, "ready")
    assert (view.device_tokens, view.in_flight, view.programs) == (5000, 1, 1)
    assert core.counts() == {
        "programs": 1,
        "active": 1,
        "paused": 0,
        "waiting": 0,
        "in_flight": 1,
        "workers": 1,
    }


def test_an_unknown_capacity_stays_unknown() -> None:
    core = scheduler()
    up(core, tokens=None)
    [view] = core.workers()
    assert view.device_tokens is None
    assert view.free_tokens is None


def duplicate(core: Scheduler) -> None:
    arrive(core, 1)
    arrive(core, 1)


def answer_a_held_request(core: Scheduler) -> None:
    arrive(core, 1)
    core.tick(1)
    core.finished(1, prompt_tokens=1, completion_tokens=1, now_ms=1)


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda core: core.failed(9, 1), errors.UnknownRequestError, "9"),
        (lambda core: core.worker_down(9, 1), errors.UnknownWorkerError, "9"),
        (lambda core: core.pause("ghost", 1), errors.UnknownProgramError, "ghost"),
        (duplicate, errors.DuplicateRequestError, "request 1"),
        (answer_a_held_request, errors.TransitionError, "request 1"),
    ],
)
def test_what_makes_no_sense_raises_its_own_error_and_changes_nothing(
    act: Callable[[Scheduler], None], error: type[errors.SchedulerError], said: str
) -> None:
    core = scheduler()
    with pytest.raises(error, match=said):
        act(core)
    core.check()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"margin_min": 0.5}, "margin_min.*margin_max"),
        ({"aimd_lower_below": 0.9}, "aimd_lower_below"),
    ],
)
def test_settings_that_contradict_each_other_are_a_config_error(
    wrong: dict[str, float], said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        scheduler_config(SchedulingSettings.model_validate(wrong))


def test_an_unknown_policy_is_a_config_error() -> None:
    valid = SchedulingSettings()
    with pytest.raises(errors.ConfigError, match="magic"):
        scheduler_config(valid.model_copy(update={"policy": "magic"}))


def test_release_says_whether_the_program_was_known() -> None:
    core = scheduler()
    up(core)
    arrive(core, 1)
    core.tick(1)
    assert core.release("p", 2) is True
    assert core.release("p", 2) is False


@pytest.mark.parametrize(
    "act",
    [
        lambda core: core.arrive(-1, program=None, prompt_tokens=1, now_ms=1),
        lambda core: core.arrive(1, program=None, prompt_tokens=-1, now_ms=1),
        lambda core: core.tick(-1),
        lambda core: core.worker_down(2**40, 1),
    ],
)
def test_numbers_out_of_range_are_refused_at_the_boundary(act: Callable[[Scheduler], None]) -> None:
    core = scheduler()
    with pytest.raises(OverflowError):
        act(core)
    core.check()


@pytest.mark.parametrize("name", ["", "é" * 100, "\x00", "名前", "a b", "x" * 10_000])
def test_any_string_is_a_program(name: str) -> None:
    core = scheduler()
    up(core)
    core.arrive(1, program=name, prompt_tokens=1, now_ms=1)
    core.tick(1)
    view = core.program(name, 1)
    assert view is not None
    assert view.program == name


def test_decisions_are_one_union_with_no_case_left_over() -> None:
    def name(decision: Decision) -> str:
        match decision:
            case Admit() | Hold() | Reject():
                return "request"
            case Pause() | Restore() | Prepare() | Expire():
                return "program"
            case _:
                assert_never(decision)

    core = scheduler()
    arrive(core, 1)
    assert [name(decision) for decision in core.tick(1)] == ["request"]


@pytest.mark.parametrize("policy", ["off", "paper", "adaptive"])
def test_threads_may_share_one(policy: str) -> None:
    core = scheduler(policy=policy)
    for worker in range(4):
        up(core, worker, tokens=100_000)
    ids = count(1)
    failures: list[BaseException] = []

    def hammer(program: str) -> None:
        try:
            mine: set[int] = set()
            for _ in range(300):
                request = next(ids)
                mine.add(request)
                core.arrive(request, program=program, prompt_tokens=50, now_ms=1)
                core.tick(1)
                core.next_tick_ms(1)
                core.programs(1)
                core.cancelled(request, 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=hammer, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    core.check()
    counts = core.counts()
    assert (counts["waiting"], counts["in_flight"]) == (0, 0)


class Books(RuleBasedStateMachine):
    """Any order of events leaves the books right, and every request with one end."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.ids = count(1)
        self.placed: set[int] = set()
        self.held: set[int] = set()
        self.ended: set[int] = set()

    @initialize(policy=st.sampled_from(["off", "paper", "adaptive"]))
    def start(self, policy: str) -> None:
        self.core = scheduler(policy=policy, hold_limit_s=30.0, queue_limit=8)

    @rule(worker=st.integers(0, 2), rank=st.integers(0, 1), tokens=st.sampled_from([None, 0, 1000]))
    def worker_up(self, worker: int, rank: int, tokens: int | None) -> None:
        up(self.core, worker, rank, tokens)

    @rule(worker=st.integers(0, 2), how=st.sampled_from(["unready", "draining", "down"]))
    def worker_changes(self, worker: int, how: str) -> None:
        with contextlib.suppress(errors.UnknownWorkerError, errors.TransitionError):
            getattr(self.core, f"worker_{how}")(worker, self.now)

    @rule(
        target=requests,
        program=st.sampled_from([None, "a", "b", "c"]),
        tokens=st.integers(0, 1500),
        prefix=st.sampled_from([None, 1, 2]),
    )
    def arrive(self, program: str | None, tokens: int, prefix: int | None) -> int:
        request = next(self.ids)
        self.core.arrive(
            request, program=program, prompt_tokens=tokens, prefix=prefix, now_ms=self.now
        )
        self.held.add(request)
        self.decide()
        return request

    @rule(ms=st.integers(0, 40_000))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.decide()
        assert self.core.tick(self.now) == [], "a second tick at one instant decides nothing"

    @rule(request=requests, decoded=st.integers(0, 300))
    def progress(self, request: int, decoded: int) -> None:
        if request in self.placed:
            self.core.progress(request, decoded, self.now)

    @rule(request=consumes(requests), prompt=st.integers(0, 1500), completion=st.integers(0, 300))
    def finish(self, request: int, prompt: int, completion: int) -> None:
        if request in self.placed:
            self.core.finished(
                request, prompt_tokens=prompt, completion_tokens=completion, now_ms=self.now
            )
        elif request in self.held:
            self.core.failed(request, self.now)
        self.forget(request)

    @rule(request=consumes(requests))
    def cancel(self, request: int) -> None:
        if request not in self.ended:
            self.core.cancelled(request, self.now)
        self.forget(request)

    @rule(target=requests, request=consumes(requests))
    def bounce(self, request: int) -> object:
        if request not in self.placed:
            return multiple(request)
        self.core.bounced(request, self.now)
        self.placed.discard(request)
        self.held.add(request)
        self.decide()
        return multiple(request)

    @rule(program=st.sampled_from(["a", "b", "c"]))
    def release(self, program: str) -> None:
        self.core.release(program, self.now)
        self.decide()

    @rule(begin=st.booleans())
    def weight_sync(self, begin: bool) -> None:
        if begin:
            self.core.weight_sync_begin(self.now)
        else:
            self.core.weight_sync_end(self.now)

    def forget(self, request: int) -> None:
        self.placed.discard(request)
        self.held.discard(request)
        self.ended.add(request)

    def decide(self) -> None:
        for decision in self.core.tick(self.now):
            match decision:
                case Admit():
                    assert decision.request in self.held, "only what waits is admitted"
                    self.held.discard(decision.request)
                    self.placed.add(decision.request)
                case Reject():
                    assert decision.request in self.held, "only what waits is rejected"
                    self.forget(decision.request)
                case Hold():
                    assert decision.request in self.held
                case _:
                    pass

    @invariant()
    def books_are_right(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.check()
        counts = self.core.counts()
        assert counts["in_flight"] == len(self.placed)
        assert counts["waiting"] == len(self.held)


Books.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_any_order_of_events_leaves_the_books_right = Books.TestCase


def test_the_config_is_keyword_only() -> None:
    with pytest.raises(TypeError):
        SchedulerConfig("off")  # type: ignore[call-arg]
