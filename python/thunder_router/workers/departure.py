"""Says when a worker that was asked to leave may go."""

__all__ = ["Departure"]

DRAINED_AFTER_S = 1.0
"""A draining worker must show no request for this long: one may be on its way."""


class Departure:
    """One worker's leave. Times are seconds of one clock and never go back."""

    def __init__(self, limit_s: float) -> None:
        """Nobody asked it to go. Once asked, it goes after `limit_s` whatever runs there."""
        self._limit_s = limit_s
        self._asked_at_s: float | None = None
        self._idle_since_s: float | None = None
        self._idle_at_s: float | None = None

    @property
    def asked(self) -> bool:
        """It was asked to leave."""
        return self._asked_at_s is not None

    def ask(self, now_s: float) -> None:
        """It shall leave; the first time counts."""
        if self._asked_at_s is None:
            self._asked_at_s = now_s

    def take_back(self) -> None:
        """It shall stay."""
        self._asked_at_s = None

    def look(self, idle_at_s: float | None) -> None:
        """It was last seen idle then; `None`: it is not idle now."""
        self._idle_at_s = idle_at_s
        if idle_at_s is None or self._idle_since_s is None:
            self._idle_since_s = idle_at_s

    def due(self, now_s: float) -> bool:
        """It may go now: idle for a while since it was asked, or asked too long ago."""
        if self._asked_at_s is None:
            return False
        idle_s = 0.0
        if self._idle_at_s is not None and self._idle_since_s is not None:
            idle_s = self._idle_at_s - max(self._idle_since_s, self._asked_at_s)
        return idle_s >= DRAINED_AFTER_S or now_s - self._asked_at_s >= self._limit_s
