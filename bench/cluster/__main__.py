"""Routers side by side before the same emulated workers, under the same agent programs.

    python -m bench.cluster --quick                              two scenarios, every router, a seed
    python -m bench.cluster --scenario mini-2 --seeds 31 32 33   one scenario
    python -m bench.cluster --all --seeds 31 32 33 --shard 2/6   a sixth of everything
    python -m bench.cluster --report                             tables and plots of all records

Real HTTP, real routers; the engines are emulated, and nothing here was measured on a GPU. Every run
adds a line to bench/results/cluster.jsonl. ThunderAgent takes part where `--thunderagent` says the
folder of a clone (github.com/ThunderAgent-org/ThunderAgent); the other peers are installed on first
use, into bench/.cache.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from bench.cluster.report import plot, report
from bench.cluster.routers import ROUTERS
from bench.cluster.run import Record, run
from bench.cluster.scenarios import QUICK, SCENARIOS
from bench.systems import UnavailableError
from bench.tables import HERE, commit_of, provenance, replace_section

RECORDS = HERE / "results" / "cluster.jsonl"
PLOTS = {
    "cluster-fig4a": ("mini-SWE on one worker", "fig4a-"),
    "cluster-fig4b": ("OpenHands on one worker", "fig4b-"),
    "cluster-fig4c": ("ToolOrchestra on one worker", "fig4c-"),
    "cluster-fig4f": ("ScienceAgent on one worker", "fig4f-"),
    "cluster-scale": ("mini-SWE, 72 programs a worker", "scale-"),
    "cluster-hicache": ("OpenHands, MiniMax, HiCache 2×", "hicache-"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays what was chosen. 1 where a run came too late to count."""
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
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[31])
    parser.add_argument("--speed", type=float, help="engine seconds in a real one")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N")
    parser.add_argument("--thunderagent", type=Path, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
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
    late = 0
    for number, (name, seed, router) in enumerate(product(names, chosen.seeds, chosen.routers)):
        if number % shards != index - 1 or router in missing:
            continue
        speed = chosen.speed or SCENARIOS[name].speed
        try:
            one = run(
                name, router, seed, speed=speed, thunderagent=chosen.thunderagent, origin=origin
            )
        except UnavailableError as error:
            print(f"{router} is left out: {error}", file=sys.stderr)
            missing.add(router)
            continue
        keep(one)
        late += not one.counts
        print(_line(one), flush=True)
    return int(late > 0)


def keep(record: Record) -> None:
    """Adds a line to the records."""
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read() -> list[Record]:
    """All records; of one run that was made again, the last."""
    lines = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else []
    records = [Record(**json.loads(line)) for line in lines]
    return list({(each.scenario, each.router, each.seed): each for each in records}.values())


def publish(records: Sequence[Record]) -> None:
    """The section of README.md, and a plot of every series that was played at two sizes."""
    replace_section(HERE / "README.md", "cluster", report(records))
    for name, (title, prefix) in PLOTS.items():
        played = {each.scenario for each in records if each.scenario.startswith(prefix)}
        if len(played) > 1:
            (RECORDS.parent / f"{name}.svg").write_text(plot(records, played, title))


def _shard(text: str) -> tuple[int, int]:
    index, _, shards = text.partition("/")
    try:
        chosen = int(index), int(shards)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N") from None
    if not 1 <= chosen[0] <= chosen[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of its shards")
    return chosen


def _line(one: Record) -> str:
    return (
        f"{one.scenario} {one.router} seed {one.seed}: {one.steps_per_min:.0f} steps/min, "
        f"{one.hit_rate:.0%} hits, turns {one.turn_p50_s:.1f} s, longest {one.turn_max_s:.0f} s, "
        f"router {one.router_ms_per_step:.2f} ms a step, {one.failures} errors, "
        f"events {one.event_lag_p99_s * 1e3:.0f} ms late{'' if one.counts else ': TOO LATE'}"
    )


if __name__ == "__main__":
    sys.exit(main())
