"""Tables and plots from the records of runs, whenever they were made.

A ratio is taken between runs of the same scenario and seed; its mean over seeds is given with its
95 % interval. Runs that failed themselves are counted, and left out.
"""

from collections.abc import Callable, Iterable, Sequence

from bench.cluster.run import Record
from bench.cluster.scenarios import SCENARIOS
from bench.intervals import Mean, mean
from bench.tables import figure, table
from thunder_router.plot import Line, Panel, Point, svg

__all__ = ["plot", "report"]

OURS = "adaptive"
_PLOTTED = (
    ("steps a minute", lambda record: record.steps_per_min),
    ("KV hit rate", lambda record: record.hit_rate),
    ("longest turn, s", lambda record: record.turn_max_s),
)


def report(records: Sequence[Record]) -> str:
    """One table for each scenario that was played, in the order of `SCENARIOS`."""
    origins = "\n\n".join(dict.fromkeys(record.origin for record in records))
    parts = [origins]
    for name, scenario in SCENARIOS.items():
        played = [record for record in records if record.scenario == name]
        if played:
            day = scenario.day
            speeds = ", ".join(f"{speed:g}" for speed in sorted({each.speed for each in played}))
            span = f"{day.measured_s // 60} minutes of engine time after {day.warmup_s // 60}"
            parts.append(f"**{scenario.title}** ({span}, at {speeds} times its speed)")
            parts.append(table(_HEAD, [_row(played, router) for router in _routers(played)]))
    late = sum(not record.counts for record in records)
    if late:
        parts.append(f"{late} of {len(records)} runs came too late to count, and are left out.")
    return "\n\n".join(parts)


_HEAD = [
    *("emulated", "steps/min", "adaptive / it", "programs/h", "KV hits", "computed again a step"),
    *("retractions", "turn p50, s", "p99", "longest", "errors", "router CPU ms a step", "seeds"),
]


def _row(played: Sequence[Record], router: str) -> list[str]:
    its = [record for record in played if record.router == router and record.counts]
    if not its:
        return [router, *("–" for _ in _HEAD[1:])]

    def over(value: Callable[[Record], float]) -> Mean:
        return mean([value(record) for record in its])

    return [
        router,
        over(lambda each: each.steps_per_min).text(0),
        _ratio(played, router),
        over(lambda each: each.programs_per_hour).text(0),
        f"{over(lambda each: each.hit_rate).value:.0%}",
        figure(over(lambda each: each.recomputed_per_step).value),
        figure(over(lambda each: each.retractions).value),
        figure(over(lambda each: each.turn_p50_s).value, 1),
        figure(over(lambda each: each.turn_p99_s).value),
        figure(max(each.turn_max_s for each in its)),
        figure(over(lambda each: each.failures).value),
        figure(over(lambda each: each.router_ms_per_step).value, 2),
        str(len(its)),
    ]


def _ratio(played: Sequence[Record], router: str) -> str:
    """Of our steps to its, seed by seed."""
    by_run = {(record.router, record.seed): record for record in played if record.counts}
    ratios = [
        by_run[OURS, seed].steps_per_min / record.steps_per_min
        for (name, seed), record in by_run.items()
        if name == router and (OURS, seed) in by_run and record.steps_per_min
    ]
    return mean(ratios).text(2) if ratios and router != OURS else "–"


def plot(records: Sequence[Record], scenarios: Iterable[str], title: str) -> str:
    """Throughput, hits and the longest turn against the number of programs.

    Raises:
        ValueError: none of the scenarios was played.
    """
    chosen = set(scenarios)
    its = [record for record in records if record.scenario in chosen and record.counts]
    panels = [
        Panel(
            name,
            "programs",
            name,
            [Line(router, _points(its, router, value)) for router in _routers(its)],
        )
        for name, value in _PLOTTED
    ]
    return svg(title, panels, caption="Emulated engines: none of this was measured on a GPU.")


def _points(
    records: Sequence[Record], router: str, value: Callable[[Record], float]
) -> list[Point]:
    by_size: dict[int, list[float]] = {}
    for record in records:
        if record.router == router:
            size = SCENARIOS[record.scenario].day.programs
            by_size.setdefault(size, []).append(value(record))
    points = []
    for size, values in sorted(by_size.items()):
        middle = mean(values)
        low, high = middle.interval if middle.error else (None, None)
        points.append(Point(size, middle.value, low, high))
    return points


def _routers(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(record.router for record in records))
