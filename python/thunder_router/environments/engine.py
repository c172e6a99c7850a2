"""What the rest of this package asks of a container engine.

The protocol is small on purpose: twenty calls, each of which ends within its own time limit, with
a result or one of two errors. `docker_engine.DockerEngine` speaks to Docker; the tests have a fake
with the faults that a real engine shows.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from thunder_router.environments.records import Kind, Sighting, Spec
from thunder_router.errors import ThunderError

__all__ = [
    "Engine",
    "EngineError",
    "EngineEvent",
    "EngineUnreachableError",
    "ImageFacts",
    "Layer",
]


class EngineError(ThunderError):
    """The engine said no.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class EngineUnreachableError(EngineError):
    """No answer: not there, hung, or gone in the midst. The call may have had its effect."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One line of the engine's event stream."""

    type: str
    """`container`, `network`, `volume`, `image`."""
    action: str
    ref: str
    attributes: Mapping[str, str]
    time_ms: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer on disk. Images share a layer if, and only if, they share its chain id."""

    chain_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image on the engine."""

    id: str
    tags: tuple[str, ...]
    layers: tuple[Layer, ...] = ()


class Engine(Protocol):
    """A container engine. Every call may raise `EngineUnreachableError` or `EngineError`."""

    async def ping(self, timeout_s: float) -> None:
        """Returns if the engine answers within `timeout_s`."""

    async def close(self) -> None:
        """Lets go of the connections."""

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Subscribes; then what happens from now on, until the connection breaks, which raises."""

    async def everything(self) -> list[Sighting]:
        """Every container in any state, every network, every volume."""

    async def labelled(self, label: str, value: str) -> list[Sighting]:
        """The same, of what carries this label, with birth times as exact as they are known."""

    async def sight(self, kind: Kind, ref: str) -> Sighting | None:
        """One container, network or volume by name or id; None: there is none."""

    async def create(self, name: str, spec: Spec, labels: Mapping[str, str]) -> str:
        """Creates a container, and returns its id."""

    async def start(self, container: str) -> None:
        """Starts it; started already is well."""

    async def execute(self, container: str, command: tuple[str, ...], timeout_s: float) -> int:
        """Runs a command inside, and returns its exit status."""

    async def healthy(self, container: str) -> bool:
        """Whether the image's own health check says so."""

    async def busy(self, container: str) -> bool:
        """Whether any exec is running inside."""

    async def pause(self, container: str) -> None:
        """Freezes its processes."""

    async def unpause(self, container: str) -> None:
        """Thaws them."""

    async def stop(self, container: str, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL after `timeout_s`."""

    async def remove(self, kind: Kind, ref: str) -> None:
        """Removes a container (killed, with its anonymous volumes), a network or a volume."""

    async def image(self, ref: str, *, layers: bool = False) -> ImageFacts | None:
        """The image that has this name or id; None: there is none."""

    async def image_ids(self) -> list[str]:
        """Ids of all images."""

    async def pull(self, ref: str) -> None:
        """Pulls; only `image` tells whether it is there now."""

    async def remove_image(self, ref: str) -> None:
        """Untags, and removes what no other name and no container uses. Never by force."""

    async def data_root(self) -> str:
        """The folder on the engine's machine that holds its data."""
