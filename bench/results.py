"""All samples of a run, and the figures drawn from them.

A machine that others use too drifts from minute to minute, so a figure is the median over rounds,
and a ratio is the median of the ratios within each round, never a ratio of medians taken at
different times.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.measure import Sample

__all__ = ["Results"]

Figure = Callable[[Sample], float | None]


@dataclass
class Results:
    """Samples by round, system and scenario."""

    rounds: int
    seconds: float
    memory_prompts: int
    origin: str = ""
    """Day, machine and commit."""
    samples: dict[tuple[int, str, str], Sample] = field(default_factory=dict)
    resident_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By system: before any load, and after `memory_prompts` different prompts."""
    missing: dict[str, str] = field(default_factory=dict)
    """Systems that could not be measured, and why."""

    def systems(self) -> list[str]:
        """Those with any sample, in the order in which they first ran."""
        return list(dict.fromkeys(system for _, system, _ in self.samples))

    def median(self, system: str, scenario: str, figure: Figure) -> float | None:
        """Over rounds."""
        return _median(self._figure(turn, system, scenario, figure) for turn in self._turns())

    def ratio(self, system: str, to: str, scenario: str, figure: Figure) -> float | None:
        """Of two systems' figures in the same round, median over rounds."""
        return self._paired(system, to, scenario, figure, lambda a, b: a / b if b else None)

    def added(self, system: str, to: str, scenario: str, figure: Figure) -> float | None:
        """The difference of two systems' figures in the same round, median over rounds."""
        return self._paired(system, to, scenario, figure, lambda a, b: a - b)

    def failures(self, system: str) -> int:
        """Requests that were not answered 200, in all rounds."""
        return sum(
            sample.failures for (_, name, _), sample in self.samples.items() if name == system
        )

    def as_json(self) -> dict[str, Any]:
        """Every sample, for other tools."""
        return {
            "origin": self.origin,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "memory_prompts": self.memory_prompts,
            "missing": self.missing,
            "resident_bytes": {
                system: {"before": before, "after": after}
                for system, (before, after) in self.resident_bytes.items()
            },
            "samples": [
                {
                    "round": turn,
                    "system": system,
                    "scenario": scenario,
                    **vars(sample),
                    "per_second": sample.per_second,
                    "cpu_us": sample.cpu_us,
                }
                for (turn, system, scenario), sample in self.samples.items()
            ],
        }

    def _turns(self) -> range:
        return range(self.rounds)

    def _figure(self, turn: int, system: str, scenario: str, figure: Figure) -> float | None:
        sample = self.samples.get((turn, system, scenario))
        return None if sample is None else figure(sample)

    def _paired(
        self,
        system: str,
        to: str,
        scenario: str,
        figure: Figure,
        combine: Callable[[float, float], float | None],
    ) -> float | None:
        values = []
        for turn in self._turns():
            one = self._figure(turn, system, scenario, figure)
            other = self._figure(turn, to, scenario, figure)
            if one is not None and other is not None:
                values.append(combine(one, other))
        return _median(values)


def _median(values: Any) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None
