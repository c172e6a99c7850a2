"""`thunder-router simulate`: what scheduling would be worth on a workload and some engines."""

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from thunder_router.cli.flags import add_flags, options_of
from thunder_router.config import load
from thunder_router.emulator.simulation import (
    ROUTERS,
    SimulationOptions,
    SimulationReport,
    simulate,
)
from thunder_router.errors import ConfigError

__all__ = ["add"]

_WIDTH = 136


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command: one flag for each of the simulator's options, routers and seeds."""
    parser = commands.add_parser(
        "simulate",
        help="play days in virtual time",
        description="Plays the same agent programs behind several routers, in virtual time on an "
        "engine model. No figure was measured on a GPU; ratios mean more than rates.",
        allow_abbrev=False,
    )
    add_flags(parser, SimulationOptions)
    parser.add_argument(
        "--policy",
        default="cache_aware,paper,adaptive",
        help=f"routers to compare, the first is 1.00x: {', '.join(ROUTERS)} (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="days to play of each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="every day's figures on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays every day, then says what came of it."""
    options = options_of(arguments, SimulationOptions)
    routers = arguments.policy.split(",")
    if arguments.seeds < 1:
        raise ConfigError("--seeds: must be at least 1")
    scheduling = load().scheduling
    days: dict[str, list[SimulationReport]] = {router: [] for router in routers}
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("simulating", total=len(days) * arguments.seeds)
        for seed in range(1, arguments.seeds + 1):
            for router, reports in days.items():
                reports.append(simulate(options, router, scheduling, seed=seed))
                progress.advance(task)
    if arguments.json:
        figures = {router: [_figures(one) for one in reports] for router, reports in days.items()}
        print(json.dumps({"options": options.model_dump(mode="json"), "days": figures}, indent=1))
    else:
        console = Console()
        # Twelve columns want this much, whatever a pipe or a narrow window says.
        console.width = max(console.width, _WIDTH)
        console.print(_table(options, days))
    return 0


def _figures(report: SimulationReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}


def _table(options: SimulationOptions, days: dict[str, list[SimulationReport]]) -> Table:
    table = Table(
        title=f"simulated: {options.programs} programs of {options.workload} on {options.workers} x"
        f" {options.model}, {len(next(iter(days.values())))} seeds"
    )
    for heading in ("router", "steps/min", "", "programs/h", "hit rate", "recomputed"):
        table.add_column(heading, justify="left" if heading == "router" else "right")
    for heading in ("retracted", "hold p50", "p99", "max", "turn p50", "p90"):
        table.add_column(heading, justify="right")
    base = _mean(next(iter(days.values())), "steps_per_min")
    for router, reports in days.items():
        steps = _mean(reports, "steps_per_min")
        table.add_row(
            router,
            f"{steps:.0f}",
            f"{steps / base:.2f}x" if base else "",
            f"{_mean(reports, 'programs_per_hour'):.0f}",
            f"{_mean(reports, 'hit_rate'):.0%} of {_mean(reports, 'ideal_hit_rate'):.0%}",
            f"{_mean(reports, 'recomputed_tokens') / 1e6:.1f} M",
            f"{_mean(reports, 'retractions'):.0f}",
            f"{_mean(reports, 'hold_p50_ms') / 1e3:.1f} s",
            f"{_mean(reports, 'hold_p99_ms') / 1e3:.0f} s",
            f"{max(one.hold_max_ms for one in reports) / 1e3:.0f} s",
            f"{_mean(reports, 'turn_p50_ms') / 1e3:.1f} s",
            f"{_mean(reports, 'turn_p90_ms') / 1e3:.1f} s",
        )
    return table


def _mean(reports: Sequence[SimulationReport], name: str) -> float:
    return mean(float(getattr(one, name)) for one in reports)
