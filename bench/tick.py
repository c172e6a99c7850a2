"""What a decision costs, against how much there is to decide about.

    python -m bench.tick                              a few minutes, table in README.md, plot
    python -m bench.tick --quick                      up to 10,000 programs, nothing written
    python -m bench.tick --thunderagent FOLDER        beside the public ThunderAgent's own loops

Two questions. What do an event and the tick after it cost while a town of agents lives
(`bench.town`), from 1,000 programs to a million? And what does it take to pause a part of a full
cluster and to restore it (`bench.relief`), here and in the loops that ThunderAgent publishes
(`bench.published_loops`)? Both go through the Python binding, as the router does.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from bench import published_loops
from bench.relief import Relief, full_cluster, relief
from bench.tables import HERE, commit_of, figure, provenance, replace_section, table
from bench.town import Town
from thunder_router.plot import Line, Panel, Point, svg

EVENTS_PER_SECOND = 22_000
SIZES = ((8, 576), (10, 1_000), (100, 10_000), (1_000, 100_000), (10_000, 1_000_000))
QUICK_SIZES = SIZES[:3]
CLUSTERS = (8, 14, 70, 140)
"""Workers of 72 programs each in the comparison."""
QUICK_CLUSTERS = CLUSTERS[:2]
PER_WORKER = 72
TARGETS = (
    ("event at 100,000 programs, p50", 100_000, "event_p50_us", 4.0),
    ("tick at 576 programs, p50", 576, "tick_p50_us", 50.0),
    ("tick at 100,000 programs, p99", 100_000, "tick_p99_us", 2000.0),
)


@dataclass(frozen=True)
class Cost:
    """Microseconds of a call, by size. `core_share`: of one core, at the town's own pace."""

    workers: int
    programs: int
    event_p50_us: float
    event_p99_us: float
    tick_p50_us: float
    tick_p99_us: float
    core_share: float


@dataclass(frozen=True)
class Comparison:
    """The same relief and refill of one cluster."""

    programs: int
    adaptive: Relief
    paper: Relief
    published: Relief | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and writes the section of README.md and the plot unless told otherwise."""
    parser = argparse.ArgumentParser(prog="python -m bench.tick", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; print, write nothing")
    parser.add_argument("--events", type=int, default=50_000, help="measured for every size")
    parser.add_argument(
        "--thunderagent", type=Path, metavar="FOLDER", help="a clone to be measured beside"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, write nothing")
    chosen = parser.parse_args(arguments)
    origin = provenance()
    folder: Path | None = chosen.thunderagent
    package = None
    if folder is not None:
        package = published_loops.load(folder)
        origin += f"; ThunderAgent's commit {commit_of(folder)}"
    costs: list[Cost] = []
    for workers, programs in QUICK_SIZES if chosen.quick else SIZES:
        costs.append(measure(workers, programs, chosen.events))
        print(costs[-1], file=sys.stderr, flush=True)
    comparisons: list[Comparison] = []
    for workers in QUICK_CLUSTERS if chosen.quick else CLUSTERS:
        comparisons.append(compare(workers, package))
        print(comparisons[-1], file=sys.stderr, flush=True)
    if chosen.json:
        figures = {
            "origin": origin,
            "costs": [asdict(cost) for cost in costs],
            "comparisons": [asdict(comparison) for comparison in comparisons],
        }
        print(json.dumps(figures, indent=2))
    elif chosen.quick:
        print(report(origin, costs, comparisons))
    else:
        replace_section(HERE / "README.md", "tick", report(origin, costs, comparisons))
        (HERE / "results" / "tick.svg").write_text(plot(costs, origin))
    return 0


def measure(workers: int, programs: int, events: int) -> Cost:
    """An event and the tick after it, in a town of that size."""
    costs = Town(workers, programs, events_per_second=EVENTS_PER_SECOND).live(events)
    event = statistics.quantiles(costs.event, n=100)
    tick = statistics.quantiles(costs.tick, n=100)
    spent_s = (sum(costs.event) + sum(costs.tick)) / 1e9
    return Cost(
        workers,
        programs,
        event_p50_us=event[49] / 1e3,
        event_p99_us=event[98] / 1e3,
        tick_p50_us=tick[49] / 1e3,
        tick_p99_us=tick[98] / 1e3,
        core_share=spent_s / costs.seconds,
    )


def compare(workers: int, package: ModuleType | None) -> Comparison:
    """One relief and one refill of that cluster, by each scheduler."""
    cluster = full_cluster(workers, PER_WORKER)
    published = None
    if package is not None:
        published = published_loops.published_relief(package, cluster)
    return Comparison(
        workers * PER_WORKER, relief("adaptive", cluster), relief("paper", cluster), published
    )


def report(origin: str, costs: Sequence[Cost], comparisons: Sequence[Comparison]) -> str:
    """The section of README.md."""
    head = ["workers", "programs", "event µs, p50", "p99", "tick µs, p50", "p99", "of a core"]
    living = [
        [
            figure(cost.workers),
            figure(cost.programs),
            *(figure(value, 2) for value in (cost.event_p50_us, cost.event_p99_us)),
            *(figure(value, 2) for value in (cost.tick_p50_us, cost.tick_p99_us)),
            f"{cost.core_share:.0%}",
        ]
        for cost in costs
    ]
    compared = ["programs", "thunder-router adaptive, ms", "paper, ms", "ThunderAgent, ms"]
    compared += ["programs moved", "ThunderAgent / adaptive"]
    return "\n\n".join(
        [
            origin,
            f"A town of agents at {EVENTS_PER_SECOND:,} events a second, each followed by a tick:",
            table(head, living),
            "![Cost of an event and a tick against the number of programs](results/tick.svg)",
            "A full cluster loses a fifth of its KV memory and gets it back: all pauses and all "
            "restores, and how many programs went and came (adaptive, paper, ThunderAgent):",
            table(compared, [_compared(each) for each in comparisons]),
            table(["target", "limit", "measured", "met"], list(_targets(costs))),
        ]
    )


def _compared(row: Comparison) -> list[str]:
    theirs = row.published
    everyone = [row.adaptive, row.paper, *([theirs] if theirs else [])]
    return [
        figure(row.programs),
        figure(row.adaptive.seconds * 1e3, 2),
        figure(row.paper.seconds * 1e3, 2),
        figure(None if theirs is None else theirs.seconds * 1e3, 1),
        ", ".join(f"{each.paused:,} ↓ {each.restored:,} ↑" for each in everyone),
        "–" if theirs is None else f"{theirs.seconds / row.adaptive.seconds:,.0f}×",
    ]


def _targets(costs: Sequence[Cost]) -> Iterator[list[str]]:
    by_size = {cost.programs: cost for cost in costs}
    for name, programs, figure_name, limit in TARGETS:
        if programs in by_size:
            value: float = getattr(by_size[programs], figure_name)
            met = "yes" if value <= limit else "no"
            yield [name, f"≤ {figure(limit)} µs", f"{figure(value, 2)} µs", met]


def plot(costs: Sequence[Cost], origin: str) -> str:
    """Both costs against the number of programs, on logarithmic axes."""

    def line(name: str, figure_name: str) -> Line:
        return Line(name, [Point(cost.programs, getattr(cost, figure_name)) for cost in costs])

    panels = [
        Panel(
            f"one {what}",
            "programs",
            "µs",
            [line(share, f"{what}_{share}_us") for share in ("p50", "p99")],
            logarithmic=True,
        )
        for what in ("event", "tick")
    ]
    return svg("What a decision costs", panels, caption=origin)


if __name__ == "__main__":
    sys.exit(main())
