"""What one request costs in the router, beside its peers, in the same run.

    python -m bench.relay                 five rounds, then the table in README.md
    python -m bench.relay --quick         one short round, no README
    python -m bench.relay --json          every sample on stdout

Each round starts every system anew in front of the same two mock workers (`mock_worker.py`) and
puts every load on it (`measure.py`). The router has one core to itself, workers and load share
the others. Ratios are taken within a round (`results.py`).
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.bodies import Bodies, write_bodies
from bench.measure import CHAT_PATH, SCENARIOS, Load, Scenario, fill_memory, require_wrk
from bench.processes import Process, free_port, wait_until_answers
from bench.relay_report import report
from bench.results import Results
from bench.systems import METRICS_PORT_OFFSET, SYSTEMS, System, UnavailableError
from bench.tables import provenance, replace_section

WORKERS = 2
README = Path(__file__).parent / "README.md"


class Bench:
    """The machine's cores, the bodies, and where logs go."""

    def __init__(self, scratch: Path, seconds: float) -> None:
        self._scratch = scratch
        first, *others = sorted(os.sched_getaffinity(0))
        self._router_cores = [first]
        self._other_cores = others or [first]
        self.bodies: Bodies = write_bodies(scratch / "bodies")
        self.load = Load(self.bodies, self._other_cores, seconds)

    def measure(
        self, system: System, turn: int, scenarios: tuple[Scenario, ...], results: Results
    ) -> None:
        """One system, one round: every scenario."""
        with ExitStack() as stack:
            port, router = self._start(system, stack)
            self.load.wrk(port, 16, "fixed", str(self.bodies.small), seconds=1)
            for scenario in scenarios:
                sample = scenario.run(self.load, port, router)
                results.samples[turn, system.name, scenario.name] = sample
                cpu = f"{sample.cpu_us:8.1f} us CPU" if sample.cpu_us else " " * 15
                say(
                    f"  round {turn + 1}  {system.name:26} {scenario.name:16}{cpu}"
                    f"{sample.per_second:10,.0f}/s  p50 {sample.p50_us or 0:8,.0f} us"
                    + (f"  {sample.failures} FAILED" if sample.failures else "")
                )

    def measure_memory(self, system: System, results: Results) -> None:
        """A fresh router, its resident memory, and again after many different prompts."""
        with ExitStack() as stack:
            port, router = self._start(system, stack)
            if router is None:
                return
            before = router.resident_bytes()
            after = fill_memory(self.load, port, router, results.memory_prompts)
            results.resident_bytes[system.name] = before, after
            say(f"  memory   {system.name:26} {before / 1e6:6,.0f} -> {after / 1e6:6,.0f} MB")

    def _start(self, system: System, stack: ExitStack) -> tuple[int, Process | None]:
        """Workers, then the router once they answer; all end with `stack`."""
        ports = [free_port() for _ in range(WORKERS)]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for port, url in zip(ports, urls, strict=True):
            command = [sys.executable, "-m", "bench.mock_worker", "--port", str(port)]
            log = self._scratch / f"worker-{port}.log"
            worker = stack.enter_context(Process(command, cores=self._other_cores, log=log))
            wait_until_answers(f"{url}/health", worker)
        if system.command is None:
            return ports[0], None
        port = free_port(also=METRICS_PORT_OFFSET)
        scratch = self._scratch / system.name.replace(" ", "-")
        scratch.mkdir(exist_ok=True)
        command = system.command(port, urls, scratch)
        router = Process(command, cores=self._router_cores, log=scratch / "log")
        stack.enter_context(router)
        small = self.bodies.small.read_bytes()
        wait_until_answers(f"http://127.0.0.1:{port}{CHAT_PATH}", router, body=small)
        return port, router


def say(text: str) -> None:
    """Progress, on stderr: stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


def run(
    systems: list[System], scenarios: tuple[Scenario, ...], results: Results, *, memory: bool
) -> None:
    """All rounds; a system that cannot be had is noted in `results.missing`."""
    with tempfile.TemporaryDirectory(prefix="thunder-bench-") as scratch:
        bench = Bench(Path(scratch), results.seconds)
        for turn in range(results.rounds):
            for system in systems[turn % len(systems) :] + systems[: turn % len(systems)]:
                if system.name in results.missing:
                    continue
                try:
                    bench.measure(system, turn, scenarios, results)
                except (UnavailableError, FileNotFoundError, RuntimeError) as error:
                    results.missing[system.name] = str(error)
                    say(f"  left out: {system.name}: {error}")
        for system in systems if memory else ():
            if system.name not in results.missing:
                bench.measure_memory(system, results)


def main() -> int:
    """Command line. 1 where our own router is among those that could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round, README untouched")
    parser.add_argument("--json", action="store_true", help="every sample on stdout")
    parser.add_argument("--rounds", type=int, help="default 5, quick 1")
    parser.add_argument("--seconds", type=float, help="of each load; default 3, quick 1")
    parser.add_argument("--memory-prompts", type=int, help="0 for none; default 50,000")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--write",
        action=argparse.BooleanOptionalAction,
        help="put the tables into README.md; default: a whole run does",
    )
    given = parser.parse_args()
    require_wrk()
    whole = not given.quick and given.systems == list(SYSTEMS) and given.scenarios == names
    prompts = given.memory_prompts
    if prompts is None:
        prompts = 2_000 if given.quick else 50_000
    results = Results(
        rounds=given.rounds or (1 if given.quick else 5),
        seconds=given.seconds or (1 if given.quick else 3),
        memory_prompts=prompts,
        origin=provenance(),
    )
    scenarios = tuple(scenario for scenario in SCENARIOS if scenario.name in given.scenarios)
    run([SYSTEMS[name] for name in given.systems], scenarios, results, memory=prompts > 0)
    text = report(results)
    if given.write if given.write is not None else whole:
        replace_section(README, "relay", text)
    print(json.dumps(results.as_json(), indent=1) if given.json else text)
    return int(any(name.startswith("thunder-router") for name in results.missing))


if __name__ == "__main__":
    sys.exit(main())
