"""`/thunder/v1`: programs and their environments, what is owned, and clearing up.

A client that wants more than a label announces its program here: the environment it will need, a
lease, the process that owns it. `GET .../environment?wait=ready` is where it claims what was
prepared. Everything but waiting returns at once; what was asked is then under way.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from thunder_router.api.guard import Guard
from thunder_router.environment_settings import TemplateSettings
from thunder_router.environments import Environments, labels, templates
from thunder_router.environments.records import Kind, Resource
from thunder_router.observe.metrics import Gauge, Sample
from thunder_router.scheduling import events

__all__ = ["follow", "gauges", "routes"]

_LONGEST_WAIT_S = 600.0

ProgramId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EnvironmentBody(TemplateSettings):
    """An environment as a template in the settings has it, for this one program."""

    match: str = ""


class ProgramBody(_Body):
    """Announces a program."""

    id: ProgramId
    environment: EnvironmentBody | None = None
    lease_s: Annotated[float, Field(gt=0)] | None = None
    owner_pid: Annotated[int, Field(gt=1)] | None = None
    """A process on the router's machine; when it is gone, so is the program."""


class LeaseBody(_Body):
    """Renews a lease, from now."""

    lease_s: Annotated[float, Field(gt=0)]


class ResourceBody(_Body):
    """Names an object on the engine, or a process on the router's machine, as the program's."""

    kind: Literal["container", "network", "volume", "process"] = "container"
    ref: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")] | None = None
    """An object's name or id."""
    pid: Annotated[int, Field(gt=1)] | None = None
    """A process."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if (self.pid is None) is (self.kind == "process") or (self.ref is None) is not (
            self.kind == "process"
        ):
            raise ValueError("a process has a pid, everything else a ref")
        return self


class PrefetchBody(_Body):
    """Images that programs to come will need."""

    images: Annotated[list[str], Field(max_length=10_000)]


class CollectBody(_Body):
    """What `gc` is to do."""

    dry_run: bool = False


def routes(environments: Environments, guard: Guard, release: Callable[[str], object]) -> APIRouter:
    """The routes.

    Args:
        environments: What they are about.
        guard: Asks for keys.
        release: Ends a program, in the scheduler too.
    """
    router = APIRouter(prefix="/thunder/v1", tags=["environments"])
    client = [Depends(guard.client)]
    admin = [Depends(guard.admin)]

    def shown(program: str) -> dict[str, Any]:
        return {
            "environment": asdict(environments.environment(program)),
            "resources": [_resource(resource) for resource in environments.owned(program)],
        }

    @router.post("/programs", status_code=202, dependencies=client)
    async def announce(body: ProgramBody, request: Request) -> dict[str, Any]:
        """Announces a program, its environment, its lease, its owner."""
        _must_own(body.id)
        if body.owner_pid is not None and not _local(request):
            raise HTTPException(400, "owner_pid is for clients on the router's own machine")
        spec = None
        if body.environment is not None:
            spec = templates.of_template(body.environment, {"id": body.id})
            if not environments.allows(spec.image):
                raise HTTPException(403, f"image {spec.image} is not allowed")
        environments.open(body.id, spec=spec, lease_s=body.lease_s, owner_pid=body.owner_pid)
        return {"id": body.id}

    @router.put("/programs/{program_id}/lease", status_code=202, dependencies=client)
    async def renew(program_id: ProgramId, body: LeaseBody) -> dict[str, Any]:
        """Renews the program's lease."""
        _must_own(program_id)
        environments.open(program_id, lease_s=body.lease_s)
        return {"id": program_id}

    @router.post("/programs/{program_id}/resources", status_code=202, dependencies=client)
    async def register(
        program_id: ProgramId, body: ResourceBody, request: Request
    ) -> dict[str, Any]:
        """Registers an object. Another program's, another router's, or a service is refused."""
        _must_own(program_id)
        if body.pid is not None:
            if not _local(request):
                raise HTTPException(400, "pid is for clients on the router's own machine")
            if why := environments.give_process(program_id, body.pid):
                raise HTTPException(403, why)
        elif body.ref is not None:
            environments.register(program_id, Kind(body.kind), body.ref)
        return {"id": program_id}

    @router.get("/programs/{program_id}/environment", dependencies=client)
    async def environment(
        program_id: ProgramId,
        response: Response,
        wait: Literal["ready"] | None = None,
        timeout_s: Annotated[float, Query(gt=0, le=_LONGEST_WAIT_S)] = 60.0,
    ) -> dict[str, Any]:
        """The program's environment. With `wait` it is prepared at once; 202: not yet settled."""
        if wait is not None and labels.may_own(program_id):
            environments.prepare(program_id, 0)
            environments.use(program_id)
            await _within(
                timeout_s, environments, lambda: environments.environment(program_id).settled
            )
        if not environments.environment(program_id).settled:
            response.status_code = 202
        return shown(program_id)

    @router.delete("/programs/{program_id}", dependencies=client)
    async def end(
        program_id: ProgramId,
        response: Response,
        wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
        generation: int | None = None,
    ) -> dict[str, Any]:
        """Ends the program; with `wait` (seconds) answers once all of it is gone, or 202."""
        if generation is None:
            release(program_id)
        environments.released(program_id, generation)
        if wait:
            await _within(wait, environments, lambda: not environments.owned(program_id))
        if environments.owned(program_id):
            response.status_code = 202
        return shown(program_id)

    @router.post("/prefetch", status_code=202, dependencies=client)
    async def prefetch(body: PrefetchBody) -> dict[str, list[str]]:
        """Pulls images ahead of need, and keeps them for a while."""
        accepted = [image for image in body.images if environments.prefetch(image)]
        return {"accepted": accepted, "refused": sorted(set(body.images) - set(accepted))}

    @router.get("/resources", dependencies=admin)
    async def resources() -> dict[str, Any]:
        """Everything that is owned, and the state of the whole."""
        owned = [_resource(resource) for resource in environments.resources()]
        return {"status": asdict(environments.status()), "resources": owned}

    @router.get("/images", dependencies=admin)
    async def images() -> list[dict[str, Any]]:
        """Every image that was asked for, and whether this router pulled it."""
        return [asdict(image) for image in environments.images()]

    @router.post("/gc", dependencies=admin)
    async def collect(body: CollectBody) -> dict[str, Any]:
        """Compares books and engine, and removes idle images of ours; `dry_run` only says which."""
        going = [_resource(r) for r in environments.resources() if r.state.leaving]
        evicted = [image.ref for image in environments.evictable()]
        if not body.dry_run:
            environments.collect()
        return {"dry_run": body.dry_run, "images": evicted, "leaving": going}

    return router


def follow(environments: Environments, waiting: Callable[[str], bool]) -> events.Subscriber:
    """A subscriber of the scheduler's program events that tells them to the environments.

    Args:
        environments: Who is told.
        waiting: Whether the scheduler holds a request of this program.
    """

    def told(event: events.ProgramEvent) -> None:
        match event:
            case events.Seen(program=program, docker_ids=docker_ids, peer=peer):
                environments.request(program, docker_ids, peer or None)
            case events.Prepared(program=program, expected_wait_ms=expected_wait_ms):
                environments.prepare(program, expected_wait_ms)
            case events.Paused(program=program):
                environments.paused(program, waiting=waiting(program))
            case events.Restored(program=program):
                environments.restored(program)
            case events.Released(program=program):
                environments.released(program)
            case events.Expired(program=program):
                environments.expired(program)

    return told


def gauges(environments: Environments) -> list[Gauge]:
    """What a scrape is told of the environments."""

    def resources() -> list[Sample]:
        counts = environments.status().resources
        return [Sample(tuple(key.split("/")), count) for key, count in counts.items()]

    def one(read: Callable[[], float | None]) -> Callable[[], list[Sample]]:
        return lambda: [] if (value := read()) is None else [Sample((), value)]

    def counted() -> list[Sample]:
        return [Sample((what,), count) for what, count in environments.status().tally.items()]

    def spent() -> list[Sample]:
        return [Sample((what,), s) for what, s in environments.status().spent_s.items()]

    status = environments.status
    return [
        Gauge("environment_resources", "Owned resources.", ("kind", "state"), resources),
        Gauge(
            "environment_images_ours",
            "Images that this router pulled.",
            (),
            one(lambda: status().images_ours),
        ),
        Gauge(
            "environment_engine_up",
            "1 while the container engine answers.",
            (),
            one(lambda: status().environments == "ok"),
        ),
        Gauge(
            "environment_steps_in_flight",
            "Engine steps under way.",
            (),
            one(lambda: status().in_flight),
        ),
        Gauge(
            "environment_unclaimed",
            "Labelled objects of programs that nobody knows.",
            (),
            one(lambda: status().unclaimed),
        ),
        Gauge(
            "environment_disk_ratio",
            "Part of the engine's disk in use.",
            (),
            one(lambda: status().disk_ratio),
        ),
        Gauge("environment_events", "What happened to environments.", ("what",), counted, True),
        Gauge("environment_seconds", "Time that it took.", ("what",), spent, True),
    ]


async def _within(timeout_s: float, environments: Environments, holds: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await environments.until(holds)
    except TimeoutError:
        pass


def _must_own(program: str) -> None:
    if not labels.may_own(program):
        raise HTTPException(400, f"{program} cannot own anything")


def _local(request: Request) -> bool:
    try:
        return request.client is None or ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "program": resource.owner.program,
        "generation": resource.owner.generation,
        "kind": resource.kind,
        "ref": resource.target,
        "origin": resource.origin,
        "state": resource.state,
        "attempts": resource.attempts,
        "error": resource.error,
        "since_ms": resource.since_ms,
    }
