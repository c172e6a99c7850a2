"""Everything the ledger asks for.

All `Keep` and `Forget` of one step are made durable before any of its other actions is begun: a
router killed at any moment finds in its journal whatever it may have asked of the engine.
"""

from dataclasses import dataclass

from thunder_router.environments.events import Step
from thunder_router.environments.records import Image, Kind, Owner, Program, Resource

__all__ = ["Action", "Cancel", "Do", "Forget", "Keep", "Look", "Recheck", "RunHook", "Sweep"]


@dataclass(frozen=True, slots=True)
class Keep:
    """Write this version of the record to the journal."""

    record: Program | Resource | Image

    @property
    def table(self) -> str:
        """Where it is kept: `programs`, `resources` or `images`."""
        return f"{type(self.record).__name__.lower()}s"

    @property
    def key(self) -> str:
        """What it is kept under."""
        match self.record:
            case Program(id=key) | Resource(key=key) | Image(ref=key):
                return key


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the record from the journal."""

    table: str
    """`programs`, `resources` or `images`."""
    key: str


@dataclass(frozen=True, slots=True)
class Do:
    """Carry out one step, then tell the ledger `Ended`."""

    target: Resource | Image
    step: Step


@dataclass(frozen=True, slots=True)
class RunHook:
    """Tell the world of a moment; the resource's ref is the idempotency key. Then `Ended`."""

    hook: Resource


@dataclass(frozen=True, slots=True)
class Cancel:
    """Break off the step in flight for this key; it still ends with an `Ended`."""

    key: str


@dataclass(frozen=True, slots=True)
class Look:
    """Find what the engine has under this name, then tell the ledger `Found`."""

    owner: Owner
    kind: Kind
    ref: str
    claim: str | None = None
    """The claim that raised the question; None: somebody gave the name."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """List everything labelled with this owner's program, and tell the ledger `Sighted`."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Recheck:
    """Look for any sign of life just before giving the program up, then tell `Checked`."""

    owner: Owner
    reason: str
    asked_ms: int


Action = Keep | Forget | Do | RunHook | Cancel | Look | Sweep | Recheck
