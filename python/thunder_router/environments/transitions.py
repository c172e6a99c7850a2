"""The table of a resource's moves. A move that is not in it is a bug, and raises.

    planned → pulling → creating → starting → initializing → probing → ready ⇄ paused, stopped
       └─────────┴──────────┴─────────┴────────────┴────────────┴────────┴──→ releasing ⇄ stuck

A spec without an init command or a probe skips that state. From creating onwards a step may fall
back to pulling: its image went away, or the router died in the midst and begins again with a fresh
container. Gone is not a state: the record is forgotten.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from thunder_router.environments.records import Resource, State
from thunder_router.errors import TransitionError

__all__ = ["MOVES", "moved"]

_BEFORE_READY = (State.PULLING, State.RELEASING)

MOVES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.PLANNED: frozenset({State.PULLING, State.RELEASING}),
        State.PULLING: frozenset({State.CREATING, State.RELEASING}),
        State.CREATING: frozenset({State.STARTING, *_BEFORE_READY}),
        State.STARTING: frozenset({State.INITIALIZING, State.PROBING, State.READY, *_BEFORE_READY}),
        State.INITIALIZING: frozenset({State.PROBING, State.READY, *_BEFORE_READY}),
        State.PROBING: frozenset({State.READY, *_BEFORE_READY}),
        State.READY: frozenset({State.PAUSED, State.STOPPED, State.RELEASING}),
        State.PAUSED: frozenset({State.READY, State.RELEASING}),
        State.STOPPED: frozenset({State.READY, State.RELEASING}),
        State.RELEASING: frozenset({State.STUCK}),
        State.STUCK: frozenset({State.RELEASING}),
    }
)


def moved(resource: Resource, to: State, now_ms: int, **changes: Any) -> Resource:
    """The resource in its next state, attempts and error cleared unless `changes` say otherwise.

    Raises:
        TransitionError: the table has no such move.
    """
    if to not in MOVES[resource.state]:
        raise TransitionError(f"{resource.key} cannot go from {resource.state} to {to}")
    fresh: dict[str, Any] = {"attempts": 0, "due_ms": 0, "error": None}
    return replace(resource, state=to, since_ms=now_ms, **(fresh | changes))
