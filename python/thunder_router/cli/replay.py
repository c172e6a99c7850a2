"""`thunder-router replay`: runs a journal again, under the policy it was made with or another."""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from thunder_router.config import SchedulingSettings
from thunder_router.errors import ConfigError
from thunder_router.scheduling import journal
from thunder_router.scheduling.core import new_scheduler
from thunder_router.scheduling.replay import reproduce

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "replay",
        help="run a journal again",
        description="Runs a journal's events through a fresh scheduler. Without --policy the "
        "decisions must be those of the journal, to the byte; they are printed with --print.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the journal's newest file")
    parser.add_argument("--print", action="store_true", help="print every line as replayed")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replays; 1 if a decision differs."""
    header, lines = journal.read(arguments.file)
    try:
        settings = SchedulingSettings.model_validate(header.scheduling)
    except ValidationError as error:
        raise ConfigError(f"{arguments.file}: its settings are not this version's") from error
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
