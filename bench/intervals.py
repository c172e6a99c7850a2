"""Means with their 95 % intervals, by Student's t: what a few seeds say, and how surely."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.tables import figure

__all__ = ["Mean", "mean"]

_T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Two-sided 95 %, for 1 to 9 degrees of freedom."""


@dataclass(frozen=True)
class Mean:
    """Of some values. `error`: half the 95 % interval; None where one value says nothing of it."""

    value: float
    error: float | None

    @property
    def interval(self) -> tuple[float, float]:
        """From and to; the value alone where no error is known."""
        error = self.error or 0.0
        return max(0.0, self.value - error), self.value + error

    def text(self, digits: int) -> str:
        """As people read it."""
        shown = figure(self.value, digits)
        return shown if self.error is None else f"{shown} ± {figure(self.error, digits)}"


def mean(values: Sequence[float]) -> Mean:
    """The mean of one to ten values.

    Raises:
        ValueError: there are none, or more than ten.
    """
    if not 1 <= len(values) <= len(_T_95) + 1:
        raise ValueError(f"an interval is known for 1 to {len(_T_95) + 1} values")
    if len(values) == 1:
        return Mean(values[0], None)
    error = _T_95[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return Mean(statistics.mean(values), error)
