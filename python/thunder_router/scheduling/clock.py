"""Time as the driver sees it: whole milliseconds, and callbacks at a time.

The driver never asks a clock of its own, so a test turns this one by hand.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "LoopClock", "Timer"]


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Never run it. Harmless when it has run."""


class Clock(Protocol):
    """A monotonic clock with timers. All on one thread, never re-entrant."""

    def now_ms(self) -> int:
        """Milliseconds since some fixed moment."""

    def call_at_ms(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Runs `callback` once, at `due_ms` or soon after."""

    def call_soon(self, callback: Callable[[], None]) -> Timer:
        """Runs `callback` once, after what is running now."""


class LoopClock:
    """The event loop's own clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time

    def now_ms(self) -> int:
        """Milliseconds of the loop's monotonic clock."""
        return int(self._time() * 1000)

    def call_at_ms(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Runs `callback` once `now_ms()` has reached `due_ms`."""
        return self._loop.call_at(due_ms / 1000, callback)

    def call_soon(self, callback: Callable[[], None]) -> Timer:
        """Runs `callback` in the next turn of the loop."""
        return self._loop.call_soon(callback)
