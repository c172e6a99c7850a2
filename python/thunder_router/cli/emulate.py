"""`thunder-router emulate`: SGLang workers without a GPU, which say that they are emulated."""

import argparse

from thunder_router.cli import logs
from thunder_router.cli.flags import add_flags, options_of
from thunder_router.emulator import EmulatorOptions, serve

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command: one flag for each of the emulator's options."""
    parser = commands.add_parser(
        "emulate",
        help="serve emulated SGLang workers",
        description="Serves SGLang-shaped workers whose times come from an engine model.",
        allow_abbrev=False,
    )
    add_flags(parser, EmulatorOptions)
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal."""
    logs.configure(arguments.log_level)
    serve(options_of(arguments, EmulatorOptions))
    return 0
