"""Every route that is not inference: health, self-description, and what operators and routers do.

A route is a coroutine that gets the worker and the request and answers by itself; `ROUTES` is the
table. Waits are SGLang's own, in virtual time.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from thunder_router.emulator import info, metrics
from thunder_router.emulator.http import Headers, Send, json_object, respond
from thunder_router.emulator.text import is_unicode
from thunder_router.emulator.worker import Worker

__all__ = ["ROUTES", "Request"]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_PAGE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_HEALTH_POLL_S = 1.0
_HEALTH_TIMEOUT_S = 20.0
_FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    b"waiting requests, the operation will not be performed.)\n"
)


@dataclass(frozen=True)
class Request:
    """A request without its connection."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body's object; empty where there is none that is one."""
        try:
            return json_object(self.body)
        except ValueError:
            return {}


Route = Callable[[Worker, Request, Send], Awaitable[None]]


async def _health(worker: Worker, request: Request, send: Send) -> None:
    """Generates a token and looks for it once a second; a draining worker does not try."""
    del request
    if worker.draining:
        await respond(send, 503)
        return
    waited = 0.0
    while waited < _HEALTH_TIMEOUT_S:
        await asyncio.sleep(worker.real(_HEALTH_POLL_S))
        waited += _HEALTH_POLL_S
        if worker.paused_at is None:
            await respond(send, 200)
            return
    await respond(send, 503)


async def _ready(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 503 if worker.draining or worker.paused_at is not None else 200)


async def _ping(worker: Worker, request: Request, send: Send) -> None:
    del worker, request
    await respond(send, 200)


async def _models(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 200, {"object": "list", "data": [info.model_card(worker)]})


async def _server_info(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 200, info.server_info(worker))


async def _model_info(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 200, info.model_info(worker))


async def _loads(worker: Worker, request: Request, send: Send) -> None:
    query = parse_qs(request.query.decode("latin-1"))
    include = {name for value in query.get("include", ()) for name in value.split(",")}
    unknown = include - {"core", "memory", "spec", "lora", "disagg", "queues", "all"}
    rank = query.get("dp_rank", [""])[0]
    if unknown or (rank and not rank.isdigit()):
        # So the real one: an unknown section is an unhandled error.
        await respond(send, 500, b"Internal Server Error", _TEXT)
        return
    if "disagg" in include:
        include.add("disaggregation")
    await respond(send, 200, info.loads(worker, include, int(rank) if rank else None))


async def _get_load(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 200, info.get_load(worker))


async def _metrics(worker: Worker, request: Request, send: Send) -> None:
    del request
    await respond(send, 200, metrics.render(worker), _PAGE)


async def _flush(worker: Worker, request: Request, send: Send) -> None:
    del request
    if worker.flush():
        await respond(send, 200, _FLUSHED, _TEXT)
    else:
        await respond(send, 400, b"Flush cache failed.\n", _TEXT)


async def _abort(worker: Worker, request: Request, send: Send) -> None:
    body = request.json()
    rid = body.get("rid")
    worker.abort_matching(
        rid if isinstance(rid, str) else "", everything=body.get("abort_all") is True
    )
    await respond(send, 200)


async def _pause(worker: Worker, request: Request, send: Send) -> None:
    try:
        worker.pause(str(request.json().get("mode") or "abort"))
    except ValueError as error:
        await respond(send, 400, {"error": {"message": str(error)}})
        return
    await respond(send, 200, {"message": "Generation paused successfully.", "status": "ok"})


async def _continue(worker: Worker, request: Request, send: Send) -> None:
    del request
    worker.go_on()
    await respond(send, 200, {"message": "Generation continued successfully.", "status": "ok"})


async def _open_session(worker: Worker, request: Request, send: Send) -> None:
    body = request.json()
    session = body.get("session_id") or uuid.uuid4().hex
    if not isinstance(body.get("capacity_of_str_len"), int) or not isinstance(session, str):
        await respond(send, 400, {"error": {"message": "capacity_of_str_len: Field required"}})
    elif session in worker.open_sessions:
        message = f"Session {session} already exists."
        await respond(send, 400, {"error": {"message": message}})
    else:
        worker.open_sessions.add(session)
        await respond(send, 200, session)


async def _close_session(worker: Worker, request: Request, send: Send) -> None:
    session = request.json().get("session_id")
    if not isinstance(session, str) or not is_unicode(session):
        await respond(send, 400, {"error": {"message": "session_id: Field required"}})
        return
    worker.close_session(session)
    await respond(send, 200)


_GET = ("GET",)
_POST = ("POST",)
ROUTES: dict[str, tuple[tuple[str, ...], Route]] = {
    "/health": (_GET, _health),
    "/health_generate": (_GET, _health),
    "/ready": (_GET, _ready),
    "/ping": (_GET, _ping),
    "/v1/models": (_GET, _models),
    "/server_info": (_GET, _server_info),
    "/get_server_info": (_GET, _server_info),
    "/model_info": (_GET, _model_info),
    "/get_model_info": (_GET, _model_info),
    "/v1/loads": (_GET, _loads),
    "/get_load": (_GET, _get_load),
    "/metrics": (_GET, _metrics),
    "/metrics/": (_GET, _metrics),
    "/flush_cache": (("GET", "POST"), _flush),
    "/abort_request": (_POST, _abort),
    "/pause_generation": (_POST, _pause),
    "/continue_generation": (_POST, _continue),
    "/open_session": (("GET", "POST"), _open_session),
    "/close_session": (("GET", "POST"), _close_session),
}
