"""Reads a worker's sign off what was seen of it.

Four kinds of silence look alike from far and must not be taken for one another:

- Nobody listens. For a few seconds that is a restart or a flap, then the worker is lost.
- Somebody listens and does not answer. A busy engine does that; while the relay still gets tokens
  out of it, it is alive. Only long silence on every side means hung.
- It answers "not ready" and its work stands still: paused, for a weight sync.
- It answers "not ready" and its work goes on: it got SIGTERM and finishes what it has.

Source: measured on SGLang 0.5.23. A pause `in_place` freezes `/v1/loads`; one in mode `abort`
leaves the engine idle and its snapshots fresh; after SIGTERM tokens flow until the last stream is
at its end.
"""

from dataclasses import dataclass

from thunder_router.workers.life import Sign

__all__ = ["Limits", "Vitals"]

LEAVING_EVIDENCE_S = 2.0
"""Work that goes on for this long after "not ready" means draining, not paused."""

SNAPSHOT_GAP_S = 1.5
"""Snapshots further apart than this do not show work going on: a pause ended, or one came late."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each silence may last, in seconds; see `WorkerSettings`."""

    down_after_s: float
    hung_after_s: float
    unready_limit_s: float


class Vitals:
    """One worker's signs of life. Times never go back."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._alive_at_s = now_s
        self._refused_since_s: float | None = None
        self._unready_since_s: float | None = None
        self._working_since_s = 0.0
        self._last_snapshot_s: float | None = None
        self._last_work: tuple[object, ...] | None = None
        self._leaving = False

    def answered(self, now_s: float) -> None:
        """An HTTP answer came, of whatever status; or the relay got bytes."""
        self._alive_at_s = now_s
        self._refused_since_s = None

    def refused(self, now_s: float) -> None:
        """Nobody listens."""
        if self._refused_since_s is None:
            self._refused_since_s = now_s

    def readiness(self, ready: bool, now_s: float) -> None:
        """It said whether it takes work."""
        if ready:
            self._unready_since_s = None
            self._last_snapshot_s = None
            self._leaving = False
        elif self._unready_since_s is None:
            self._unready_since_s = now_s

    def snapshot(self, taken_at_s: float, work: tuple[object, ...] | None) -> None:
        """It showed a load snapshot, and we watch what it does while it is not ready.

        Args:
            taken_at_s: When it was taken, by the engine's own clock.
            work: Whatever changes when tokens are computed; `None` where nothing runs.
        """
        if self._unready_since_s is None or taken_at_s == self._last_snapshot_s:
            return
        last_s, self._last_snapshot_s = self._last_snapshot_s, taken_at_s
        last_work, self._last_work = self._last_work, work
        goes_on = last_s is not None and 0 < taken_at_s - last_s <= SNAPSHOT_GAP_S
        if not goes_on or work is None or work == last_work:
            self._working_since_s = taken_at_s
        elif taken_at_s - self._working_since_s >= LEAVING_EVIDENCE_S:
            self._leaving = True

    @property
    def trusted(self) -> bool:
        """It takes work, as far as anybody said: its snapshots need not be watched one by one."""
        return self._unready_since_s is None and self._refused_since_s is None

    @property
    def absent(self) -> bool:
        """Nobody listened when last tried."""
        return self._refused_since_s is not None

    def sign(self, now_s: float) -> Sign:
        """What it looks like now."""
        if self._refused_since_s is not None:
            lost = self._leaving or now_s - self._refused_since_s >= self._limits.down_after_s
            return Sign.LOST if lost else Sign.NOT_READY
        silent_s = now_s - self._alive_at_s
        if silent_s >= self._limits.hung_after_s:
            return Sign.LOST
        if silent_s >= self._limits.down_after_s:
            return Sign.NOT_READY
        if self._leaving:
            return Sign.LEAVING
        if self._unready_since_s is not None:
            long = now_s - self._unready_since_s >= self._limits.unready_limit_s
            return Sign.LOST if long else Sign.NOT_READY
        return Sign.SERVING
