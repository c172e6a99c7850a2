"""`thunder-router trace convert`: a journal or a request log as a trace for the simulator."""

import argparse
import sys
from pathlib import Path

from thunder_router.emulator.traces import load, write

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "trace", help="turn logs into traces for the simulator", allow_abbrev=False
    )
    steps = parser.add_subparsers(required=True, metavar="convert")
    convert = steps.add_parser(
        "convert",
        help="write a trace",
        description="Reads a journal, or a log of requests and answers as JSON lines (OpenAI's "
        "batch output, LiteLLM, Langfuse and their like), and writes its sessions as a trace. "
        "No text is kept: tokens, times, and how much of each prompt the turn before had too.",
        allow_abbrev=False,
    )
    convert.add_argument("input", type=Path, metavar="IN", help="a journal or a request log")
    convert.add_argument("output", type=Path, metavar="OUT", help="where the trace goes")
    convert.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Converts, and says how much it was."""
    trace = load(arguments.input)
    write(trace, arguments.output)
    print(
        f"read={trace.form.replace(' ', '_')} sessions={len(trace.sessions)} turns={trace.turns}",
        file=sys.stderr,
    )
    return 0
