"""A clock that tests turn by hand."""

import heapq
import itertools
from collections.abc import Callable

__all__ = ["HandClock"]


class _Entry:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandClock:
    """Time stands still until `advance`. What is due runs in order, each at its own time."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self._now_ms = now_ms
        self._queue: list[tuple[int, int, _Entry]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def call_at_ms(self, due_ms: int, callback: Callable[[], None]) -> _Entry:
        entry = _Entry(callback)
        heapq.heappush(self._queue, (due_ms, next(self._order), entry))
        return entry

    def call_soon(self, callback: Callable[[], None]) -> _Entry:
        return self.call_at_ms(self._now_ms, callback)

    def advance(self, ms: int = 0) -> None:
        """Lets `ms` milliseconds pass, and runs what falls due."""
        until = self._now_ms + ms
        while self._queue and self._queue[0][0] <= until:
            due_ms, _, entry = heapq.heappop(self._queue)
            self._now_ms = max(self._now_ms, due_ms)
            if entry.callback is not None:
                entry.callback()
        self._now_ms = until

    @property
    def timers(self) -> int:
        """Callbacks that are still to run."""
        return sum(entry.callback is not None for _, _, entry in self._queue)
