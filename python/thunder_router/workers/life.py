"""The life of a worker: six states, five signs, one table.

                     ┌────────────────────────────────┐
    probing ──► ready ──► unready ──► unhealthy ──► ready
                  │  ▲       │            ▲
                  ▼  │       ▼            │
                draining ◄───┘ ───────────┘        and from anywhere: gone

`health` reads a sign off what was seen; the table says what it does to the worker, and what the
scheduler must hear. Programs keep their places on an unready worker, leave a draining one as they
turn, and are placed elsewhere when one is unhealthy or gone.
"""

from enum import StrEnum
from types import MappingProxyType

__all__ = ["TRANSITIONS", "Effect", "Sign", "State", "next_state"]


class State(StrEnum):
    """Where a worker stands."""

    PROBING = "probing"
    """Not known yet: it has never served under this entry."""
    READY = "ready"
    UNREADY = "unready"
    """Alive, but takes nothing new for now: paused for a weight sync, or a short absence."""
    DRAINING = "draining"
    """Finishes what it has and will then leave."""
    UNHEALTHY = "unhealthy"
    """Absent for longer than a flap; asked again until it returns."""
    GONE = "gone"
    """Removed. Final."""


class Sign(StrEnum):
    """What a worker looks like at this moment."""

    SERVING = "serving"
    NOT_READY = "not ready"
    LEAVING = "leaving"
    LOST = "lost"
    REMOVED = "removed"


class Effect(StrEnum):
    """What the scheduler must be told."""

    NOTHING = "nothing"
    UP = "up"
    UNREADY = "unready"
    DRAINING = "draining"
    DOWN = "down"


_S, _E = State, Effect

TRANSITIONS = MappingProxyType(
    {
        (_S.PROBING, Sign.SERVING): (_S.READY, _E.UP),
        (_S.PROBING, Sign.NOT_READY): (_S.PROBING, _E.NOTHING),
        (_S.PROBING, Sign.LEAVING): (_S.PROBING, _E.NOTHING),
        (_S.PROBING, Sign.LOST): (_S.UNHEALTHY, _E.NOTHING),
        (_S.PROBING, Sign.REMOVED): (_S.GONE, _E.NOTHING),
        (_S.READY, Sign.SERVING): (_S.READY, _E.NOTHING),
        (_S.READY, Sign.NOT_READY): (_S.UNREADY, _E.UNREADY),
        (_S.READY, Sign.LEAVING): (_S.DRAINING, _E.DRAINING),
        (_S.READY, Sign.LOST): (_S.UNHEALTHY, _E.DOWN),
        (_S.READY, Sign.REMOVED): (_S.GONE, _E.DOWN),
        (_S.UNREADY, Sign.SERVING): (_S.READY, _E.UP),
        (_S.UNREADY, Sign.NOT_READY): (_S.UNREADY, _E.NOTHING),
        (_S.UNREADY, Sign.LEAVING): (_S.DRAINING, _E.DRAINING),
        (_S.UNREADY, Sign.LOST): (_S.UNHEALTHY, _E.DOWN),
        (_S.UNREADY, Sign.REMOVED): (_S.GONE, _E.DOWN),
        (_S.DRAINING, Sign.SERVING): (_S.READY, _E.UP),
        (_S.DRAINING, Sign.NOT_READY): (_S.DRAINING, _E.NOTHING),
        (_S.DRAINING, Sign.LEAVING): (_S.DRAINING, _E.NOTHING),
        (_S.DRAINING, Sign.LOST): (_S.UNHEALTHY, _E.DOWN),
        (_S.DRAINING, Sign.REMOVED): (_S.GONE, _E.DOWN),
        (_S.UNHEALTHY, Sign.SERVING): (_S.READY, _E.UP),
        (_S.UNHEALTHY, Sign.NOT_READY): (_S.UNHEALTHY, _E.NOTHING),
        (_S.UNHEALTHY, Sign.LEAVING): (_S.UNHEALTHY, _E.NOTHING),
        (_S.UNHEALTHY, Sign.LOST): (_S.UNHEALTHY, _E.NOTHING),
        (_S.UNHEALTHY, Sign.REMOVED): (_S.GONE, _E.NOTHING),
    }
)
"""Every state but `gone`, which nothing leaves, under every sign."""


def next_state(state: State, sign: Sign) -> tuple[State, Effect]:
    """The state after `sign`, and what the scheduler must hear of it."""
    return TRANSITIONS.get((state, sign), (state, Effect.NOTHING))
