"""What each piece of the adaptive policy is worth: every scenario once more, without it.

    python -m bench.simulated.ablations                   everything, into results/ablations.md
    python -m bench.simulated.ablations --only mini       scenarios by a part of their name

Shorter days than the policies' own table: the ratios are taken within a seed, so they need no hour.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from bench.simulated.days import Days
from bench.simulated.scenarios import Scenario, scenarios
from bench.tables import HERE, figure, provenance, table
from thunder_router.config import SchedulingSettings
from thunder_router.emulator.comparison import ratio

SEEDS: Final = (31, 32, 33, 34, 35)
SHORT: Final = {"warmup_s": 600, "measured_s": 1200}

PIECES: Final[Mapping[str, Mapping[str, Any]]] = {
    "events (ticks of 5 s)": {"event_driven": False, "tick_s": 5},
    "shared prefix": {"shared_prefix": False},
    "origins": {"origin_affinity": False},
    "room for growth": {
        "growth_steps_paused": 0,
        "growth_steps_new": 0,
        "margin_min": 0,
        "margin_max": 0,
    },
    "displacement": {"displacement_eta": 0},
    "leases": {"lease_s": 3600, "lease_min_s": 3600},
    "displacement, leases": {"displacement_eta": 0, "lease_s": 3600, "lease_min_s": 3600},
    "margin that learns": {"aimd": False},
    "claims": {"reservation_s": None},
    "time slices": {"time_slice_s": None},
    "marks at 97 %": {"mark_running_above": 1.0},
    "host tier": {"host_tier": False},
}
"""The settings that switch a piece off."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays every scenario with everything, then without each piece."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="days to play")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--claude-code", default="claude-code", help="a file of recorded sessions")
    chosen = parser.parse_args(arguments)
    if len(chosen.seeds) < 2:
        parser.error("2 seeds make an interval")
    origin = provenance()
    played = [
        replace(one, differs={**SHORT, **one.differs})
        for one in _scenarios(chosen.claude_code)
        if any(part.lower() in one.name.lower() for part in chosen.only)
    ]
    whole = Days(chosen.seeds, SchedulingSettings())
    without = {
        piece: Days(chosen.seeds, SchedulingSettings.model_validate(differs))
        for piece, differs in PIECES.items()
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for scenario in played:
            for days in (whole, *without.values()):
                days.play(pool, scenario.name, scenario.day, ("adaptive",))
            print(scenario.name, file=sys.stderr, flush=True)
    text = _report(whole, without, [scenario.name for scenario in played], origin)
    if chosen.only == [""]:
        (HERE / "results" / "ablations.md").write_text(text)
    else:
        print(text)
    return 0


def _scenarios(claude_code: str) -> tuple[Scenario, ...]:
    hicache = {
        "workload": "openhands",
        "model": "minimax-m2.5",
        "hicache_ratio": 2.0,
        "programs": 160,
    }
    return (
        *scenarios(claude_code),
        Scenario("OpenHands, MiniMax-M2.5, HiCache 2×, 160", hicache),
    )


def _report(whole: Days, without: Mapping[str, Days], names: Sequence[str], origin: str) -> str:
    minutes = SHORT["measured_s"] // 60
    seeds = ", ".join(map(str, whole.seeds))
    rates, holds = [], []
    for name in names:
        key = name, "adaptive"
        ratios = (ratio(days.played[key], whole.played[key]) for days in without.values())
        rates.append([name, figure(whole.steps(*key).mean, 1), *map(str, ratios)])
        longest = (
            figure(days.most(*key, lambda day: day.hold_max_ms) / 1e3)
            for days in (whole, *without.values())
        )
        holds.append([name, *longest])
    return f"""# The pieces of the adaptive policy, each left out

`python -m bench.simulated.ablations` writes this file. {origin}

Simulated, {minutes} virtual minutes after {SHORT["warmup_s"] // 60} to warm up, seeds {seeds}.
Steps per minute with everything, then the ratio without a piece, with its 95 % interval.

{table(["simulated, without", "steps/min", *PIECES], rates)}

The longest hold of all seeds, seconds.

{table(["simulated, without", "nothing", *PIECES], holds)}
"""


if __name__ == "__main__":
    sys.exit(main())
