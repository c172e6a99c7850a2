"""Routers side by side before the same emulated workers, under the same agent programs.

    python -m bench.cluster --quick                              two scenarios, every router, a seed
    python -m bench.cluster --scenario mini-2 --seeds 31 32 33   one scenario
    python -m bench.cluster --all --seeds 31 32 33 --shard 2/6   a sixth of everything
    python -m bench.cluster --report                             tables and plots of all records

Real HTTP, real routers; the engines are emulated, and nothing here was measured on a GPU. Every run
adds a line to bench/results/cluster.jsonl. ThunderAgent takes part where `--thunderagent` says the
folder of a clone (github.com/ThunderAgent-org/ThunderAgent); the other peers are installed on first
use, into bench/.cache. A machine that others use makes runs fail themselves.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bench.cluster.records import RECORDS, keep, read
from bench.cluster.report import SERIES, answered, report, series
from bench.cluster.routers import ROUTERS
from bench.cluster.run import Record, run
from bench.cluster.scenarios import QUICK, SCENARIOS
from bench.systems import UnavailableError
from bench.tables import HERE, commit_of, provenance, replace_section


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays what was chosen. 1 where a run failed itself."""
    chosen = _parser().parse_args(arguments)
    if chosen.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:16} {scenario.title}")
        return 0
    if chosen.report:
        publish(read())
        return 0
    names = list(QUICK) if chosen.quick else list(SCENARIOS) if chosen.all else chosen.scenario
    origin = provenance()
    if chosen.thunderagent is not None:
        origin += f"; ThunderAgent's commit {commit_of(chosen.thunderagent)}"
    index, shards = chosen.shard
    missing: set[str] = set()
    flawed = 0
    for number, (name, seed, system) in enumerate(product(names, chosen.seeds, chosen.systems)):
        if number % shards != index - 1 or system in missing:
            continue
        speed = (chosen.speed or SCENARIOS[name].speed) * ROUTERS[system].pace
        try:
            record = run(
                name, system, seed, speed=speed, thunderagent=chosen.thunderagent, origin=origin
            )
        except UnavailableError as error:
            print(f"{system} is left out: {error}", file=sys.stderr)
            missing.add(system)
            continue
        keep(record)
        flawed += record.flaw is not None
        print(_line(record), flush=True)
    return int(flawed > 0)


def publish(records: Sequence[Record]) -> None:
    """The section of README.md, and the pictures of what was played."""
    replace_section(HERE / "README.md", "cluster", report(records))
    pictures = {f"cluster-{prefix}": series(records, prefix) for prefix in SERIES}
    pictures["cluster"] = answered(records, QUICK)
    for name, picture in pictures.items():
        if picture is not None:
            RECORDS.with_name(f"{name}.svg").write_text(picture)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--quick", action="store_true", help=", ".join(QUICK))
    which.add_argument("--all", action="store_true", help="every scenario")
    which.add_argument("--scenario", nargs="+", choices=SCENARIOS, metavar="NAME")
    which.add_argument("--list", action="store_true", help="the names of the scenarios")
    which.add_argument("--report", action="store_true", help="play nothing, write tables and plots")
    parser.add_argument("--systems", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[31])
    parser.add_argument("--speed", type=float, help="engine seconds in a real one")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N")
    parser.add_argument("--thunderagent", type=Path, metavar="FOLDER")
    return parser


def _shard(text: str) -> tuple[int, int]:
    index, _, shards = text.partition("/")
    try:
        chosen = int(index), int(shards)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N") from None
    if not 1 <= chosen[0] <= chosen[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of its shards")
    return chosen


def _line(record: Record) -> str:
    return (
        f"{record.scenario} {record.router} seed {record.seed}: {record.steps_per_min:.0f} "
        f"steps/min, {record.hit_rate:.0%} hits, turns {record.turn_p50_ms / 1e3:.1f} s, longest "
        f"hold {record.hold_max_ms / 1e3:.0f} s, router {record.router_ms_per_step:.2f} ms a step "
        f"and {record.router_cores:.0%} of a core, {record.failed} failed, events "
        f"{record.event_lag_p99_ms} ms late: {record.flaw or 'counts'}"
    )


if __name__ == "__main__":
    sys.exit(main())
