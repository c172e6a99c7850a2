"""All workers as if they were one: the names under which clients ask a single SGLang.

`/v1/models` is the union, with the longest context anywhere; capacities and loads come from what we
know already, so these answers cost no worker anything. `/model_info` alone is asked of a worker,
and only named fields of its answer pass: `/server_info` of a worker carries its keys in clear and
is never handed on.
"""

import time
from importlib import metadata
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from thunder_router.errors import UpstreamError
from thunder_router.workers.lenient import mapping, parse_json
from thunder_router.workers.life import State
from thunder_router.workers.registry import Registry
from thunder_router.workers.report import RankReport, Reading
from thunder_router.workers.watch import Watch

__all__ = ["routes"]

_MODEL_FIELDS = (
    "model_path",
    "served_model_name",
    "tokenizer_path",
    "is_generation",
    "preferred_sampling_params",
    "weight_version",
    "reasoning_parser",
    "tool_call_parser",
    "has_image_understanding",
    "has_audio_understanding",
    "model_type",
    "architectures",
)


def _value(reading: Reading[int] | None) -> int | None:
    return reading.value if reading else None


def routes(registry: Registry) -> APIRouter:
    """The routes over `registry`."""
    router = APIRouter()
    created = int(time.time())
    version = metadata.version("thunder-router")

    def ready() -> list[Watch]:
        return [watch for watch in registry if watch.state is State.READY]

    def ranks() -> list[tuple[Watch, RankReport]]:
        return [(w, rank) for w in registry if w.report for rank in w.report.ranks]

    # --- models --------------------------------------------------------------------------------

    def models() -> list[dict[str, Any]]:
        return [
            {
                "id": model.id,
                "object": "model",
                "created": created,
                "owned_by": "thunder-router",
                "root": model.id,
                "parent": None,
                "max_model_len": model.max_model_len,
            }
            for model in registry.models()
        ]

    @router.get("/v1/models")
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": models()})

    @router.get("/v1/models/{name:path}")
    async def one_model(name: str) -> JSONResponse:
        for model in models():
            if model["id"] == name:
                return JSONResponse(model)
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return JSONResponse({"error": error}, 404)

    @router.get("/model_info")
    @router.get("/get_model_info")
    async def model_info() -> JSONResponse:
        for watch in ready():
            try:
                answer = await watch.door.get("/model_info")
            except (TimeoutError, UpstreamError):
                continue
            found = mapping(parse_json(answer.body)) if answer.ok else {}
            if found:
                return JSONResponse({k: found[k] for k in _MODEL_FIELDS if k in found})
        name = next((model.id for model in registry.models()), None)
        if name is None:
            return JSONResponse({"error": {"message": "no worker is ready"}}, 503)
        return JSONResponse({"model_path": name, "served_model_name": name, "is_generation": True})

    # --- capacity and load ---------------------------------------------------------------------

    @router.get("/server_info")
    @router.get("/get_server_info")
    async def server_info() -> JSONResponse:
        rows = ranks()
        capacity = [n for _, rank in rows if (n := _value(rank.device_tokens)) is not None]
        pages = [n for _, rank in rows if (n := _value(rank.page_size)) is not None]
        name = next((model.id for model in registry.models()), None)
        states = [
            {
                "worker": watch.id,
                "dp_rank": rank.rank,
                "memory_usage": {"token_capacity": _value(rank.device_tokens)},
                "hicache_host_tokens": _value(rank.host_tokens),
            }
            for watch, rank in rows
        ]
        return JSONResponse(
            {
                "status": "ready" if ready() else "starting",
                "version": version,
                "frontend": "thunder-router",
                "model_path": name,
                "served_model_name": name,
                # As a worker says it: of one rank, which is what one request must fit into.
                "max_total_num_tokens": max(capacity, default=None),
                "total_kv_tokens": sum(capacity) if capacity else None,
                "page_size": max(pages, default=None),
                "dp_size": len(rows),
                "workers_count": len(registry),
                "internal_states": states,
            }
        )

    @router.get("/v1/loads")
    async def loads() -> JSONResponse:
        rows = [
            {
                "worker": watch.id,
                "dp_rank": rank.rank,
                "num_running_reqs": _value(rank.running),
                "num_waiting_reqs": _value(rank.waiting),
                "num_used_tokens": _value(rank.in_flight_tokens),
                "max_total_num_tokens": _value(rank.device_tokens),
            }
            for watch, rank in ranks()
        ]
        return JSONResponse({"version": version, "loads": rows})

    @router.get("/get_load")
    async def get_load() -> JSONResponse:
        return JSONResponse(
            [
                {
                    "worker": watch.id,
                    "dp_rank": rank.rank,
                    "num_reqs": (_value(rank.running) or 0) + (_value(rank.waiting) or 0),
                    "num_waiting_reqs": _value(rank.waiting) or 0,
                    "num_tokens": _value(rank.in_flight_tokens) or 0,
                }
                for watch, rank in ranks()
            ]
        )

    @router.get("/get_loads")
    async def get_loads() -> JSONResponse:
        found = []
        for watch in registry:
            known = [r for r in watch.report.ranks if r.running] if watch.report else []
            load = sum((_value(r.running) or 0) + (_value(r.waiting) or 0) for r in known)
            found.append({"worker": watch.door.url, "load": load if known else -1})
        return JSONResponse({"workers": found})

    @router.get("/health_generate")
    async def health_generate() -> PlainTextResponse:
        if ready():
            return PlainTextResponse("OK")
        return PlainTextResponse("no worker is ready", 503)

    return router
