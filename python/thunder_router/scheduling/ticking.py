"""A scheduler core with a clock: asked when it wants to be asked, replaced when its books break.

Theory of operation. Events go into the core with the time; its decisions come out of `tick`. Who
cannot wait asks at once (`decide`); everybody else is served in the next turn of the loop, once for
all events until then (`ask_soon`). One timer stands for the moment that the core itself names.

The core may have bugs; clients must not feel them. What it refuses is logged and counted, and the
caller hears that it was refused. A core whose books are broken, or that fails to tick three times
in a row, is replaced by a fresh one, which the owner fills again. If that one breaks within a
second too, it rests for a second: it is told events but not asked, and the caller does without.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from thunder_router.errors import InvariantError
from thunder_router.scheduling.clock import Clock, Timer
from thunder_router.scheduling.core import Decision
from thunder_router.scheduling.recorder import Core

__all__ = ["TickingCore"]

_LOG = logging.getLogger(__name__)
_RETRY_MS: Final = 1000
"""A core whose tick failed is asked again after this long."""
_TICK_FAILURES: Final = 3
"""Failed ticks in a row after which a core is replaced."""


class TickingCore:
    """One core, its timer, and what is done when it fails.

    Attributes:
        core: The core of the moment; do not keep it.
        now_ms: The clock.
        counts: Incidents by kind; shared with the owner's.
    """

    def __init__(
        self,
        name: str,
        new_core: Callable[[], Core],
        clock: Clock,
        counts: Counter[str],
        carry_out: Callable[[Decision], None],
        refill: Callable[[Core], None],
    ) -> None:
        """Starts with an empty core.

        Args:
            name: For the log.
            new_core: Makes an empty core.
            clock: All time comes from here.
            counts: Incidents are counted here.
            carry_out: Called with each decision, in order.
            refill: Called after a replacement, with the broken core: the new one knows nothing.
        """
        self.core = new_core()
        self.now_ms = clock.now_ms
        self.counts = counts
        self._name = name
        self._new_core = new_core
        self._clock = clock
        self._carry_out = carry_out
        self._refill = refill
        self._timer: Timer | None = None
        self._due_ms = 0
        self._asked = False
        self._tick_failures = 0
        self._replacing = False
        self._replaced_ms = -_RETRY_MS
        self._resting = False

    def tell(self, name: str, event: Callable[[Core, int], object]) -> bool:
        """Gives the core an event and the time; it is asked soon. False: it was refused."""
        self.ask_soon()
        try:
            event(self.core, self._clock.now_ms())
        except Exception as error:
            self.failed(name, error)
            return False
        return True

    def decide(self, now_ms: int) -> bool:
        """Asks the core and has its decisions carried out. False: it failed, or it rests."""
        if self._resting:
            return False
        self._asked = False
        try:
            decisions = self.core.tick(now_ms)
            wait_ms = self.core.next_tick_ms(now_ms)
        except Exception as error:
            self._tick_failures += 1
            broken = self._tick_failures >= _TICK_FAILURES
            self.failed("tick", InvariantError(str(error)) if broken else error)
            self._arm(now_ms + _RETRY_MS)
            return False
        self._tick_failures = 0
        for decision in decisions:
            self._carry_out(decision)
        if wait_ms is not None:
            # A core that wants to be asked again at once, for ever, must not starve the loop.
            self._arm(now_ms + max(wait_ms, 1))
        return True

    def ask_soon(self) -> None:
        """The core is asked in the next turn of the loop, once for all events until then."""
        if not self._asked and not self._resting:
            self._asked = True
            self._clock.call_soon(self._asked_for)

    def failed(self, event: str, error: Exception) -> None:
        """Logs what went wrong between the core and us; broken books mean a new core."""
        self.counts["core_failure"] += 1
        _LOG.warning("core_failure pool=%s event=%s error=%r", self._name, event, error)
        if isinstance(error, InvariantError) and not self._replacing and not self._resting:
            self._replace()

    def close(self) -> None:
        """No timer runs on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _replace(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._replaced_ms < _RETRY_MS:
            self._resting = True
            self._arm(now_ms + _RETRY_MS)
        self._replaced_ms = now_ms
        self.counts["core_replaced"] += 1
        _LOG.warning("core_replaced pool=%s resting=%s", self._name, self._resting)
        self._replacing = True
        broken, self.core = self.core, self._new_core()
        self._refill(broken)
        self._replacing = False
        self._tick_failures = 0

    def _asked_for(self) -> None:
        if self._asked:
            self.decide(self._clock.now_ms())

    def _arm(self, due_ms: int) -> None:
        """The timer goes off at `due_ms` at the latest. Going off too early is harmless."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._clock.call_at_ms(due_ms, self._went_off)

    def _went_off(self) -> None:
        self._timer = None
        self._resting = False
        self.decide(self._clock.now_ms())
