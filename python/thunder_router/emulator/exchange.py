"""One inference exchange: from a body to an engine's turn to an answer, whole or streamed.

The client is watched throughout. A streaming client that leaves is noticed at once, another one
only at SGLang's next four-second poll (`SGLANG_REQUEST_STATE_WAIT_TIMEOUT`), and either way its
request is aborted in the engine. Errors of a stream that the engine raises come after a 200, as an
event: SGLang knows no better by then.
"""

import asyncio
import time
from typing import Any

from thunder_router._core import Displaced, Finished, FirstToken, Progress
from thunder_router.emulator.ask import BadRequestError, plan
from thunder_router.emulator.dialects import Dialect
from thunder_router.emulator.http import Headers, Receive, Send, json_object, respond, start
from thunder_router.emulator.worker import RefusedError, Turn, Worker

__all__ = ["exchange"]

_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
_POLL_S = 4.0
_DISPLACED = "The request is aborted by a higher priority request."


async def exchange(
    worker: Worker,
    kind: type[Dialect],
    headers: Headers,
    body: bytes,
    receive: Receive,
    send: Send,
) -> None:
    """Serves one request."""
    created = time.time()
    options = worker.options
    try:
        asked = _parse(body, headers)
        prompt = kind.prompt(asked, options)
        ask = plan(asked, prompt, options, worker.script, headers)
        dialect = kind(ask, created, cache_report=options.cache_report)
    except BadRequestError as error:
        await respond(send, 400, kind.error(400, error.message, error.kind))
        return
    except RecursionError:
        await respond(send, 400, kind.error(400, "nested too deep", "Bad Request"))
        return
    try:
        turn = worker.start(ask)
    except RefusedError as refusal:
        await _refuse(worker, dialect, refusal, send)
        return
    watch = asyncio.ensure_future(_watch(worker, turn, receive))
    try:
        if ask.stream:
            await _stream(dialect, turn, send)
        else:
            await _whole(dialect, turn, send)
    finally:
        watch.cancel()
        worker.abort(turn)


def _parse(body: bytes, headers: Headers) -> dict[str, Any]:
    if not headers.get(b"content-type", b"").startswith(b"application/json"):
        raise BadRequestError(
            "1 validation error:\n  {'loc': ['header', 'content-type'], 'msg': \"Unsupported "
            "Media Type: Only 'application/json' is allowed\", 'type': 'value_error'}",
            "Bad Request",
        )
    try:
        return json_object(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(
            f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error', "
            f"'ctx': {{'error': '{error}'}}}}",
            "Bad Request",
        ) from None


async def _refuse(worker: Worker, dialect: Dialect, refusal: RefusedError, send: Send) -> None:
    ask = dialect.ask
    if refusal.kind == "duplicate":
        message = f"Duplicate request ID detected: {ask.rid}"
        await respond(send, 400, dialect.error(400, message, "BadRequestError"))
        return
    if refusal.kind == "queue_full":
        status, message, name = 503, "The request queue is full.", "503"
    else:
        longest = worker.engines[0].max_prompt_tokens
        status, name = 400, "BadRequestError"
        message = (
            f"Input length ({ask.prompt_tokens} tokens) exceeds the maximum allowed length "
            f"({longest} tokens). Use a shorter input or enable --allow-auto-truncate."
        )
    if ask.stream:
        await respond(send, 200, dialect.error_event(status, message), _STREAM)
    else:
        await respond(send, status, dialect.error(status, message, name))


async def _watch(worker: Worker, turn: Turn, receive: Receive) -> None:
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
    if not turn.ask.stream:
        waited_s = (worker.now_us() - turn.arrived_us) / 1e6
        await asyncio.sleep(worker.real(_POLL_S - waited_s % _POLL_S))
    worker.abort(turn)


async def _whole(dialect: Dialect, turn: Turn, send: Send) -> None:
    while True:
        match await turn.next():
            case Finished() as end:
                answer = dialect.whole(end)
                if turn.ask.timings:
                    answer["emulated"] = {"engine_s": (end.at_us - turn.arrived_us) / 1e6}
                await respond(send, 200, answer)
                return
            case Displaced():
                await respond(send, 503, dialect.error(503, _DISPLACED, "503"))
                return
            case _:
                pass


async def _stream(dialect: Dialect, turn: Turn, send: Send) -> None:
    started, cached = False, 0
    while True:
        event = await turn.next()
        if not started and not isinstance(event, Displaced):
            await start(send, 200, _STREAM)
            await _write(send, dialect.first())
            started = True
        match event:
            case FirstToken():
                cached = event.cached_device + event.cached_host
                await _write(send, dialect.delta(dialect.more(1), 1, cached))
            case Progress():
                await _write(
                    send, dialect.delta(dialect.more(event.decoded), event.decoded, cached)
                )
            case Finished():
                text = dialect.more(event.completion_tokens)
                if text:
                    await _write(send, dialect.delta(text, event.completion_tokens, cached))
                await send({"type": "http.response.body", "body": dialect.last(event)})
                return
            case Displaced():
                await respond(send, 200, dialect.error_event(503, _DISPLACED), _STREAM)
                return


async def _write(send: Send, chunk: bytes) -> None:
    if chunk:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
