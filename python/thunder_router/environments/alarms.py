"""When to look at what again. Pure.

A key has one alarm, the earliest that anyone asked for. Whoever is looked at too early asks again,
so a later one need not be kept: however often a thing is asked about, it costs one entry.
"""

import heapq
from collections.abc import Iterator

__all__ = ["Alarms"]


class Alarms:
    """Keys by the time at which they are due, in Unix milliseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        """May hold times that an earlier one has replaced; `_at` tells which count."""
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def set(self, at_ms: int, key: str) -> None:
        """Has the key come due then, or earlier if it does already."""
        if at_ms < self._at.get(key, at_ms + 1):
            self._at[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))

    def forget(self, key: str) -> None:
        """The key is not due any more."""
        self._at.pop(key, None)

    def due(self, now_ms: int) -> Iterator[str]:
        """Keys whose time has come; each has no alarm any more when it is named."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            key = heapq.heappop(self._heap)[1]
            del self._at[key]
            yield key

    def next_ms(self) -> int | None:
        """When the next key is due. None: never."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
