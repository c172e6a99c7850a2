"""The little HTTP that a bare ASGI application needs: bodies, answers, who may call."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from hmac import compare_digest
from typing import Any

from thunder_router.emulator.dialects.base import dumps
from thunder_router.emulator.options import VERSION, EmulatorOptions

__all__ = ["Headers", "Receive", "Scope", "Send", "allowed", "read_body", "respond", "start"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]

_EMULATED = (b"x-emulated", f"thunder-router emulator, SGLang {VERSION}".encode())
_JSON = (b"content-type", b"application/json")
_OPEN = ("/health", "/ready", "/metrics")
_ADMIN = frozenset({"/flush_cache", "/abort_request", "/pause_generation", "/continue_generation"})


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None where the client left before its end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def start(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    """Sends status and headers."""
    await send({"type": "http.response.start", "status": status, "headers": [_EMULATED, *headers]})


async def respond(
    send: Send, status: int, content: Any = None, *headers: tuple[bytes, bytes]
) -> None:
    """Sends a whole answer: bytes as they are, None as nothing, anything else as JSON."""
    if content is None:
        body: bytes = b""
    elif isinstance(content, bytes):
        body = content
    else:
        body, headers = dumps(content), (_JSON, *headers)
    await start(send, status, (b"content-length", str(len(body)).encode()), *headers)
    await send({"type": "http.response.body", "body": body})


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises:
        ValueError: it is not one.
    """
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def allowed(options: EmulatorOptions, path: str, headers: Headers) -> bool:
    """Whether the caller's key opens this path.

    Source: SGLang's `utils/auth.py` as observed: health, ready and metrics are open; control takes
    the admin key if there is one, else the API key; everything else takes the API key alone.
    """
    if path.startswith(_OPEN):
        return True
    key = options.api_key
    if path in _ADMIN and options.admin_api_key is not None:
        key = options.admin_api_key
    if key is None:
        return True
    return compare_digest(headers.get(b"authorization", b""), f"Bearer {key}".encode())
