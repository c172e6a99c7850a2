"""Means, intervals and ratios over seeds, and the charts drawn from them."""

from dataclasses import dataclass

import pytest

from thunder_router.emulator.comparison import Interval, charts, interval, ratio
from thunder_router.plot import Point


@dataclass(frozen=True)
class Day:
    steps_per_min: float
    hit_rate: float = 0.9
    turn_p50_ms: int = 7_000
    hold_p99_ms: int = 60_000
    hold_max_ms: int = 120_000


def test_an_interval_is_students() -> None:
    # Standard deviation 1, three values, t of 2 degrees 4.30: 4.30 / √3.
    three = interval([1, 2, 3])
    assert (three.mean, round(three.error or 0, 3)) == (2, 2.483)
    assert str(three) == "2.00 ± 2.48"
    assert interval([5, 5, 5, 5]) == Interval(5, 0)


def test_one_value_has_a_mean_and_no_interval_and_none_has_neither() -> None:
    assert interval([1.5]) == Interval(1.5, None)
    assert str(interval([1.5])) == "1.50"
    with pytest.raises(ValueError, match="no value"):
        interval([])


def test_more_seeds_than_the_table_has_are_given_its_last_t() -> None:
    twenty = interval([0, 2] * 10)
    # Standard deviation 1.026, 2.26 · 1.026 / √20.
    assert round(twenty.error or 0, 3) == 0.518


def test_a_ratio_is_taken_within_each_seed() -> None:
    # The second seed is a busy day for both.
    ours, theirs = [Day(200), Day(20)], [Day(100), Day(10)]
    assert ratio(ours, theirs) == Interval(2, 0)
    assert ratio([Day(1)], [Day(0)]).mean == float("inf")


def test_charts_have_a_point_for_each_load_and_its_interval() -> None:
    played = {"adaptive": [(24, [Day(100), Day(102)]), (48, [Day(300), Day(300)])]}
    throughput, hits, turn, hold, longest = charts("programs", played)

    (line,) = throughput.lines
    # Standard deviation √2, t 12.71.
    assert line.points == [Point(24, 101, 101 - 12.71, 101 + 12.71), Point(48, 300, 300, 300)]
    assert [panel.lines[0].points[0].y for panel in (hits, turn, hold, longest)] == [
        0.9,
        7,
        60,
        120,
    ]
    assert {panel.x_label for panel in (throughput, hits, turn, hold, longest)} == {"programs"}


def test_an_interval_does_not_reach_below_nothing() -> None:
    panel = charts("programs", {"paper": [(1, [Day(1), Day(9)])]})[0]
    assert panel.lines[0].points[0].low == 0
