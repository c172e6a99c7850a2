"""Signs of life on a stream that waits."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

__all__ = ["Comments"]


class Comments:
    """Calls `say` every `period_s` seconds until stopped."""

    def __init__(self, loop: AbstractEventLoop, period_s: float, say: Callable[[], None]) -> None:
        self._loop = loop
        self._period_s = period_s
        self._say = say
        self._timer: TimerHandle = loop.call_later(period_s, self._fire)

    def _fire(self) -> None:
        self._timer = self._loop.call_later(self._period_s, self._fire)
        self._say()

    def stop(self) -> None:
        """Says nothing more."""
        self._timer.cancel()
