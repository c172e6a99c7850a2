"""Scheduling on a real SGLang: the same agent programs, unscheduled, gated by hand, and scheduled.

One engine with a model that prefills slowly enough to hurt, and a KV pool of 4,096 tokens: too
small for all programs at once. Unscheduled, each turn finds its context evicted by the others. A
gate that lets the right number of programs through avoids that, if somebody knows the right number;
the adaptive policy has to find it. Every arm goes through the router, one after another in each
round, on an empty cache.

Needs the engine of `make test-engine`. All arms share two cores with it, so the seconds are worth
what the machine's other load leaves of them: the table says what that was.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.processes import Process, console_script, free_port, wait_until_answers
from bench.sglang_server import CAPACITY_TOKENS, SESSIONS, SGLang, lacking, sglang
from bench.tables import figure, provenance, replace_section, table
from bench.token_agents import Workload, run

__all__ = ["main"]

HERE = Path(__file__).parent
CACHE = HERE / ".cache"


@dataclass(frozen=True)
class Arm:
    """One way to run the programs."""

    name: str
    policy: str
    gate: int | None = None


ARMS = {
    arm.name: arm
    for arm in (
        Arm("policy off", "off"),
        *(Arm(f"off, gate of {gate}", "off", gate) for gate in (2, 3, 4, 8)),
        Arm("adaptive", "adaptive"),
    )
}


@dataclass(frozen=True)
class Run:
    """One arm in one round."""

    arm: str
    seconds: float
    hit_rate: float
    prefilled_tokens: int
    output_per_s: float
    longest_turn_s: float
    engine_cpu_s: float
    """What the engine computed, in CPU seconds: hardly changed by other load on the machine."""
    others_cores: float
    """Cores that neither the engine, nor the router, nor this process used."""


def measure(engine: SGLang, arm: Arm, load: Workload, seed: int, folder: Path) -> Run:
    """Runs the programs once, on an empty cache, through a router of its own."""
    engine.ask("/flush_cache", {})
    journal = folder / f"{arm.policy}-{arm.gate or 'all'}-{seed}.journal"
    journal.unlink(missing_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(console_script("thunder-router"), "serve", "--host", "127.0.0.1", "--port", str(port)),
        *("--policy", arm.policy, "--worker-urls", engine.url),
    ]
    environment = {"THUNDER_JOURNAL__PATH": str(journal)}
    with Process(command, log=folder / "router.log", environment=environment) as router:
        wait_until_answers(f"{url}/readiness", router, timeout_s=60)
        others_s = -_others_seconds(engine.process, router)
        engine_s = -engine.process.cpu_seconds()
        tally = asyncio.run(run(url, load, seed=seed, gate=arm.gate))
        engine_s += engine.process.cpu_seconds()
        others_s += _others_seconds(engine.process, router)
    return Run(
        arm.name,
        tally.seconds,
        tally.hit_rate,
        tally.prompt_tokens - tally.cached_tokens,
        tally.output_per_s,
        tally.longest_turn_s,
        engine_s,
        max(0.0, others_s / tally.seconds),
    )


def _others_seconds(*ours: Process) -> float:
    """CPU seconds so far of everything on this machine but these and this process."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    busy_s = (user + nice + system + irq + softirq) / 100
    return busy_s - sum(process.cpu_seconds() for process in ours) - time.process_time()


def report(result: dict[str, Any]) -> str:
    """The section of README.md."""
    load = Workload(**result["workload"])
    runs = [Run(**one) for one in result["runs"]]
    arms = list(dict.fromkeys(one.arm for one in runs))
    of = {arm: [one for one in runs if one.arm == arm] for arm in arms}
    medians = {arm: statistics.median(one.seconds for one in of[arm]) for arm in arms}
    gates = {arm: seconds for arm, seconds in medians.items() if "gate" in arm}
    best = min(gates, key=gates.__getitem__) if gates else None
    rows = [
        [
            arm,
            " / ".join(figure(one.seconds, 1) for one in of[arm]),
            figure(_beside(of[arm], of[best]) if best else None, 2),
            *(
                figure(statistics.median(getattr(one, name) for one in of[arm]), digits)
                for name, digits in (
                    ("hit_rate", 2),
                    ("prefilled_tokens", 0),
                    ("output_per_s", 1),
                    ("longest_turn_s", 1),
                    ("engine_cpu_s", 1),
                )
            ),
            figure(max(one.others_cores for one in of[arm]), 2),
        ]
        for arm in arms
    ]
    head = ["", "seconds", "× best gate", "prefix hits", "prefilled", "output tok/s",
            "longest turn, s", "engine's CPU s", "others' cores"]  # fmt: skip
    last = load.first + (load.turns - 1) * (load.output + load.observation)
    return "\n".join(
        [
            result["provenance"],
            "",
            f"SGLang 0.5.23 on this CPU, a model of 25 million parameters, {CAPACITY_TOKENS:,}",
            f"tokens of KV and no host tier. {load.programs} programs of {load.turns} turns, from",
            f"{load.first} to {last:,} tokens, {load.output} tokens of output a turn, tools of",
            f"{load.tool_s:g} s. Seconds of every run; × is beside the best gate's in the same",
            "round, the median over rounds. The rest are medians, except the cores that other work",
            "on the machine took: the most in any run. Where that is not near 0, the engine's own",
            "CPU seconds compare better than the clock's. A wait at a gate is not part of a turn,",
            "the router's holding is.",
            "",
            table(head, rows),
        ]
    )


def _beside(arm: Sequence[Run], best: Sequence[Run]) -> float:
    """Seconds over those of the best gate in the same round: the median, as in `results`."""
    return statistics.median(a.seconds / b.seconds for a, b in zip(arm, best, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, writes the JSON, and fills the section of README.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_sglang", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=int, default=Workload.programs)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM")
    parser.add_argument("--output", type=Path, default=CACHE / "real_sglang.json")
    parser.add_argument("--no-report", action="store_true", help="leave README.md alone")
    arguments = parser.parse_args(argv)
    if why := lacking():
        print(f"not measured: {why}: run make test-engine", file=sys.stderr)
        return 1
    load = Workload(programs=arguments.programs)
    journals = arguments.output.with_suffix("")
    journals.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="thunder-b-"))
    where = provenance()
    runs: list[Run] = []
    try:
        with sglang(folder, *SESSIONS, shape="mid") as engine:
            warm = Workload(programs=2, turns=2)
            measure(engine, ARMS["policy off"], warm, seed=0, folder=folder)
            for seed in range(1, arguments.rounds + 1):
                for name in arguments.arms:
                    one = measure(engine, ARMS[name], load, seed, journals)
                    print(one, flush=True)
                    runs.append(one)
                _write(runs, load, where, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _write(runs: Sequence[Run], load: Workload, where: str, arguments: argparse.Namespace) -> None:
    """Puts down what the rounds so far have shown."""
    result = {
        "provenance": where,
        "workload": asdict(load),
        "runs": [asdict(one) for one in runs],
    }
    arguments.output.write_text(json.dumps(result, indent=1))
    text = report(result)
    print(text)
    if not arguments.no_report:
        replace_section(HERE / "README.md", "real-sglang", text)


if __name__ == "__main__":
    sys.exit(main())
