"""`thunder-router simulate`: what scheduling would be worth on a workload and some engines."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from thunder_router.cli.flags import add_flags, options_of
from thunder_router.config import load
from thunder_router.emulator.comparison import charts, ratio
from thunder_router.emulator.simulation import (
    ROUTERS,
    SimulationOptions,
    SimulationReport,
    check_router,
    simulate,
)
from thunder_router.errors import ConfigError
from thunder_router.plot import svg

__all__ = ["add"]

_WIDTH = 160
Played = Mapping[str, Sequence[tuple[int, Sequence[SimulationReport]]]]
"""By router, for each number of programs, one day for each seed."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command: one flag for each of the simulator's options, routers and seeds."""
    parser = commands.add_parser(
        "simulate",
        help="play days in virtual time",
        description="Plays the same agent programs behind several routers, in virtual time on an\n"
        "engine model. No figure was measured on a GPU; ratios mean more than rates.",
        epilog="routers:\n" + "\n".join(f"  {name:14} {what}" for name, what in ROUTERS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser, SimulationOptions)
    parser.add_argument(
        "--policy",
        default="cache_aware,paper,adaptive",
        help="routers to compare, ratios are to the first (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="days to play of each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="every day's figures on stdout")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it as SVG, too")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays every day, then says what came of it."""
    loads = _loads(arguments)
    routers = list(dict.fromkeys(arguments.policy.split(",")))
    for router in routers:
        check_router(router)
    if arguments.seeds < 1:
        raise ConfigError("--seeds: must be at least 1")
    played = _play(loads, routers, arguments.seeds)
    if arguments.plot is not None:
        _draw(loads[0], played, arguments.plot)
    if arguments.json:
        print(json.dumps(_as_json(loads[0], played), indent=1))
    else:
        console = Console()
        # So many columns want this much, whatever a pipe or a narrow window says.
        console.width = max(console.width, _WIDTH)
        console.print(_table(loads[0], played))
    return 0


def _loads(arguments: argparse.Namespace) -> list[SimulationOptions]:
    """The options for each number of programs."""
    if "programs" not in arguments:
        return [options_of(arguments, SimulationOptions)]
    loads = []
    for programs in arguments.programs.split(","):
        one = argparse.Namespace(**vars(arguments) | {"programs": programs})
        loads.append(options_of(one, SimulationOptions))
    return loads


def _play(loads: Sequence[SimulationOptions], routers: Sequence[str], seeds: int) -> Played:
    scheduling = load().scheduling
    days: dict[str, list[tuple[int, list[SimulationReport]]]] = {name: [] for name in routers}
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("simulating", total=len(loads) * len(routers) * seeds)
        for options in loads:
            for router in routers:
                reports = []
                for seed in range(1, seeds + 1):
                    reports.append(simulate(options, router, scheduling, seed=seed))
                    progress.advance(task)
                days[router].append((options.programs, reports))
    return days


def _title(options: SimulationOptions) -> str:
    return (
        f"simulated: {options.workload} on {options.workers} x {options.model}"
        f"{' and its host tier' if options.hicache_ratio else ''}"
    )


def _draw(options: SimulationOptions, played: Played, path: Path) -> None:
    drawn = svg(_title(options), charts("programs", played), caption="Not measured on a GPU.")
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plot: {path}: {error.strerror}") from error


def _as_json(options: SimulationOptions, played: Played) -> dict[str, Any]:
    days = [
        {"programs": programs, "router": router, "seed": seed, "figures": _figures(report)}
        for router, loads in played.items()
        for programs, reports in loads
        for seed, report in enumerate(reports, start=1)
    ]
    return {"options": options.model_dump(mode="json", exclude={"programs"}), "days": days}


def _figures(report: SimulationReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}


def _table(options: SimulationOptions, played: Played) -> Table:
    base = next(iter(played.values()))
    table = Table(title=f"{_title(options)}, {len(base[0][1])} seeds")
    for heading in ("programs", "router", "steps/min", "x first", "programs/h", "hit rate"):
        table.add_column(heading, justify="left" if heading == "router" else "right")
    for heading in ("recomputed", "retracted", "hold p50", "p99", "max", "turn p50", "p90"):
        table.add_column(heading, justify="right")
    for index, (programs, first) in enumerate(base):
        for router, loads in played.items():
            reports = loads[index][1]
            table.add_row(
                f"{programs}",
                router,
                f"{_mean(reports, 'steps_per_min'):.0f}",
                str(ratio(reports, first)),
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
        table.add_section()
    return table


def _mean(reports: Sequence[SimulationReport], name: str) -> float:
    return mean(float(getattr(one, name)) for one in reports)
