"""What the ledger keeps: programs, resources and images, as frozen records.

A program id may be used again, so everything is owned by a (program, generation): release closes
a generation, and the next sign of life opens another. A record is replaced, never changed, and
each new version is journaled before the engine hears of it. Times are Unix milliseconds: they
must mean the same after a restart.
"""

from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Self

__all__ = [
    "Freshness",
    "Image",
    "Kind",
    "Origin",
    "Owner",
    "Process",
    "Program",
    "Resource",
    "Sighting",
    "Spec",
    "State",
]


@unique
class Kind(StrEnum):
    """What a resource is."""

    CONTAINER = "container"
    COMPOSE = "compose_project"
    NETWORK = "network"
    VOLUME = "volume"
    PROCESS = "process"
    """On the router's own machine; `Process.name` is its ref."""
    HOOK = "hook"

    @property
    def rank(self) -> int:
        """Teardown goes by rank: what holds others first, so containers before networks."""
        match self:
            case Kind.NETWORK:
                return 1
            case Kind.VOLUME:
                return 2
            case _:
                return 0

    @property
    def on_engine(self) -> bool:
        """Whether the container engine holds it, so that a listing says if it still exists."""
        return self not in (Kind.HOOK, Kind.PROCESS)


@unique
class Origin(StrEnum):
    """How a resource came into the books."""

    CREATED = "created"
    ADOPTED = "adopted"
    """By label, identity rule or peer address."""
    REGISTERED = "registered"
    """By `docker_ids` or the API."""


@unique
class State(StrEnum):
    """Where a resource stands; `transitions` has the table of moves."""

    PLANNED = "planned"
    PULLING = "pulling"
    CREATING = "creating"
    STARTING = "starting"
    INITIALIZING = "initializing"
    PROBING = "probing"
    READY = "ready"
    PAUSED = "paused"
    STOPPED = "stopped"
    RELEASING = "releasing"
    STUCK = "stuck"
    """Releasing, and failed often enough to be worth a look; tried slowly for ever."""

    @property
    def preparing(self) -> bool:
        """Before ready."""
        return self in _PREPARING

    @property
    def leaving(self) -> bool:
        """On its way out: nothing but gone can follow."""
        return self in (State.RELEASING, State.STUCK)


_PREPARING = frozenset(
    {
        State.PLANNED,
        State.PULLING,
        State.CREATING,
        State.STARTING,
        State.INITIALIZING,
        State.PROBING,
    }
)


@dataclass(frozen=True, slots=True)
class Owner:
    """One life of a program id."""

    program: str
    generation: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process that no other can be mistaken for, even after its pid is used again."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: clock ticks between boot and the process's start."""
    boot_id: str

    @property
    def name(self) -> str:
        """What a resource that is this process is called."""
        return f"{self.pid}.{self.start_ticks}.{self.boot_id}"

    @classmethod
    def named(cls, name: str) -> Self:
        """The process of that name."""
        pid, start_ticks, boot_id = name.split(".", 2)
        return cls(int(pid), int(start_ticks), boot_id)


@dataclass(frozen=True, slots=True)
class Program:
    """The current generation of a program id, and when the one before it was released."""

    id: str
    generation: int
    last_used_ms: int
    """The last request, exec or API call: the last evidence of life."""
    released: bool = False
    released_ms: int | None = None
    """When a generation was last released. An object born before that belongs to that one."""
    requested: bool = False
    """Some request or API call named it in this generation; else only a label did."""
    peer: str | None = None
    lease_until_ms: int | None = None
    process: Process | None = None
    process_gone_ms: int | None = None
    paused: bool = False
    waiting: bool = False
    """Paused with a request in hand: no tool is running for it."""
    failure: str | None = None
    """Why its environment could not be prepared."""
    spec: "Spec | None" = None
    """The environment that it was announced with."""


@dataclass(frozen=True, slots=True)
class Spec:
    """An environment to create. Everything that safety forbids has no field here."""

    image: str
    command: tuple[str, ...] = ("sleep", "infinity")
    init: tuple[str, ...] = ()
    init_timeout_ms: int = 300_000
    probe_exec: tuple[str, ...] = ()
    probe_http_path: str = ""
    probe_healthcheck: bool = False
    probe_interval_ms: int = 500
    probe_timeout_ms: int = 60_000
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """May hold secrets, so no log line shows it."""
    workdir: str = ""
    network: str = "none"
    ports: tuple[int, ...] = ()
    memory_bytes: int = 4 * 1024**3
    pids: int = 512
    cpus: float = 2.0


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that goes when its program does."""

    owner: Owner
    kind: Kind
    ref: str
    """What the engine calls it: a container's or network's id, a volume's or project's name,
    the given name of a container that we create."""
    origin: Origin
    state: State
    since_ms: int
    alias: str | None = None
    """The id that the engine gave to a container named `ref`."""
    claim: str | None = None
    """The claim by which it was adopted; see `adopt`."""
    image: str | None = None
    attempts: int = 0
    due_ms: int = 0
    """Not tried again before."""
    error: str | None = None
    spec: Spec | None = None
    ports: tuple[tuple[int, int], ...] = ()
    """(container port, port on 127.0.0.1)"""
    started_ms: int | None = None
    """When its preparation began, for the time that preparing takes."""
    used: bool = False
    """A prepared environment that its program has come to."""
    moment: str | None = None
    """The moment that a hook tells of."""

    @property
    def key(self) -> str:
        """Names it in the books and the journal."""
        return f"{self.kind}:{self.ref}"

    @property
    def target(self) -> str:
        """The surest name for an engine call."""
        return self.alias or self.ref


@unique
class Freshness(StrEnum):
    """What we know of an image on the engine."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    PULLING = "pulling"
    PRESENT = "present"
    EVICTING = "evicting"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that this router has asked for. `ours` outlives restarts: labels cannot say it."""

    ref: str
    state: Freshness = Freshness.UNKNOWN
    ours: bool = False
    """This router pulled it, and heard that it did. Nothing else may ever be removed."""
    id: str | None = None
    last_used_ms: int = 0
    wanted_until_ms: int = 0
    attempts: int = 0
    due_ms: int = 0
    error: str | None = None

    @property
    def key(self) -> str:
        """Names it in the books and the journal."""
        return f"image:{self.ref}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One object as the engine shows it."""

    kind: Kind
    ref: str
    labels: dict[str, str]
    created_ms: int
    """Born; where the engine only gives seconds, the last millisecond of that second."""
    name: str = ""
    image_id: str = ""
    addresses: tuple[str, ...] = ()
    restarts: bool = False
    """It has a restart policy: somebody means it to outlive its creator."""
    running: bool = False
    ports: tuple[tuple[int, int], ...] = ()
