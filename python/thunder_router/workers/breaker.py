"""A circuit breaker per worker, fed by what the relay saw.

It opens after a few failures in a row that speak against the worker: nobody listened, the
connection broke, an error status that is not its client's fault. A refusal is not a failure: 4xx,
429 and a 503 that says "queue full" come from a healthy engine (sglang#25811, #39464). An open
circuit lets one probe through after a while, sent by us and not by a client; its success closes the
circuit, its failure doubles the wait, to a minute.
"""

from enum import StrEnum

__all__ = ["Breaker", "Circuit", "Outcome"]

LONGEST_OPEN_S = 60.0


class Outcome(StrEnum):
    """How an exchange speaks of its worker."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


class Circuit(StrEnum):
    """The breaker's three states."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One worker's circuit. Total: any sequence of notes, at times that never go back."""

    def __init__(self, *, failures: int, open_s: float) -> None:
        """Opens after `failures` in a row, at first for `open_s` seconds."""
        self._limit = failures
        self._first_open_s = open_s
        self._open_s = open_s
        self._failures = 0
        self._opened_at_s: float | None = None
        self._probing = False

    @property
    def circuit(self) -> Circuit:
        """Closed: all pass. Open: none. Half open: one probe is under way."""
        if self._opened_at_s is None:
            return Circuit.CLOSED
        return Circuit.HALF_OPEN if self._probing else Circuit.OPEN

    @property
    def touched(self) -> bool:
        """A success would change something."""
        return self._failures > 0 or self._opened_at_s is not None

    def note(self, outcome: Outcome, now_s: float) -> None:
        """One exchange of the relay ended so. A success closes the circuit, whatever it was."""
        match outcome:
            case Outcome.SUCCESS:
                self.close()
            case Outcome.FAILURE:
                self._failures += 1
                if self._opened_at_s is None and self._failures >= self._limit:
                    self._opened_at_s = now_s
            case Outcome.NEUTRAL:
                pass

    def take_probe(self, now_s: float) -> bool:
        """True, once per wait: the caller must send a probe and call `probed`."""
        if self._opened_at_s is None or self._probing:
            return False
        if now_s - self._opened_at_s < self._open_s:
            return False
        self._probing = True
        return True

    def probed(self, outcome: Outcome, now_s: float) -> None:
        """The probe ended so. Neutral (busy) tries again after the same wait."""
        if not self._probing:
            return
        self._probing = False
        match outcome:
            case Outcome.SUCCESS:
                self.close()
            case Outcome.FAILURE:
                self._open_s = min(self._open_s * 2, LONGEST_OPEN_S)
                self._opened_at_s = now_s
            case Outcome.NEUTRAL:
                self._opened_at_s = now_s

    def close(self) -> None:
        """Forgets every failure: they were another run's, or of a network that is whole again."""
        self._failures = 0
        self._opened_at_s = None
        self._probing = False
        self._open_s = self._first_open_s
