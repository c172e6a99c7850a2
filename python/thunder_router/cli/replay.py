"""`thunder-router replay`: runs a journal again, under the policy it was made with or another."""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from thunder_router.config import PolicyName, SchedulingSettings
from thunder_router.errors import ConfigError
from thunder_router.scheduling import journal
from thunder_router.scheduling.core import new_scheduler
from thunder_router.scheduling.replay import reproduce
from thunder_router.scheduling.whatif import Outcome, as_recorded, turns_of, under

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "replay",
        help="run a journal again",
        description="Runs a journal's events through a fresh scheduler. Without --policy the "
        "decisions must be those of the journal, to the byte. With it, says what that policy would "
        "have done to the waiting.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the journal's newest file")
    parser.add_argument("--print", action="store_true", help="print every line as replayed")
    parser.add_argument("--policy", choices=("off", "paper", "adaptive"), help="try this policy")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replays; 1 if a decision differs."""
    header, lines = journal.read(arguments.file)
    try:
        settings = SchedulingSettings.model_validate(header.scheduling)
    except ValidationError as error:
        raise ConfigError(f"{arguments.file}: its settings are not this version's") from error
    if arguments.policy is not None:
        return _compare([*lines], settings, arguments.policy)
    count = differences = 0
    for line, difference in reproduce(lines, lambda: new_scheduler(settings)):
        count += 1
        if arguments.print:
            print(journal.encode(line))
        if difference is not None:
            differences += 1
            for sign, row in (("-", difference.recorded), ("+", difference.replayed)):
                print(
                    f"{sign} line={difference.number} pool={difference.pool}"
                    f" ms={difference.now_ms} decisions={row}",
                    file=sys.stderr,
                )
    print(f"lines={count} differences={differences}", file=sys.stderr)
    return 1 if differences else 0


def _compare(lines: list[journal.Line], settings: SchedulingSettings, policy: PolicyName) -> int:
    """Two lines for each pool: as recorded, and under `policy`."""
    other = settings.model_copy(update={"policy": policy})
    for pool in dict.fromkeys(line[0] for line in lines):
        mine = [line for line in lines if line[0] == pool]
        _say(pool, f"{settings.policy} (recorded)", as_recorded(mine))
        turns, others = turns_of(mine)
        patience_ms = int(settings.hold_limit_s * 1000)
        tried = under(turns, others, lambda: new_scheduler(other), patience_ms=patience_ms)
        _say(pool, policy, tried)
    return 0


def _say(pool: str, policy: str, outcome: Outcome) -> None:
    held = " ".join(
        f"held_{name}_s={outcome.quantile(share) / 1000:.1f}"
        for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
    )
    print(
        f"pool={pool} policy={policy} admitted={outcome.admitted} rejected={outcome.rejected}"
        f" left={outcome.left} pauses={outcome.pauses} restores={outcome.restores} {held}"
    )
