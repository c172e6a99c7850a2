"""What the policies make of whole days, in virtual time on the engine model.

    python -m bench.simulated                  five seeds, a few minutes, table in README.md
    python -m bench.simulated --seeds 21 22    other days

Every figure is simulated: none was measured on a GPU. All policies meet the same programs under the
same seed, so ratios are taken per seed; their mean is given with its 95 % interval (Student's t).
Seeds 11 to 13 were played while the price of a restore was chosen; the defaults here were not.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.tables import HERE, figure, provenance, replace_section, table
from thunder_router.config import SchedulingSettings
from thunder_router.emulator.simulation import SimulationOptions, SimulationReport, simulate

SEEDS = (31, 32, 33, 34, 35)
DAY = SimulationOptions(warmup_s=600, measured_s=1200)

SCENARIOS: dict[str, dict[str, object]] = {
    "mini-SWE, 96": {},
    "OpenHands, 96": {"workload": "openhands"},
    "OSWorld, 96": {"workload": "osworld"},
    "mini-SWE, 144 on two workers": {"workers": 2, "programs": 144},
    "OpenHands, 144 on two workers": {"workload": "openhands", "workers": 2, "programs": 144},
    "mini-SWE, 96, never released": {"never_release": True},
    **{
        f"OpenHands, {programs}, MiniMax, HiCache 2×": {
            "workload": "openhands",
            "model": "minimax-m2.5",
            "hicache_ratio": 2.0,
            "programs": programs,
        }
        for programs in (96, 128, 160, 192)
    },
}
"""What differs from `DAY`; the model is GLM-4.6 on one worker where nothing is said."""

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays every scenario and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="days to play")
    parser.add_argument("--print", action="store_true", help="leave README.md alone")
    chosen = parser.parse_args(arguments)
    if not 2 <= len(chosen.seeds) <= len(T_95) + 1:
        parser.error(f"2 to {len(T_95) + 1} seeds make an interval")
    origin = provenance()
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, differs in SCENARIOS.items():
            day = DAY.model_copy(update=differs)
            played = {
                router: list(
                    pool.map(lambda seed, r=router, d=day: _play(d, r, seed), chosen.seeds)
                )
                for router in ("paper", "adaptive")
            }
            rows.append(_row(name, played["paper"], played["adaptive"]))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["simulated", "paper, steps/min", "adaptive, steps/min", "adaptive/paper"]
    head += ["turn p50, s", "longest hold, s"]
    minutes = DAY.measured_s // 60
    seeds = ", ".join(map(str, chosen.seeds))
    text = (
        f"{origin}\n\nSimulated, {minutes} virtual minutes after {DAY.warmup_s // 60} to warm up, "
        f"seeds {seeds}. The last two columns: paper → adaptive.\n\n{table(head, rows)}"
    )
    if chosen.print:
        print(text)
    else:
        replace_section(HERE / "README.md", "simulated", text)
    return 0


def _play(day: SimulationOptions, router: str, seed: int) -> SimulationReport:
    return simulate(day, router, SchedulingSettings(), seed=seed)


def _row(
    name: str, paper: Sequence[SimulationReport], adaptive: Sequence[SimulationReport]
) -> list[str]:
    pairs = zip(adaptive, paper, strict=True)
    ratios = [ours.steps_per_min / theirs.steps_per_min for ours, theirs in pairs]
    error = T_95[len(ratios) - 2] * statistics.stdev(ratios) / math.sqrt(len(ratios))
    both = (paper, adaptive)
    steps = [statistics.mean(day.steps_per_min for day in days) for days in both]
    turns = [statistics.mean(day.turn_p50_ms for day in days) / 1e3 for days in both]
    holds = [max(day.hold_max_ms for day in days) / 1e3 for days in both]
    return [
        name,
        figure(steps[0]),
        figure(steps[1]),
        f"{statistics.mean(ratios):.2f} ± {error:.2f}",
        f"{figure(turns[0], 1)} → {figure(turns[1], 1)}",
        f"{figure(holds[0])} → {figure(holds[1])}",
    ]


if __name__ == "__main__":
    sys.exit(main())
