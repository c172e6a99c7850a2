"""Reads a few series out of a Prometheus exposition.

A worker's `/metrics` holds up to a hundred kilobytes, mostly histogram buckets, of which the router
wants some twenty lines. prometheus_client's parser builds every series and raises at the first line
it does not like; this one looks at the wanted names only and skips what it cannot read.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from thunder_router.workers.lenient import number

__all__ = ["Sample", "samples"]

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: its labels and its finite value."""

    labels: Mapping[str, str]
    value: float


def samples(body: bytes, wanted: Collection[str]) -> dict[str, list[Sample]]:
    """The samples of the `wanted` names, in the order of the text; unreadable lines left out."""
    found: dict[str, list[Sample]] = {}
    for line in body.decode("utf-8", "replace").splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name not in wanted:
            continue
        match = _LINE.match(line)
        value = number(match[3]) if match else None
        if match is None or value is None:
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        found.setdefault(name, []).append(Sample(labels, value))
    return found
