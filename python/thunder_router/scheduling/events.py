"""What happens to programs, told to whoever subscribed: environments, engine hooks, metrics.

Subscribers are called in the loop's thread, after the scheduler's state has changed, in order. They
return at once; one that raises is logged and does not disturb the others.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "Expired",
    "Paused",
    "Prepared",
    "ProgramEvent",
    "Released",
    "Restored",
    "Seen",
    "Subscriber",
]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request of the program arrived.

    Attributes:
        docker_ids: Containers that it says the program owns.
        peer: Address that it came from, which may be that of a container.
    """

    program: str
    docker_ids: tuple[str, ...]
    peer: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The program gave up its place on this worker."""

    program: str
    worker: int
    rank: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The program has a place again."""

    program: str
    worker: int
    rank: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The program's turn comes in about this many milliseconds."""

    program: str
    expected_wait_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The program ended. `worker` is where its KV cache still lies, if anywhere."""

    program: str
    worker: int | None
    rank: int | None


@dataclass(frozen=True, slots=True)
class Expired:
    """The program was silent beyond its idle time-out and is forgotten."""

    program: str


ProgramEvent = Seen | Paused | Restored | Prepared | Released | Expired
Subscriber = Callable[[ProgramEvent], None]
