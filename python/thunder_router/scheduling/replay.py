"""Runs a journal's events through fresh cores, and looks whether they decide the same.

The core is told everything it knows, time included, so the same events give the same decisions, to
the byte. Under another policy they do not: `whatif` lets events follow from decisions there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from thunder_router.scheduling.core import Scheduler
from thunder_router.scheduling.journal import Line
from thunder_router.scheduling.recorder import BEGIN, TICK, as_row

__all__ = ["Difference", "reproduce"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A tick that decided something else than it did when it was recorded.

    Attributes:
        number: Which line of the series, from 1, headers not counted.
        recorded: The decisions in the journal.
        replayed: What the core decides now.
    """

    number: int
    pool: str
    now_ms: int
    recorded: list[list[Any]]
    replayed: list[list[Any]]


def reproduce(
    lines: Iterable[Line], new_core: Callable[[], Scheduler]
) -> Iterator[tuple[Line, Difference | None]]:
    """Feeds every line to the core of its pool; gives each line as replayed, and any difference."""
    cores: dict[str, Scheduler] = {}
    for number, line in enumerate(lines, start=1):
        pool, now_ms, event, arguments = line
        if event == BEGIN:
            cores[pool] = new_core()
            yield line, None
            continue
        core = cores[pool]
        if event != TICK:
            getattr(core, event)(**arguments, now_ms=now_ms)
            yield line, None
            continue
        replayed = [as_row(decision) for decision in core.tick(now_ms)]
        different = None
        if replayed != arguments:
            different = Difference(number, pool, now_ms, arguments, replayed)
        yield (pool, now_ms, event, replayed), different
