"""Tables and pictures from the records of runs, whenever they were made.

A ratio is taken between runs of the same scenario and seed; its mean over seeds is given with its
95 % interval. Runs that failed themselves are counted, and left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from bench.cluster.routers import ROUTERS
from bench.cluster.run import Record
from bench.cluster.scenarios import SCENARIOS
from bench.simulated.report import Target
from bench.tables import figure, table
from thunder_router.emulator.comparison import Interval, charts, interval, ratio
from thunder_router.plot import Line, Panel, Point, svg

__all__ = ["EMULATED", "SERIES", "TARGETS", "answered", "report", "series"]

OURS = "adaptive"
EMULATED = "Emulated engines, real routers over HTTP; nothing here was measured on a GPU."
SERIES = {
    "fig4a": "mini-SWE on one worker",
    "fig4b": "OpenHands on one worker",
    "fig4c": "ToolOrchestra on one worker",
    "fig4f": "ScienceAgent on one worker",
    "scale": "mini-SWE, 72 programs a worker",
    "hicache": "OpenHands, MiniMax-M2.5, HiCache 2×",
}
"""Scenarios whose names begin so differ by their number of programs, and make one picture."""
TARGETS = (
    Target("mini-2", "sglang-router", 2.0),
    Target("openhands-2", "sglang-router", 3.5),
    Target("claude-code-4", "sglang-router", 2.4),
    Target("mini-2", "ThunderAgent", 1.13),
    Target("openhands-2", "ThunderAgent", 1.18),
    Target("mini-2", "paper", 1.05),
    Target("openhands-2", "paper", 1.12),
    Target("claude-code-1", "paper", 2.3),
)
Figure = Callable[[Record], float]
_HEAD = [
    *("emulated", "steps/min", "adaptive / it", "programs/h", "KV hits", "recomputed a step"),
    *("retractions", "turn p50, s", "hold p50, s", "p99", "longest", "failed"),
    *("router CPU, ms a step", "seeds"),
]


class Runs:
    """The records that count, by scenario and router."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: dict[tuple[str, str], dict[int, Record]] = {}
        self.flaws: list[str] = []
        for record in records:
            if record.flaw is None:
                self._records.setdefault((record.scenario, record.router), {})[record.seed] = record
            else:
                name = f"{record.scenario}, {record.router}, seed {record.seed}"
                self.flaws.append(f"{name}: {record.flaw}")

    def routers(self, scenario: str) -> list[str]:
        """Those with a run of it, in the order of `ROUTERS`."""
        return [router for router in ROUTERS if (scenario, router) in self._records]

    def of(self, scenario: str, router: str) -> list[Record]:
        """One for each seed."""
        return list(self._records.get((scenario, router), {}).values())

    def ratio(self, scenario: str, to: str) -> Interval | None:
        """Of our steps to its, over the seeds that both have played."""
        ours, theirs = (self._records.get((scenario, name), {}) for name in (OURS, to))
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds or to == OURS:
            return None
        return ratio([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def report(records: Sequence[Record]) -> str:
    """One table for each scenario that was played, in the order of `SCENARIOS`."""
    runs = Runs(records)
    parts = list(dict.fromkeys(record.origin for record in records))
    aims = list(_targets(runs))
    if aims:
        parts.append(table(["target for adaptive", "limit", "emulated", "met"], aims))
    for name, scenario in SCENARIOS.items():
        routers = runs.routers(name)
        if routers:
            day = scenario.day
            span = f"{day.measured_s // 60} minutes of engine time after {day.warmup_s // 60}"
            parts.append(f"**{scenario.title}** (`{name}`, {span})")
            parts.append(table(_HEAD, [_row(runs, name, router) for router in routers]))
    if runs.flaws:
        parts.append(f"{len(runs.flaws)} runs failed themselves: {'; '.join(runs.flaws)}.")
    return "\n\n".join(parts)


def _row(runs: Runs, scenario: str, router: str) -> list[str]:
    its = runs.of(scenario, router)

    def mean(value: Figure, digits: int = 0) -> str:
        return figure(interval([value(record) for record in its]).mean, digits)

    steps = interval([record.steps_per_min for record in its])
    error = "" if steps.error is None else f" ± {figure(steps.error)}"
    to_it = runs.ratio(scenario, router)
    return [
        router,
        figure(steps.mean) + error,
        "–" if to_it is None else str(to_it),
        mean(lambda each: each.programs_per_hour),
        mean(lambda each: each.hit_rate, 2),
        mean(lambda each: each.recomputed_tokens / max(1, each.steps)),
        mean(lambda each: each.retractions),
        mean(lambda each: each.turn_p50_ms / 1e3, 1),
        mean(lambda each: each.hold_p50_ms / 1e3, 1),
        mean(lambda each: each.hold_p99_ms / 1e3),
        figure(max(record.hold_max_ms for record in its) / 1e3),
        mean(lambda each: each.failed),
        mean(lambda each: each.router_ms_per_step, 2),
        ", ".join(str(seed) for seed in sorted(record.seed for record in its)),
    ]


def _targets(runs: Runs) -> Iterator[list[str]]:
    for target in TARGETS:
        found = runs.ratio(target.scenario, target.to)
        if found is not None:
            name = f"{SCENARIOS[target.scenario].title}: of {target.to}"
            met = "yes" if found.mean >= target.least else "no"
            yield [name, f"≥ {target.least:.2f}×", str(found), met]


def series(records: Sequence[Record], prefix: str) -> str | None:
    """Throughput, hits, turns and holds against the number of programs; None with fewer than two.

    Args:
        records: All of them.
        prefix: One of `SERIES`.
    """
    runs = Runs(records)
    played: dict[str, list[tuple[float, list[Record]]]] = {}
    for name, scenario in SCENARIOS.items():
        if name.startswith(f"{prefix}-"):
            for router in runs.routers(name):
                point = (float(scenario.day.programs), runs.of(name, router))
                played.setdefault(router, []).append(point)
    if max(map(len, played.values()), default=0) < 2:
        return None
    return svg(SERIES[prefix], charts("programs", played), caption=EMULATED)


def answered(records: Sequence[Record], scenarios: Iterable[str]) -> str | None:
    """Turns answered as time goes by, a panel for each scenario; None without any."""
    runs = Runs(records)
    played = {name: routers for name in scenarios if (routers := runs.routers(name))}
    if not played:
        return None
    panels = [
        Panel(
            SCENARIOS[name].title,
            "minutes of engine time",
            "turns answered",
            [Line(router, list(_points(runs.of(name, router)))) for router in routers],
        )
        for name, routers in played.items()
    ]
    return svg("The same agent programs behind each router", panels, caption=EMULATED)


def _points(its: Sequence[Record]) -> Iterator[Point]:
    """Sums up to each minute, over seeds."""
    yield Point(0, 0)
    sums = zip(*(accumulate(record.answered) for record in its), strict=False)
    for minute, values in enumerate(sums, start=1):
        one = interval(values)
        yield Point(minute, one.mean)
