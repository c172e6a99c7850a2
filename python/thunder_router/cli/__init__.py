"""The command line: `thunder-router serve | emulate | simulate | trace | doctor | …`.

Exit codes: 0 done, 1 it ran and the result is bad (a replay that differs, a sick worker),
2 the input is wrong, 130 interrupted. A message for bad input says what is wrong and where, on one
line, without a traceback.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final

from thunder_router.errors import ThunderError

__all__ = ["main"]

_COMMANDS: Final = (
    "serve",
    "emulate",
    "simulate",
    "trace",
    "doctor",
    "replay",
    "env",
    "docker-proxy",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the console script's entry point."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words[0] if words else "").parse_args(words)
    try:
        code: int = arguments.run(arguments)
    except (ThunderError, OSError) as error:
        print(f"thunder-router {arguments.command}: {_plain(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def _parser(wanted: str) -> argparse.ArgumentParser:
    """The parser; a command that is named alone is loaded, so that serving starts at once."""
    parser = argparse.ArgumentParser(
        prog="thunder-router",
        description="A program-aware router for SGLang: schedules whole agent runs.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"thunder-router {version('thunder-router')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in [wanted] if wanted in _COMMANDS else _COMMANDS:
        import_module(f"thunder_router.cli.{command.replace('-', '_')}").add(commands)
    return parser


def _plain(error: Exception) -> str:
    """The message of an error, without the quotes that a KeyError puts around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
