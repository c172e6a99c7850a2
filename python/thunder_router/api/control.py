"""Control calls to all workers at once, under the names that each worker has for them.

RL trainers and operators call these as they would call one SGLang: pause and continue, weights,
memory, profiles, caches, aborts. The answer says for each worker how it took the call; it is a
success only if every worker did.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from thunder_router.workers.control import CALLS, Call, Result, broadcast
from thunder_router.workers.lenient import parse_json
from thunder_router.workers.registry import Registry

__all__ = ["routes"]


def routes(registry: Registry) -> APIRouter:
    """The routes over `registry`, one for each of `CALLS`."""
    router = APIRouter()

    def route(call: Call) -> None:
        async def to_all(request: Request) -> JSONResponse:
            body = await request.body()
            results = await broadcast(registry, call, query=request.url.query, body=body or None)
            return _told(call, results)

        name = f"{call.method.lower()}{call.path.replace('/', '_')}"
        router.add_api_route(call.path, to_all, methods=[call.method], name=name)

    for call in CALLS.values():
        route(call)
    return router


def _told(call: Call, results: list[Result]) -> JSONResponse:
    """One answer for all: 200 if every worker did it, the 4xx they agree on, else 502."""
    done = sum(result.ok for result in results)
    everybody = bool(results) and done == len(results)
    statuses = {result.status for result in results}
    if everybody:
        status = 200
    elif not results:
        status = 503
    else:
        agreed = statuses.pop() if len(statuses) == 1 else None
        status = agreed if agreed is not None and 400 <= agreed < 500 else 502
    said: dict[str, Any] = {
        "success": everybody,
        "status": "success" if everybody else "partial_success" if done else "error",
        "message": f"{call.path}: {done} of {len(results)} workers did it",
        "workers": {
            str(result.worker): {
                "url": result.url,
                "ok": result.ok,
                "status": result.status,
                "answer": _parsed(result.text),
            }
            for result in results
        },
    }
    if call.path == "/flush_cache":
        said |= {
            "workers_flushed": done,
            "total_http_workers": len(results),
            "total_workers": len(results),
        }
    return JSONResponse(said, status)


def _parsed(text: str) -> object:
    found = parse_json(text.encode())
    return text if found is None else found
