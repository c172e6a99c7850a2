"""Everything the ledger is told. Each event is a fact about the past."""

from dataclasses import dataclass
from enum import StrEnum, unique

from thunder_router.environments.records import Kind, Owner, Process, Sighting, Spec

__all__ = [
    "Checked",
    "Ended",
    "EngineDown",
    "EnvironmentUsed",
    "Event",
    "EvictionPlanned",
    "ExecEnded",
    "ExecStarted",
    "Found",
    "ImageGone",
    "ImageWanted",
    "Leased",
    "Outcome",
    "Paused",
    "PrepareAsked",
    "Pressed",
    "ProcessGiven",
    "ProcessGone",
    "Registered",
    "Released",
    "Relisted",
    "Requested",
    "Restored",
    "Sighted",
    "Step",
    "Suspected",
    "Tick",
    "Vanished",
]


@unique
class Step(StrEnum):
    """One thing that is done to a resource or an image."""

    LOCATE = "locate"
    PULL = "pull"
    CREATE = "create"
    START = "start"
    INIT = "init"
    PROBE = "probe"
    FREEZE = "freeze"
    THAW = "thaw"
    REMOVE = "remove"
    EVICT = "evict"


@unique
class Outcome(StrEnum):
    """How a step ended, as a fresh look shows, not as the reply claimed."""

    DONE = "done"
    MISSING = "missing"
    """What it needed is not there: an image to create from, an image that was looked for."""
    RETRY = "retry"
    """It may work later: in use, in progress, an error of the engine."""
    REFUSED = "refused"
    """It will not work, whenever tried: not allowed, a failed init command."""
    UNREACHABLE = "unreachable"
    """The engine did not answer. Nobody knows whether it happened."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A request that names a program has arrived."""

    program: str
    peer: str | None = None
    docker_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The API names an object as the program's."""

    program: str
    kind: Kind
    ref: str


@dataclass(frozen=True, slots=True)
class Leased:
    """The API announces the program, and may bound its life: a lease, an owning process."""

    program: str
    lease_until_ms: int | None = None
    process: Process | None = None
    spec: Spec | None = None
    """The environment that it will need."""


@dataclass(frozen=True, slots=True)
class ProcessGiven:
    """The API gives a running process to the program, to end with it."""

    program: str
    process: Process


@dataclass(frozen=True, slots=True)
class Sighted:
    """The engine shows an object: an event, or a listing of one program's."""

    sighting: Sighting


@dataclass(frozen=True, slots=True)
class Found:
    """What a `Look` found under the given name; None: nothing."""

    owner: Owner
    kind: Kind
    asked: str
    sighting: Sighting | None
    claim: str | None = None
    answered: bool = True
    """False: the engine could not be asked."""


@dataclass(frozen=True, slots=True)
class Relisted:
    """Everything on the engine, as of `taken_ms`. The engine is up."""

    taken_ms: int
    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class Vanished:
    """The engine destroyed an object."""

    kind: Kind
    ref: str


@dataclass(frozen=True, slots=True)
class ImageGone:
    """The engine removed or untagged an image; `name` is its reference or id."""

    name: str


@dataclass(frozen=True, slots=True)
class ExecStarted:
    """A tool began to run in a container."""

    container: str
    exec_id: str


@dataclass(frozen=True, slots=True)
class ExecEnded:
    """A tool ended; also when its container died."""

    container: str
    exec_id: str | None
    """None: all of them."""


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine does not answer."""

    error: str


@dataclass(frozen=True, slots=True)
class Released:
    """The program ended, said so by someone who knows. `generation` None: the current one."""

    program: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Suspected:
    """Someone infers that the program ended (silence, a scheduler's expiry)."""

    program: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessGone:
    """The process that owned the program is no more."""

    program: str
    process: Process


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer to a `Recheck`."""

    owner: Owner
    reason: str
    asked_ms: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Paused:
    """The scheduler took the program's place away. `waiting`: with a request in hand."""

    program: str
    waiting: bool


@dataclass(frozen=True, slots=True)
class Restored:
    """The scheduler gave the program a place again."""

    program: str


@dataclass(frozen=True, slots=True)
class PrepareAsked:
    """The program will be served in about `expected_wait_ms`: have its environment by then."""

    program: str
    spec: Spec | None
    """What its template says; None: it has none."""
    expected_wait_ms: int


@dataclass(frozen=True, slots=True)
class EnvironmentUsed:
    """The program has come to its prepared environment."""

    program: str


@dataclass(frozen=True, slots=True)
class ImageWanted:
    """A program to come will need this image."""

    image: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that the ledger asked for has ended."""

    key: str
    step: Step
    outcome: Outcome
    error: str | None = None
    id: str | None = None
    """What the engine calls the object: a created container, a located or pulled image."""
    ports: tuple[tuple[int, int], ...] = ()
    found: bool = False
    """The image to pull was there already: somebody else brought it."""


@dataclass(frozen=True, slots=True)
class Pressed:
    """The disk is so full that nothing more may be prepared, or no longer is."""

    pressed: bool


@dataclass(frozen=True, slots=True)
class EvictionPlanned:
    """The images to remove now, by reference."""

    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Requested
    | Registered
    | Leased
    | Sighted
    | Found
    | Relisted
    | Vanished
    | ImageGone
    | ExecStarted
    | ExecEnded
    | EngineDown
    | Released
    | Suspected
    | ProcessGiven
    | ProcessGone
    | Checked
    | Paused
    | Restored
    | PrepareAsked
    | EnvironmentUsed
    | ImageWanted
    | Ended
    | Pressed
    | EvictionPlanned
    | Tick
)
