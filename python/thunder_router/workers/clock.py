"""The time that worker life runs on. Tests turn one by hand."""

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock"]


class Clock(Protocol):
    """A monotonic clock, and the only way to wait here."""

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`."""
        ...


class MonotonicClock:
    """The real one."""

    def now_s(self) -> float:
        """Seconds of the system's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`, letting others run."""
        await asyncio.sleep(seconds)
