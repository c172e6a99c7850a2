"""`/programs`: what runs, what waits and why; release, pause and restore. `/weight_sync` too.

ThunderAgent's clients work unchanged: `GET /programs` answers an object keyed by program id with
its fields (and more), `POST /programs/release` takes and answers what theirs does. Paging stays
outside the body, in `X-Total-Count` and `Link`.
"""

from collections.abc import Callable
from typing import Annotated, Literal, Protocol
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr

from thunder_router.api.guard import Guard
from thunder_router.errors import RequestError
from thunder_router.identity import clean
from thunder_router.scheduling.programs import Filter, Listed, Programs

__all__ = ["WeightSync", "routes"]

_MOST = 10_000


class WeightSync(Protocol):
    """Holds admissions while weights are exchanged."""

    def weight_sync_begin(self) -> None:
        """Admits nothing until the end, or until the watchdog ends it."""

    def weight_sync_end(self) -> None:
        """Proceeds, with no KV anywhere."""


class Release(BaseModel):
    """Body of `POST /programs/release`. Fields that are not ours are let pass."""

    model_config = ConfigDict(extra="ignore")
    program_id: StrictStr | StrictInt


class Released(BaseModel):
    """Answer to it: `released` is false where the program was not known (any more)."""

    program_id: str
    released: bool


class ProgramState(BaseModel):
    """One program.

    The first six are ThunderAgent's: `status` is what it does, `state` whether it has a place.
    """

    backend: str | None
    context_len: int
    total_tokens: int
    step_count: int
    status: Literal["reasoning", "acting"]
    state: Literal["new", "active", "paused"]
    program_id: str
    model: str
    group: str | None
    tenant: str | None
    generation: int
    worker: int | None
    rank: int | None
    origin: str | None
    in_flight: int
    waiting: int
    idle_s: float
    held_s: float
    paused_by_operator: bool
    held_because: str | None = None


def routes(
    programs: Programs, weights: WeightSync, guard: Guard, worker_name: Callable[[int], str]
) -> APIRouter:
    """The routes.

    Args:
        programs: What they are about.
        weights: What `/weight_sync` holds.
        guard: Asks for keys.
        worker_name: A worker's name, by its number; no URL with credentials.
    """
    router = APIRouter(tags=["programs"])
    client = [Depends(guard.client)]
    admin = [Depends(guard.admin)]

    def shown(listed: Listed) -> ProgramState:
        view = listed.view
        origin = view.origin
        return ProgramState(
            backend=None if view.worker is None else worker_name(view.worker),
            context_len=view.context_tokens,
            total_tokens=view.context_tokens,
            step_count=view.steps,
            status=view.phase,
            state=view.status,
            program_id=view.program,
            model=listed.pool.name,
            group=view.group,
            tenant=view.tenant,
            generation=view.generation,
            worker=view.worker,
            rank=view.rank,
            origin=None if origin is None else worker_name(origin[0]),
            in_flight=view.in_flight,
            waiting=view.waiting,
            idle_s=view.idle_ms / 1000,
            held_s=view.held_ms / 1000,
            paused_by_operator=view.operator,
        )

    @router.get("/programs", dependencies=client)
    async def list_programs(
        response: Response,
        state: Literal["new", "active", "paused"] | None = None,
        status: Literal["reasoning", "acting"] | None = None,
        group: str | None = None,
        worker: int | None = None,
        model: str | None = None,
        after: str = "",
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 1000,
    ) -> dict[str, ProgramState]:
        """Programs by id, in the order of their names. A filter that is left out lets all pass."""
        page = programs.page(
            Filter(status=state, phase=status, group=group, worker=worker, pool=model),
            after=after,
            limit=limit,
        )
        response.headers["X-Total-Count"] = str(page.total)
        if page.next is not None:
            response.headers["Link"] = f'</programs?after={quote(page.next, safe="")}>; rel="next"'
        return {listed.view.program: shown(listed) for listed in page.programs}

    @router.post("/programs/release", dependencies=client)
    async def release(body: Release) -> Released:
        """Ends a program. Saying it twice is harmless."""
        program = _name(str(body.program_id))
        return Released(program_id=program, released=programs.release(program))

    @router.get("/programs/{program_id:path}", dependencies=client)
    async def show_program(program_id: str) -> ProgramState:
        """One program, and why it waits, if it does."""
        found = shown(programs.find(program_id)[0])
        found.held_because = programs.why_held(program_id)
        return found

    @router.post("/programs/{program_id:path}/pause", dependencies=admin)
    async def pause(program_id: str) -> ProgramState:
        """Holds the program's turns until it is restored, whatever room there is."""
        programs.pause(program_id)
        return shown(programs.find(program_id)[0])

    @router.post("/programs/{program_id:path}/restore", dependencies=admin)
    async def restore(program_id: str) -> ProgramState:
        """Ends such a pause."""
        programs.restore(program_id)
        return shown(programs.find(program_id)[0])

    @router.post("/weight_sync/begin", dependencies=admin)
    async def weight_sync_begin() -> dict[str, str]:
        """New requests wait from now on. A watchdog frees them if the end never comes."""
        weights.weight_sync_begin()
        return {"status": "syncing"}

    @router.post("/weight_sync/end", dependencies=admin)
    async def weight_sync_end() -> dict[str, str]:
        """They proceed; no worker is taken to hold any KV cache."""
        weights.weight_sync_end()
        return {"status": "serving"}

    @router.get("/profiles", dependencies=client)
    async def profiles(response: Response) -> dict[str, str]:
        """ThunderAgent's profiles, which it keeps only when asked to; ours are at `/metrics`."""
        response.status_code = 400
        return {"error": "Profiling not enabled."}

    return router


def _name(program: str) -> str:
    name = clean(program)
    if name is None:
        raise RequestError("program_id is blank, longer than 256 bytes, or has control characters")
    return name
