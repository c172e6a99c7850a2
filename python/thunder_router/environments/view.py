"""What people, probes and dashboards are shown of the books. Never used for deciding."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from thunder_router.environments import preparing
from thunder_router.environments.books import Books
from thunder_router.environments.disk import Room
from thunder_router.environments.records import Kind, Origin, State

__all__ = ["EnvironmentView", "Status", "environment_view", "status_view"]


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """A program's environment."""

    program: str
    generation: int
    state: str
    """A resource state, `none`, `failed` or `adopted` (made by the agent itself)."""
    container: str | None = None
    image: str | None = None
    ports: tuple[tuple[int, int], ...] = ()
    """(container port, port on 127.0.0.1)"""
    error: str | None = None

    @property
    def settled(self) -> bool:
        """Whether waiting longer brings nothing new."""
        return self.state in ("ready", "none", "failed", "adopted")


@dataclass(frozen=True, slots=True)
class Status:
    """The whole of it."""

    environments: Literal["ok", "unavailable"]
    engine_error: str | None
    journal_error: str | None
    programs: int
    resources: dict[str, int]
    """Count by `kind/state`."""
    images: int
    images_ours: int
    in_flight: int
    unclaimed: int
    """Objects that claim a program nobody knows."""
    disk_ratio: float | None
    disk_pressed: bool
    tally: dict[str, int]
    """Counters since start."""
    spent_s: dict[str, float]
    """Seconds since start that preparing, teardown and tools took."""


def environment_view(books: Books, program_id: str) -> EnvironmentView:
    """How the program's environment stands."""
    program = books.programs.get(program_id)
    if program is None:
        return EnvironmentView(program_id, 0, "none")
    resource = preparing.environment(books, program)
    if resource is not None and not (resource.state.leaving and program.failure):
        return EnvironmentView(
            program_id,
            program.generation,
            resource.state,
            resource.alias,
            resource.image,
            resource.ports,
            resource.error,
        )
    if program.failure is not None:
        return EnvironmentView(program_id, program.generation, "failed", error=program.failure)
    for adopted in books.current(program):
        holds_tools = adopted.kind in (Kind.CONTAINER, Kind.COMPOSE)
        if holds_tools and adopted.origin is not Origin.CREATED and adopted.state is State.READY:
            return EnvironmentView(program_id, program.generation, "adopted", adopted.ref)
    return EnvironmentView(program_id, program.generation, "none")


def status_view(books: Books, room: Room | None, journal_error: str | None) -> Status:
    """Counts everything: linear in the number of resources."""
    counts = Counter(f"{r.kind}/{r.state}" for r in books.resources.values())
    return Status(
        environments="ok" if books.engine_up else "unavailable",
        engine_error=books.engine_error,
        journal_error=journal_error,
        programs=len(books.programs),
        resources=dict(counts),
        images=len(books.images),
        images_ours=sum(image.ours for image in books.images.values()),
        in_flight=len(books.flying),
        unclaimed=len({key for claim in books.unclaimed.values() for key in claim}),
        disk_ratio=None if room is None else round(room.ratio, 4),
        disk_pressed=books.pressed,
        tally=dict(books.tally),
        spent_s={what: ms / 1000 for what, ms in books.spent_ms.items()},
    )
