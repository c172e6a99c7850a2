"""One flag for each field of an options model, and the model back from the flags given."""

import argparse
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from thunder_router.errors import ConfigError

__all__ = ["add_flags", "options_of"]

Options = TypeVar("Options", bound=BaseModel)


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """A flag for each field, with its docstring and default; defaults stay in the model."""
    for name, field in model.model_fields.items():
        flag = "--" + name.replace("_", "-")
        default = field.default
        shown = "" if default in (None, PydanticUndefined) else f" ({default})"
        about = ((field.description or name.replace("_", " ")) + shown).replace("%", "%%")
        if isinstance(default, bool):
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=argparse.SUPPRESS, help=about)
        else:
            parser.add_argument(
                flag, metavar=name.split("_")[-1].upper(), default=argparse.SUPPRESS, help=about
            )


def options_of(arguments: argparse.Namespace, model: type[Options]) -> Options:
    """The model of the flags that were given.

    Raises:
        ConfigError: a value is out of range or no such value; the message names the flag.
    """
    given: dict[str, Any] = {
        name: value for name, value in vars(arguments).items() if name in model.model_fields
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigError(f"{flag}: {first['msg']}") from error
