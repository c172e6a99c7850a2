"""`thunder-router emulate`: SGLang workers without a GPU, which say that they are emulated."""

import argparse
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from thunder_router.cli import logs
from thunder_router.emulator import EmulatorOptions, serve
from thunder_router.errors import ConfigError

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command: one flag for each of the emulator's options."""
    parser = commands.add_parser(
        "emulate",
        help="serve emulated SGLang workers",
        description="Serves SGLang-shaped workers whose times come from an engine model.",
        allow_abbrev=False,
    )
    for name, field in EmulatorOptions.model_fields.items():
        flag = "--" + name.replace("_", "-")
        default = field.default
        shown = "" if default in (None, PydanticUndefined) else f" ({default})"
        about = (field.description or name.replace("_", " ")) + shown
        if isinstance(default, bool):
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=argparse.SUPPRESS, help=about)
        else:
            parser.add_argument(
                flag,
                metavar=name.split("_")[-1].upper(),
                type=int if isinstance(default, int) else str,  # a choice of integers needs one
                default=argparse.SUPPRESS,
                help=about,
            )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal."""
    logs.configure(arguments.log_level)
    given: dict[str, Any] = {
        name: value
        for name, value in vars(arguments).items()
        if name in EmulatorOptions.model_fields
    }
    try:
        options = EmulatorOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigError(f"{flag}: {first['msg']}") from error
    serve(options)
    return 0
