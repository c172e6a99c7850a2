"""The demo: the same agent runs through the router twice, unscheduled and scheduled.

    python -m bench.demo                two minutes at most
    python -m bench.demo --quick        a small one, a few seconds

Workers are emulated (`thunder-router emulate`): no GPU is needed, and the figures say what the
engine model says, not what a GPU measured. The router, its HTTP and its clients are real.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.demo.fleet import Policy, Scale, fleet
from bench.demo.phase import run_phase
from bench.demo.tally import Tally
from bench.demo.view import live_view

POLICIES: tuple[Policy, ...] = ("off", "adaptive")
WHOLE = Scale(workers=2, programs=144, capacity_tokens=None, speed=20, warm_up_s=14, measure_s=25)
QUICK = Scale(workers=2, programs=16, capacity_tokens=100_000, speed=40, warm_up_s=1, measure_s=4)


def result_table(results: dict[Policy, Tally], scale: Scale) -> Table:
    """What each policy made of the same runs, and the ratio."""
    off, adaptive = (results[policy] for policy in POLICIES)
    table = Table(
        title=f"{scale.programs} agent programs on {scale.workers} emulated workers, "
        f"{off.measured_s / 60:.0f} minutes of engine time each",
        caption="Emulated engines: these figures are the engine model's, not a GPU's.",
    )
    table.add_column("")
    for policy in POLICIES:
        table.add_column(f"policy {policy}", justify="right")
    table.add_column("ratio", justify="right")

    def row(name: str, figure: Callable[[Tally], float], form: str) -> None:
        before, after = figure(off), figure(adaptive)
        ratio = f"{after / before:.2f}" if before else "–"
        table.add_row(name, form.format(before), form.format(after), ratio)

    row("steps a minute", lambda tally: tally.steps_per_minute, "{:,.0f}")
    row("programs finished", lambda tally: tally.programs_finished, "{:,.0f}")
    row("prompt tokens found in the KV cache", lambda tally: tally.hit_rate, "{:.0%}")
    row("tokens computed again per step", lambda tally: tally.recomputed_per_step, "{:,.0f}")
    row("longest wait for an answer, s", lambda tally: tally.longest_wait_s, "{:,.0f}")
    return table


def run(scale: Scale, seed: int, console: Console) -> dict[Policy, Tally]:
    """Both phases on the same seed, each with fresh processes."""
    results: dict[Policy, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="thunder-demo-") as scratch:
        for policy in POLICIES:
            with (
                fleet(scale, policy, seed, Path(scratch) / policy) as url,
                live_view(console) as show,
            ):
                results[policy] = asyncio.run(run_phase(url, policy, scale, seed, show))
    return results


def main() -> int:
    """Command line. 1 where a request failed or nothing was served."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small one, a few seconds")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    scale = QUICK if given.quick else WHOLE
    console = Console()
    try:
        results = run(scale, given.seed, console)
    except (FileNotFoundError, RuntimeError) as error:
        console.print(f"error: {error}", style="red")
        return 1
    except ExceptionGroup as failed:
        console.print(f"error: {failed.exceptions[0]!r}", style="red")
        return 1
    console.print(result_table(results, scale))
    return int(any(tally.steps == 0 for tally in results.values()))


if __name__ == "__main__":
    sys.exit(main())
