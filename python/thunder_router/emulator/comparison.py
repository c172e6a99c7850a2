"""Several days side by side: means with their intervals, and charts against the load."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from thunder_router.plot import Line, Panel, Point

__all__ = ["Figures", "Interval", "charts", "interval", "ratio"]

T_95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom. With more, the last serves: the
interval is a little too wide."""


class Figures(Protocol):
    """What charts use of a day; `SimulationReport` has it."""

    @property
    def steps_per_min(self) -> float:
        """Turns answered."""

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that some cache had."""

    @property
    def turn_p50_ms(self) -> int:
        """From asking to the end of the answer."""

    @property
    def hold_p99_ms(self) -> int:
        """How long the router held requests."""

    @property
    def hold_max_ms(self) -> int:
        """The longest."""


@dataclass(frozen=True)
class Interval:
    """A mean and half of its 95 % interval; None where one value tells nothing of it."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def interval(values: Sequence[float]) -> Interval:
    """By Student's t.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no value has no mean")
    mean = statistics.mean(values)
    if len(values) == 1:
        return Interval(mean, None)
    t = T_95[min(len(values) - 1, len(T_95)) - 1]
    return Interval(mean, t * statistics.stdev(values) / math.sqrt(len(values)))


def ratio(ours: Iterable[Figures], theirs: Iterable[Figures]) -> Interval:
    """Of throughput, taken within each seed: both are in the seeds' order."""
    pairs = zip(ours, theirs, strict=True)
    return interval(
        [
            one.steps_per_min / other.steps_per_min if other.steps_per_min else math.inf
            for one, other in pairs
        ]
    )


def charts(
    axis: str, played: Mapping[str, Sequence[tuple[float, Sequence[Figures]]]]
) -> list[Panel]:
    """Throughput, hit rate, turns and holds against the load.

    Args:
        axis: What the load counts, such as "programs".
        played: By router, of each load its days, one for each seed.
    """

    def panel(title: str, unit: str, figure: Callable[[Figures], float]) -> Panel:
        return Panel(
            title,
            axis,
            unit,
            [
                Line(router, [_point(load, list(map(figure, days))) for load, days in loads])
                for router, loads in played.items()
            ],
        )

    return [
        panel("throughput", "steps/min", lambda day: day.steps_per_min),
        panel("hit rate", "share of prompt tokens", lambda day: day.hit_rate),
        panel("turn, median", "s", lambda day: day.turn_p50_ms / 1e3),
        panel("hold, 99th percentile", "s", lambda day: day.hold_p99_ms / 1e3),
        panel("hold, longest", "s", lambda day: day.hold_max_ms / 1e3),
    ]


def _point(load: float, values: Sequence[float]) -> Point:
    one = interval(values)
    if one.error is None:
        return Point(load, one.mean)
    return Point(load, one.mean, max(0.0, one.mean - one.error), one.mean + one.error)
