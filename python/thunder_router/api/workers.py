"""`/workers`: who serves, in the forms of sglang-router and of its predecessors.

`POST /workers {"url": ...}` answers 202 and a `worker_id`, as sglang-router 0.3 does and as slime
and miles expect; `DELETE` drains. A worker may be named by its number or by its URL. The older
`/add_worker?url=`, `/remove_worker?url=` and `/list_workers` are the same in fewer words.

Beside the fields those clients read, each worker carries what we know of it, every value with its
source and age. Keys go in and never come out.
"""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from thunder_router.config import WorkerEntry
from thunder_router.errors import ConfigError, UnknownWorkerError
from thunder_router.workers.life import State
from thunder_router.workers.registry import Registry
from thunder_router.workers.report import Reading
from thunder_router.workers.watch import Watch

__all__ = ["routes", "shown"]


def shown(value: object, now_s: float) -> Any:
    """A part of a report as JSON; a reading is its value, source, age in seconds and staleness."""
    if isinstance(value, Reading):
        return {
            "value": shown(value.value, now_s),
            "source": value.source.value,
            "age_s": round(value.age_s(now_s), 3),
            "stale": value.stale,
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: shown(getattr(value, field.name), now_s) for field in fields(value)}
    if isinstance(value, tuple):
        return [shown(item, now_s) for item in value]
    return value.value if isinstance(value, Enum) else value


def _view(watch: Watch, now_s: float) -> dict[str, Any]:
    """One worker: what sglang-router's clients read first, then what we know."""
    report = watch.report
    ranks = report.ranks if report else ()
    loads = [rank.running.value + (rank.waiting.value if rank.waiting else 0)
             for rank in ranks if rank.running]  # fmt: skip
    model = report.models[0].id if report and report.models else None
    return {
        "id": str(watch.id),
        "url": watch.door.url,
        "model_id": model or "unknown",
        "worker_type": (report.disaggregation if report else None) or "regular",
        "is_healthy": watch.state is State.READY,
        "load": sum(loads),
        "connection_mode": "HTTP",
        "priority": 50,
        "cost": 1.0,
        "metadata": dict(watch.entry.labels),
        "state": watch.state.value,
        "state_age_s": round(now_s - watch.since_s, 3),
        "leaving": watch.leaving,
        "circuit": watch.breaker.circuit.value,
        "problem": watch.problem,
        "report": shown(report, now_s),
        "residency": shown(watch.residency(), now_s),
    }


def _refusal(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": message, "code": code}, status)


def _invalid(error: ConfigError | ValidationError) -> JSONResponse:
    """Says which field is wrong, and never its value: that may be a key."""
    if isinstance(error, ConfigError):
        return _refusal(400, "BAD_REQUEST", str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return _refusal(422, "BAD_REQUEST", f"{where}: {first['msg']}" if where else first["msg"])


_FOREIGN = frozenset(
    {"worker_type", "model_id", "priority", "cost", "connection_mode", "runtime", "dp_size",
     "disable_health_check", "bootstrap_port", "tokenizer_path", "reasoning_parser", "tool_parser"}
)  # fmt: skip
"""Fields of sglang-router's worker spec that mean nothing here."""


async def _spec(request: Request) -> dict[str, object]:
    """The JSON object that a client sent, as far as it means anything here.

    Raises:
        ConfigError: no JSON object, or half of a prefill/decode pair.
    """
    try:
        spec = await request.json()
    except ValueError:
        raise ConfigError("the body is not JSON") from None
    if not isinstance(spec, dict):
        raise ConfigError("the body is not a JSON object")
    if spec.get("worker_type", "regular") not in ("regular", None):
        raise ConfigError("prefill/decode pairs are not served: worker_type must be regular")
    if isinstance(spec.get("model_id"), str):
        spec.setdefault("model", spec["model_id"])
    return {name: value for name, value in spec.items() if name not in _FOREIGN}


def routes(registry: Registry) -> APIRouter:
    """The routes over `registry`."""
    router = APIRouter()

    def find(name: str) -> Watch:
        if name.isascii() and name.isdigit():
            return registry.get(int(name))
        watch = registry.find(name)
        if watch is None:
            raise UnknownWorkerError(name)
        return watch

    def missing(name: str) -> JSONResponse:
        return _refusal(404, "WORKER_NOT_FOUND", f"Worker {name} not found")

    def accepted(watch: Watch, message: str) -> JSONResponse:
        where = f"/workers/{watch.id}"
        said = {
            "status": "accepted",
            "worker_id": str(watch.id),
            "url": watch.door.url,
            "location": where,
            "message": message,
        }
        return JSONResponse(said, 202, {"Location": where})

    @router.get("/workers")
    async def list_them() -> JSONResponse:
        now_s = registry.clock.now_s()
        workers = [_view(watch, now_s) for watch in sorted(registry, key=lambda w: w.id)]
        kinds = [worker["worker_type"] for worker in workers]
        stats = {f"{kind}_count": kinds.count(kind) for kind in ("prefill", "decode", "regular")}
        return JSONResponse({"workers": workers, "total": len(workers), "stats": stats})

    @router.post("/workers")
    async def add(request: Request) -> JSONResponse:
        try:
            watch = registry.add(WorkerEntry.model_validate(await _spec(request)))
        except (ConfigError, ValidationError) as error:
            return _invalid(error)
        return accepted(watch, "The worker is watched; it serves once it is ready")

    @router.get("/workers/{name:path}")
    async def show(name: str) -> JSONResponse:
        try:
            return JSONResponse(_view(find(name), registry.clock.now_s()))
        except UnknownWorkerError:
            return missing(name)
        except ConfigError as error:
            return _invalid(error)

    @router.put("/workers/{name:path}")
    @router.patch("/workers/{name:path}")
    async def change(name: str, request: Request) -> JSONResponse:
        try:
            watch = find(name)
            spec = await _spec(request)
            spec.pop("url", None)
            kept = {field: getattr(watch.entry, field) for field in watch.entry.model_fields_set}
            registry.update(watch.id, WorkerEntry.model_validate(kept | spec))
        except UnknownWorkerError:
            return missing(name)
        except (ConfigError, ValidationError) as error:
            return _invalid(error)
        return accepted(watch, "The new settings hold")

    @router.delete("/workers/{name:path}")
    async def remove(name: str, drain: bool = True) -> JSONResponse:
        try:
            watch = registry.remove(find(name).id, drain=drain)
        except UnknownWorkerError:
            return missing(name)
        except ConfigError as error:
            return _invalid(error)
        return accepted(watch, "The worker drains and is then removed" if drain else "Removed")

    @router.get("/list_workers")
    async def list_urls() -> JSONResponse:
        return JSONResponse({"urls": [watch.door.url for watch in registry]})

    @router.post("/add_worker")
    async def add_by_url(url: str) -> JSONResponse:
        try:
            registry.add(WorkerEntry(url=url))
        except (ConfigError, ValidationError) as error:
            return _invalid(error)
        return JSONResponse({"status": "success", "urls": [w.door.url for w in registry]})

    @router.post("/remove_worker")
    async def remove_by_url(url: str) -> JSONResponse:
        try:
            registry.remove(find(url).id)
        except UnknownWorkerError:
            return missing(url)
        except ConfigError as error:
            return _invalid(error)
        return JSONResponse({"status": "success"})

    return router
