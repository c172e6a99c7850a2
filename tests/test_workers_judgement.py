"""The small pure parts: the table of states, vitals, the breaker, HiCache arithmetic, costs."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_worker import CAPTURES
from thunder_router.config import WorkerEntry
from thunder_router.workers import sglang
from thunder_router.workers.breaker import Breaker, Circuit, Outcome
from thunder_router.workers.compose import Seen, compose
from thunder_router.workers.costs import Costs, costs_of
from thunder_router.workers.health import Limits, Vitals
from thunder_router.workers.hicache import (
    bytes_per_token,
    host_tokens_by_ratio,
    host_tokens_by_size,
    reach_tokens,
)
from thunder_router.workers.life import TRANSITIONS, Effect, Sign, State, next_state
from thunder_router.workers.offer import offers_of
from thunder_router.workers.report import (
    ModelReport,
    Reading,
    Source,
    WorkerReport,
    WritePolicy,
)

LIMITS = Limits(down_after_s=10, hung_after_s=30, unready_limit_s=300)
ENTRY = WorkerEntry(url="http://w")


# --- the table ---------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_state_but_gone_under_every_sign() -> None:
    rows = set(itertools.product(set(State) - {State.GONE}, Sign))
    assert set(TRANSITIONS) == rows


def test_nothing_leaves_gone() -> None:
    assert {next_state(State.GONE, sign) for sign in Sign} == {(State.GONE, Effect.NOTHING)}


@given(st.lists(st.sampled_from(list(Sign)), max_size=40))
def test_the_scheduler_can_follow_any_life(signs: list[Sign]) -> None:
    """It hears `up` first, nothing but `up` after `down`, and nothing twice in a row."""
    state, known, last = State.PROBING, False, Effect.NOTHING
    for sign in signs:
        state, effect = next_state(state, sign)
        if effect is Effect.NOTHING:
            continue
        assert known or effect is Effect.UP
        assert effect is not last
        known, last = effect is not Effect.DOWN, effect
    assert known == (state in (State.READY, State.UNREADY, State.DRAINING))


# --- vitals ------------------------------------------------------------------------------------


def test_a_refused_connection_is_a_flap_until_it_lasts() -> None:
    vitals = Vitals(LIMITS, 0)
    vitals.refused(1)
    assert vitals.sign(10.9) is Sign.NOT_READY
    assert vitals.sign(11) is Sign.LOST
    vitals.answered(12)
    assert vitals.sign(12) is Sign.SERVING


def test_silence_is_taken_for_death_only_after_long() -> None:
    vitals = Vitals(LIMITS, 0)
    assert vitals.sign(9.9) is Sign.SERVING
    assert vitals.sign(10) is Sign.NOT_READY
    assert vitals.sign(30) is Sign.LOST


def test_work_that_goes_on_after_not_ready_means_leaving() -> None:
    vitals = Vitals(LIMITS, 0)
    vitals.readiness(False, 1)
    for quarter in range(12):
        vitals.snapshot(500 + quarter / 4, (quarter,))
        vitals.answered(1 + quarter / 4)
    assert vitals.sign(4) is Sign.LEAVING
    vitals.refused(5)
    assert vitals.sign(5) is Sign.LOST


@pytest.mark.parametrize(
    "snapshots",
    [
        pytest.param([(500.0, (7,))] * 12, id="frozen"),
        pytest.param([(500.0 + n / 4, None) for n in range(40)], id="idle and fresh"),
        pytest.param([(500.0 + n / 4, (7,)) for n in range(40)], id="fresh, and nothing is done"),
        pytest.param(
            [(500.0 + n / 4, (n,) if n % 2 else None) for n in range(40)], id="idle in between"
        ),
        pytest.param([(500.0, (7,)), (501.0, (8,)), (501.25, None)], id="one late snapshot"),
        pytest.param(
            [(500.0, (7,)), (620.0, (8,)), (620.25, (9,))], id="continued, readiness not asked yet"
        ),
        pytest.param([(500.0 - n, (n,)) for n in range(9)], id="a clock set back"),
    ],
)
def test_work_that_stands_still_or_jumps_means_paused(
    snapshots: list[tuple[float, tuple[int, ...] | None]],
) -> None:
    vitals = Vitals(LIMITS, 0)
    vitals.readiness(False, 1)
    for taken_at_s, work in snapshots:
        vitals.snapshot(taken_at_s, work)
    vitals.answered(4)
    assert vitals.sign(4) is Sign.NOT_READY
    vitals.readiness(True, 5)
    assert vitals.sign(5) is Sign.SERVING


# --- the breaker -------------------------------------------------------------------------------


class NaiveBreaker:
    """The same rules, recomputed from the whole history at every question."""

    def __init__(self, failures: int, open_s: float) -> None:
        self.failures, self.open_s = failures, open_s
        self.history: list[tuple[str, float]] = []

    def state(self) -> tuple[Circuit, float, float]:
        in_a_row, opened, wait, probing = 0, -1.0, self.open_s, False
        for what, at in self.history:
            if what in ("success", "probe success"):
                in_a_row, opened, wait, probing = 0, -1.0, self.open_s, False
            elif what == "failure":
                in_a_row += 1
                if opened < 0 and in_a_row >= self.failures:
                    opened = at
            elif what == "probe":
                probing = True
            elif what in ("probe failure", "probe neutral"):
                opened, probing = at, False
                if what == "probe failure":
                    wait = min(60.0, wait * 2)
        if opened < 0:
            return Circuit.CLOSED, opened, wait
        return (Circuit.HALF_OPEN if probing else Circuit.OPEN), opened, wait

    def take_probe(self, now_s: float) -> bool:
        circuit, opened, wait = self.state()
        taken = circuit is Circuit.OPEN and now_s - opened >= wait
        if taken:
            self.history.append(("probe", now_s))
        return taken


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["success", "failure", "failure", "neutral", "take",
             "probe success", "probe failure", "probe neutral"]
        ),
        st.integers(0, 20),
    ),
    max_size=60,
)  # fmt: skip


@given(STEPS, st.integers(1, 4))
def test_the_breaker_agrees_with_a_naive_one(steps: list[tuple[str, int]], failures: int) -> None:
    breaker, naive = Breaker(failures=failures, open_s=5), NaiveBreaker(failures, 5)
    now_s = 0.0
    for what, wait in steps:
        now_s += wait
        if what == "take":
            assert breaker.take_probe(now_s) == naive.take_probe(now_s)
        elif what.startswith("probe"):
            if naive.state()[0] is Circuit.HALF_OPEN:
                naive.history.append((what, now_s))
            breaker.probed(Outcome(what.removeprefix("probe ")), now_s)
        else:
            breaker.note(Outcome(what), now_s)
            naive.history.append((what, now_s))
        assert breaker.circuit is naive.state()[0]


def test_a_hundred_refusals_leave_the_circuit_closed() -> None:
    breaker = Breaker(failures=1, open_s=5)
    for now_s in range(100):
        breaker.note(Outcome.NEUTRAL, now_s)
    assert breaker.circuit is Circuit.CLOSED


def test_half_open_lets_exactly_one_probe_through() -> None:
    breaker = Breaker(failures=1, open_s=5)
    breaker.note(Outcome.FAILURE, 0)
    assert [breaker.take_probe(now_s) for now_s in (4.9, 5, 5, 100)] == [False, True, False, False]


# --- HiCache -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "page", "measured"), [(2, 1, 8193), (2, 16, 8208), (1.2, 1, 4916)]
)
def test_the_host_tier_by_ratio_is_what_real_engines_measured(
    ratio: float, page: int, measured: int
) -> None:
    assert host_tokens_by_ratio(4096, ratio, page) == measured


def test_the_host_tier_by_size_is_what_a_real_engine_measured() -> None:
    each = bytes_per_token(0.00196075439453125, 4096, 16)
    assert each == 512
    assert host_tokens_by_size(1, each, 16) == 1_953_136


@pytest.mark.parametrize(
    ("policy", "host", "reach"),
    [
        (WritePolicy.WRITE_THROUGH, 8193, 8193),
        (WritePolicy.WRITE_THROUGH, 100, 4096),
        (WritePolicy.WRITE_BACK, 4916, 9012),
        (WritePolicy.SELECTIVE, 8193, 4096),
        (None, 0, 4096),
        (None, 8193, None),
    ],
)
def test_reach_follows_the_write_policy(
    policy: WritePolicy | None, host: int, reach: int | None
) -> None:
    assert reach_tokens(4096, host, policy) == reach


def hicache_worker(metrics: str | None, **flags: object) -> WorkerReport:
    """The recorded HiCache worker with other flags, and with `/metrics` of a folder or without."""
    folder = CAPTURES / "sglang-0.5.23-hicache-write_through"
    info = json.loads((folder / "server_info.body").read_bytes()) | flags
    facts = sglang.facts(json.dumps(info).encode())
    assert facts is not None
    gauges = None
    if metrics is not None:
        gauges = sglang.gauges((CAPTURES / metrics / "metrics.body").read_bytes())
    return compose(
        Seen(
            facts=Reading(facts, Source.SERVER_INFO, 1.0),
            gauges=Reading(gauges, Source.METRICS, 1.0) if gauges else None,
        ),
        ENTRY,
    )


def test_write_back_adds_the_host_tier_that_metrics_show() -> None:
    report = hicache_worker("sglang-0.5.23-hicache-write_back", hicache_write_policy="write_back")
    assert report.ranks[0].host_tokens == Reading(4916, Source.METRICS, 1.0)
    assert report.ranks[0].reach_tokens == Reading(4096 + 4916, Source.COMPUTED, 1.0)
    (offer,) = offers_of(report, ENTRY)
    assert (offer.host_tokens, offer.write_back) == (4916, True)


def test_without_metrics_the_host_tier_follows_from_the_ratio() -> None:
    report = hicache_worker(None)
    assert report.ranks[0].host_tokens == Reading(8193, Source.COMPUTED, 1.0)


def test_a_size_overrides_the_ratio() -> None:
    report = hicache_worker(None, hicache_size=1, page_size=16)
    host = report.ranks[0].host_tokens
    assert host is not None
    assert 1_900_000 < host.value < 2_100_000  # /server_info rounds the pool to a megabyte


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        ({"enable_hierarchical_cache": False}, 0),
        ({"hicache_host_memory_mode": "buffer_only"}, 0),
        ({"enable_hierarchical_cache": None}, None),
        ({"hicache_ratio": None}, None),
    ],
)
def test_no_host_tier_and_an_unknown_one_differ(
    flags: dict[str, object], tokens: int | None
) -> None:
    host = hicache_worker(None, **flags).ranks[0].host_tokens
    assert (host and host.value) == tokens


def test_a_selective_host_tier_is_not_counted_on() -> None:
    report = hicache_worker(None, hicache_write_policy="write_through_selective")
    assert offers_of(report, ENTRY)[0].host_tokens == 0


# --- costs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "costs"),
    [
        ("MiniMaxAI/MiniMax-M2.5", Costs(20.0, 0.38, 0.7)),
        ("zai-org/GLM-4.6-FP8", Costs(50.0, 1.0, 1.05)),
        ("Qwen/Qwen3-235B-A22B", Costs(36.0, 0.7, 1.07)),
        ("somebody/else", Costs(50.0, 1.0, 1.05)),
    ],
)
def test_costs_follow_the_model_family(model: str, costs: Costs) -> None:
    assert costs_of(WorkerReport(models=(ModelReport(model, None),)), ENTRY) == costs


def test_an_unknown_family_costs_what_the_engine_measured_itself() -> None:
    line = '{"loads":[{"dp_rank":0,"total_prefill_uncached_tokens":%d,"total_prefill_busy_us":%d}]}'
    few, many = (sglang.loads((line % (n, 12 * n)).encode()) for n in (49_999, 50_000))
    assert few is not None
    assert many is not None
    reports = [compose(Seen(loads=Reading(n, Source.LOADS, 0.0)), ENTRY) for n in (few, many)]
    costs = [costs_of(report, ENTRY).prefill_us_per_token for report in reports]
    assert costs == [50.0, pytest.approx(12, rel=0.13)]


def test_a_measured_cost_that_creeps_changes_in_steps() -> None:
    def cost(us: float) -> float:
        report = WorkerReport(prefill_us_per_token=Reading(us, Source.LOADS, 0.0))
        return costs_of(report, ENTRY).prefill_us_per_token

    assert len({cost(100 + creep / 100) for creep in range(300)}) == 1
    assert cost(200) != cost(100)


def test_a_known_family_keeps_its_constants_whatever_the_engine_measured() -> None:
    measured = Reading(12.0, Source.LOADS, 0.0)
    report = WorkerReport(models=(ModelReport("GLM-4.7", None),), prefill_us_per_token=measured)
    assert costs_of(report, ENTRY) == Costs(50.0, 1.0, 1.05)


def test_ranks_with_different_pools_keep_their_own_capacity() -> None:
    states = [{"memory_usage": {"token_capacity": 500}}, {"memory_usage": {}}]
    info = {"max_total_num_tokens": 400, "dp_size": 2, "internal_states": states}
    facts = sglang.facts(json.dumps(info).encode())
    assert facts is not None
    assert facts.device_tokens == (500, 400)


# --- readings ----------------------------------------------------------------------------------


def test_a_load_snapshot_that_was_old_when_told_is_stale() -> None:
    body = (
        b'{"timestamp":"1970-01-01T00:01:40+00:00","loads":[{"timestamp":%f,"num_running_reqs":1}]}'
    )
    fresh, old = (sglang.loads(body % at_s) for at_s in (99.0, 97.0))
    assert fresh is not None
    assert old is not None
    stale = []
    for lines in (fresh, old):
        running = compose(Seen(loads=Reading(lines, Source.LOADS, 5.0)), ENTRY).ranks[0].running
        assert running is not None
        stale.append(running.stale)
    assert stale == [False, True]


def test_with_priorities_a_gauge_counts_once_and_not_per_priority() -> None:
    body = (CAPTURES / "sglang-0.5.23-full" / "metrics_overload.body").read_bytes()
    assert sglang.gauges(body).ranks[0].waiting == 4
    assert sglang.gauges(body).ranks[0].running == 1


def test_a_gauge_is_that_of_the_first_shard_over_all_priorities() -> None:
    body = b"""
sglang:num_queue_reqs{priority="7",tp_rank="0",pp_rank="0"} 3
sglang:num_queue_reqs{priority="",tp_rank="1",pp_rank="0"} 8
sglang:num_queue_reqs{priority="",tp_rank="0",pp_rank="0"} 4
sglang:num_queue_reqs{priority="",tp_rank="0",pp_rank="1"} 9
sglang:num_queue_reqs{dp_rank="1",tp_rank="0"} 1
"""
    ranks = sglang.gauges(body).ranks
    assert {rank: gauges.waiting for rank, gauges in ranks.items()} == {0: 4, 1: 1}


def test_the_older_load_page_counts_waiting_requests_in_and_their_prompts_too() -> None:
    lines = sglang.get_load(
        b'[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":900},'
        b'{"dp_rank":1,"num_reqs":3,"num_waiting_reqs":0,"num_tokens":700}]'
    )
    assert lines is not None
    assert [(n.running, n.waiting, n.in_flight_tokens) for n in lines] == [
        (3, 2, None),
        (3, 0, 700),
    ]


def test_a_readings_age_is_counted_from_when_it_was_read() -> None:
    assert Reading(1, Source.LOADS, 10.0).age_s(12.5) == 2.5
    assert Reading(1, Source.LOADS, 10.0).age_s(9.0) == 0.0


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.5.23", (0, 5, 23)), ("0.5.6.post2", (0, 5, 6)), ("0.6.0rc1+cu1", (0, 6, 0)), ("x", None)],
)
def test_versions_are_compared_by_their_numbers(
    version: str, numbers: tuple[int, ...] | None
) -> None:
    assert sglang.version_tuple(version) == numbers
