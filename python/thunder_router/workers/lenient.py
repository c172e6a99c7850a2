"""Reads values out of answers that may hold anything.

Field sets differ by engine version and front end, numbers arrive as strings, and a future version
may put an object where an integer was. A wrong type is the same as a missing field: each function
gives a value of exactly its type and range, or `None`, and none raises whatever it is given.
"""

import json
import math
from collections.abc import Iterator, Mapping

__all__ = ["count", "flag", "items", "mapping", "number", "parse_json", "text"]

LARGEST = 1 << 53
"""Counts above this are garbage: a double no longer holds them exactly."""


def parse_json(body: bytes) -> object:
    """The JSON value of `body`, or `None` for anything that is not JSON."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Iterator[Mapping[str, object]]:
    """The JSON objects in `value`, if it is a list."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def number(value: object) -> float | None:
    """A finite number, also one written as a string; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: object) -> int | None:
    """A whole number from 0 to 2**53."""
    found = number(value)
    if found is None or found != math.floor(found) or not 0 <= found <= LARGEST:
        return None
    return int(found)


def text(value: object) -> str | None:
    """A string that is not blank, at most 512 characters of it."""
    if not isinstance(value, str) or not value.strip():
        return None
    return value[:512]


def flag(value: object) -> bool | None:
    """A boolean."""
    return value if isinstance(value, bool) else None
