"""The `[environments]` section of the settings, apart because it has tables of its own."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from thunder_router.sections import Fraction, Pattern, Seconds, Section

__all__ = [
    "ComposeRule",
    "DiskSettings",
    "DockerSettings",
    "EnvironmentSettings",
    "HookMoment",
    "HookSettings",
    "ImageSettings",
    "PreparationSettings",
    "ProbeSettings",
    "TemplateSettings",
]


class ComposeRule(Section):
    """Joins a program to the compose project whose `id` group is the same, case aside."""

    program: Pattern
    """Regular expression over program ids, with a group named `id`."""
    compose_project: Pattern
    """Regular expression over `com.docker.compose.project`, with a group named `id`."""

    @field_validator("program", "compose_project")
    @classmethod
    def _names_the_id(cls, pattern: str) -> str:
        if "id" not in re.compile(pattern).groupindex:
            raise ValueError("needs a group named id: (?P<id>...)")
        return pattern


class DockerSettings(Section):
    """The container engine, how hard it may be worked, and whose objects are whose."""

    host: str = "unix:///var/run/docker.sock"
    call_timeout_s: Annotated[float, Field(gt=0)] = 15.0
    pull_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    ping_interval_s: Annotated[float, Field(gt=0)] = 2.0
    """An engine that leaves a ping unanswered for `ping_timeout_s` counts as down."""
    ping_timeout_s: Annotated[float, Field(gt=0)] = 2.0
    relist_interval_s: Annotated[float, Field(gt=0)] = 60.0
    """Events are hints: this often everything on the engine is compared with the books."""
    pull_concurrency: Annotated[int, Field(ge=1)] = 2
    start_concurrency: Annotated[int, Field(ge=1)] = 4
    init_concurrency: Annotated[int, Field(ge=1)] = 4
    call_concurrency: Annotated[int, Field(ge=1)] = 8
    """Short calls in flight, all together: more, and the engine only answers later (measured)."""
    stop_timeout_s: Seconds = 0.0
    """Seconds between SIGTERM and SIGKILL at teardown. Sandboxes ignore SIGTERM, hence 0."""
    adopt: tuple[ComposeRule, ...] = (
        ComposeRule(program=r"^(?P<id>.+)__agent$", compose_project=r"^(?P<id>.+)__env$"),
    )
    """Identity rules. The default joins Harbor's trials to their compose projects."""
    adopt_peer_ip: bool = False
    """A request that comes from a container's address makes that container its program's."""
    registered_ids: bool = True
    """Honour `docker_ids` in requests and `POST .../resources`."""


class ImageSettings(Section):
    """Which images may be pulled and used, and when this router's own pulls may go."""

    allow: tuple[str, ...] = ()
    """Shell patterns, such as `swebench/*`. Empty: no container is ever created."""
    evict: bool = True
    min_idle_s: Seconds = 600.0
    """An image used this recently is not evicted."""
    prefetch_window_s: Seconds = 3600.0
    """A prefetched image is kept this long for the program that will want it."""


class DiskSettings(Section):
    """Watermarks over the file system that holds the engine's data."""

    high: Fraction = 0.85
    """Above this part in use, images go, least recently used first."""
    low: Fraction = 0.75
    """Until this part is in use."""
    reserve_bytes: Annotated[int, Field(ge=0)] = 5 * 1024**3
    """Below this much free (or 5 % of a small disk) nothing is prepared any more."""
    interval_s: Annotated[float, Field(gt=0)] = 10.0


class ProbeSettings(Section):
    """How a started environment shows that it can be used. Exactly one way."""

    exec: tuple[str, ...] = ()
    """A command that exits with 0 inside the container."""
    http_path: str = ""
    """A path that answers below 400 on the first published port."""
    healthcheck: bool = False
    """The image's own HEALTHCHECK says healthy."""
    interval_s: Annotated[float, Field(gt=0)] = 0.5
    timeout_s: Annotated[float, Field(gt=0)] = 60.0


class TemplateSettings(Section):
    """An environment to prepare for every program whose id matches."""

    match: Pattern
    image: str
    """May hold `{id}` and the named groups of `match`."""
    command: tuple[str, ...] = ("sleep", "infinity")
    init: tuple[str, ...] = ()
    """Run once, after start."""
    init_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    probe: ProbeSettings | None = None
    env: dict[str, str] = Field(default_factory=dict)
    workdir: str = ""
    network: Literal["none", "bridge"] = "none"
    ports: tuple[int, ...] = ()
    """Container ports, each published on 127.0.0.1 at a port that the engine picks."""
    memory_bytes: Annotated[int, Field(gt=0)] = 4 * 1024**3
    pids: Annotated[int, Field(gt=0)] = 512
    cpus: Annotated[float, Field(gt=0)] = 2.0


class PreparationSettings(Section):
    """Getting environments ready while their programs wait."""

    ahead: Annotated[int, Field(ge=0)] = 4
    """Environments prepared for programs that still wait, at most."""
    attempts: Annotated[int, Field(ge=1)] = 3
    on_pause: Literal["keep", "pause", "stop"] = "keep"
    """What happens to a waiting program's container. A running exec is never frozen."""


HookMoment = Literal["prepare", "ready", "pause", "restore", "release", "crash"]


class HookSettings(Section):
    """One HTTP call or one command at moments of a program's life. Exactly one of the two."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")]
    on: Annotated[tuple[HookMoment, ...], Field(min_length=1)]
    match: Pattern = ""
    """Regular expression over program ids; empty: every program."""
    url: str = ""
    """May hold `{program_id}`, `{generation}` and `{moment}`, percent-encoded on the way in."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    command: tuple[str, ...] = ()
    """An argument list, no shell; the moment comes in `THUNDER_*` environment variables."""
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    retries: Annotated[int, Field(ge=0)] = 8

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise ValueError("needs either url or command")
        return self


class EnvironmentSettings(Section):
    """Tool environments (Docker)."""

    enabled: bool = False
    """False: nothing is watched, created or removed."""
    journal: Path = Path("thunder-environments.db")
    router_id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")] = "router"
    """What this router's objects are labelled with. Two routers on one engine need two."""
    dry_run: bool = False
    """Log what would be done to the engine, and do none of it."""
    idle_ttl_s: Seconds = 3600.0
    owner_grace_s: Seconds = 30.0
    orphan_grace_s: Seconds = 600.0
    startup_grace_s: Seconds = 120.0
    processes: bool = False
    """Take processes of this machine in `POST .../resources`, and end them with their program. A
    local client can then have any process ended that runs as the router's own user."""
    process_grace_s: Seconds = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    docker: DockerSettings = DockerSettings()
    images: ImageSettings = ImageSettings()
    disk: DiskSettings = DiskSettings()
    prepare: PreparationSettings = PreparationSettings()
    templates: dict[str, TemplateSettings] = Field(default_factory=dict)
    hooks: tuple[HookSettings, ...] = ()
