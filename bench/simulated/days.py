"""Days played, by scenario and router, and what those of several seeds say together."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from thunder_router.config import SchedulingSettings
from thunder_router.emulator.comparison import Interval, interval, ratio
from thunder_router.emulator.simulation import SimulationOptions, SimulationReport, simulate

__all__ = ["Day", "Days"]


@dataclass(frozen=True)
class Day:
    """The figures of one day that tables and plots use, as `SimulationReport` has them."""

    steps_per_min: float
    programs_per_hour: float
    hit_rate: float
    recomputed_tokens: int
    retractions: int
    refused: int
    failed: int
    pauses: int
    hold_p50_ms: int
    hold_p99_ms: int
    hold_max_ms: int
    turn_p50_ms: int
    turn_p90_ms: int

    @classmethod
    def of(cls, report: SimulationReport) -> "Day":
        """Taken from a report."""
        return cls(**{field.name: getattr(report, field.name) for field in fields(cls)})


class Days:
    """One for each seed, in their order."""

    def __init__(self, seeds: Sequence[int], scheduling: SchedulingSettings) -> None:
        self.seeds = tuple(seeds)
        self.played: dict[tuple[str, str], list[Day]] = {}
        self._scheduling = scheduling
        self._known: dict[tuple[str, str], list[Day]] = {}

    def play(
        self, pool: Executor, name: str, options: SimulationOptions, routers: Iterable[str]
    ) -> None:
        """Every router on the same days."""
        # A sweep passes through some of the single scenarios.
        keys = {router: (options.model_dump_json(), router) for router in routers}
        fresh = [router for router in keys if keys[router] not in self._known]
        days = iter(
            pool.map(
                lambda task: Day.of(simulate(options, task[0], self._scheduling, seed=task[1])),
                product(fresh, self.seeds),
            )
        )
        for router in fresh:
            self._known[keys[router]] = [next(days) for _ in self.seeds]
        for router, key in keys.items():
            self.played[name, router] = self._known[key]

    def mean(self, name: str, router: str, figure: Callable[[Day], float]) -> float:
        """Over seeds."""
        return statistics.mean(map(figure, self.played[name, router]))

    def most(self, name: str, router: str, figure: Callable[[Day], float]) -> float:
        """Of all seeds."""
        return max(map(figure, self.played[name, router]))

    def steps(self, name: str, router: str) -> Interval:
        """Steps per minute."""
        return interval([day.steps_per_min for day in self.played[name, router]])

    def ratio(self, name: str, router: str, to: str) -> Interval:
        """Of steps per minute, within each seed."""
        return ratio(self.played[name, router], self.played[name, to])

    def as_json(self) -> dict[str, Any]:
        """Every day, for other tools."""
        return {
            "seeds": self.seeds,
            "days": [
                {"scenario": name, "router": router, "seed": seed, **asdict(day)}
                for (name, router), days in self.played.items()
                for seed, day in zip(self.seeds, days, strict=True)
            ],
        }
