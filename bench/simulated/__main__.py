"""What the policies and their baselines make of whole days, in virtual time on the engine model.

    python -m bench.simulated                          everything, about a quarter of an hour
    python -m bench.simulated --only "Claude Code"     scenarios and sweeps by a part of their name
    python -m bench.simulated --seeds 21 22 23         other days
    python -m bench.simulated --claude-code FILE       recorded sessions instead of the fitted ones

Every figure is simulated: none was measured on a GPU. All routers meet the same programs under the
same seed, so ratios are taken per seed; their mean is given with its 95 % interval (Student's t).
Tables go to README.md, pictures and every day's figures to results/. Seeds 11 to 13 were played
while the price of a restore was chosen; the defaults here were not.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.simulated.days import Days
from bench.simulated.report import ROUTERS, describe, picture, report
from bench.simulated.scenarios import SWEEPS, scenarios
from bench.tables import HERE, provenance, replace_section
from thunder_router.config import SchedulingSettings

SEEDS = (31, 32, 33, 34, 35)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays what was chosen, and writes tables and pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="days to play")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--claude-code", default="claude-code", help="a file of recorded sessions")
    parser.add_argument("--print", action="store_true", help="write nothing but the tables, here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="days at a time")
    chosen = parser.parse_args(arguments)
    if len(chosen.seeds) < 2:
        parser.error("2 seeds make an interval")

    def wanted(name: str) -> bool:
        return any(part.lower() in name.lower() for part in chosen.only)

    origin = provenance()
    days = Days(chosen.seeds, SchedulingSettings())
    single = [one for one in scenarios(chosen.claude_code) if wanted(one.name)]
    sweeps = [sweep for sweep in SWEEPS if wanted(sweep.title)]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for scenario in single:
            days.play(pool, scenario.name, scenario.day, ROUTERS)
            print(describe(days, scenario.name, ROUTERS), file=sys.stderr, flush=True)
        for sweep in sweeps:
            for _, scenario in sweep.scenarios():
                days.play(pool, scenario.name, scenario.day, sweep.routers)
                print(describe(days, scenario.name, sweep.routers), file=sys.stderr, flush=True)
    text = report(days, single, sweeps, origin)
    if chosen.print:
        print(text)
        return 0
    results = HERE / "results"
    for sweep in sweeps:
        (results / f"simulated-{sweep.name}.svg").write_text(picture(days, sweep, origin))
    if chosen.only == [""]:
        figures = {"origin": origin, "claude_code": Path(chosen.claude_code).name, **days.as_json()}
        (results / "simulated.json").write_text(json.dumps(figures, indent=1) + "\n")
        replace_section(HERE / "README.md", "simulated", text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
