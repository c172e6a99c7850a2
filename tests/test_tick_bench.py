"""The bench of the scheduler's cost: the town it makes, and the arithmetic of its report."""

from pathlib import Path

import pytest

from bench import published_loops
from bench.relief import SHARE, Relief, full_cluster, relief
from bench.tick import Comparison, Cost, compare, measure, plot, report
from bench.town import CAPACITY, Town


def test_a_town_is_over_subscribed_and_its_core_counts_right() -> None:
    town = Town(workers=2, programs=200, events_per_second=22_000)

    costs = town.live(2_000)

    assert len(costs.event) == len(costs.tick)
    assert 1_900 < len(costs.event) <= 2_000
    assert costs.seconds == pytest.approx(2_000 / 22_000)
    town.core.check()
    counts = town.core.counts()
    assert counts["workers"] == 2
    assert counts["waiting"] > 0
    assert counts["in_flight"] > 0


def test_the_same_town_lives_the_same_life() -> None:
    one, other = (Town(workers=1, programs=80, events_per_second=22_000) for _ in range(2))

    assert one.core.counts() == other.core.counts()
    assert one.now_ms == other.now_ms


@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_a_relief_frees_what_was_lost_and_a_refill_brings_everyone_back(policy: str) -> None:
    cluster = full_cluster(workers=2, programs_each=72)
    assert all(sum(contexts) < CAPACITY for contexts in cluster)
    lost = sum(sum(contexts) for contexts in cluster) - 2 * CAPACITY * (1 - SHARE)

    moved = relief(policy, cluster)

    smallest = sorted(tokens for contexts in cluster for tokens in contexts)
    fewest = next(n for n in range(1, 144) if sum(smallest[-n:]) >= lost)
    assert fewest <= moved.paused < 144 / 2
    assert moved.restored == moved.paused


def test_a_size_is_measured_through_the_binding() -> None:
    cost = measure(workers=1, programs=80, events=200)

    assert cost.programs == 80
    assert 0 < cost.event_p50_us <= cost.event_p99_us
    assert 0 < cost.tick_p50_us <= cost.tick_p99_us
    assert compare(workers=1, package=None).published is None


def test_the_report_judges_targets_and_gives_the_ratio() -> None:
    costs = [
        Cost(8, 576, 1.0, 2.0, 60.0, 70.0, 0.05),
        Cost(1_000, 100_000, 1.5, 4.0, 3.0, 30.0, 0.12),
    ]
    ours = Relief(pause_s=0.001, paused=10, restore_s=0.001, restored=9)
    theirs = Relief(pause_s=0.3, paused=11, restore_s=0.1, restored=11)

    text = report("a day", costs, [Comparison(576, ours, ours, theirs)])

    assert "| 1,000 | 100,000 | 1.50 | 4.00 | 3.00 | 30.00 | 12% |" in text
    assert "| event at 100,000 programs, p50 | ≤ 4 µs | 1.50 µs | yes |" in text
    assert "| tick at 576 programs, p50 | ≤ 50 µs | 60.00 µs | no |" in text
    assert "| 576 | 2.00 | 2.00 | 400.0 | 10 ↓ 9 ↑, 10 ↓ 9 ↑, 11 ↓ 11 ↑ | 200× |" in text
    assert "100,000" in plot(costs, "a day")


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no clone of ThunderAgent"):
        published_loops.load(tmp_path)
