"""Heads of messages: what a proxy passes on, and what ends with it.

End-to-end headers go through with their case, order and repeats. What concerns one connection
only (RFC 9110, 7.6.1) stops here, in both directions: it is ours to say towards each side.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from thunder_router.relay.contract import Endpoint
from thunder_router.relay.request import Request

__all__ = ["Lines", "answer_head", "request_head", "status_line"]

Lines = Sequence[tuple[bytes, bytes]]
"""Headers as received: name and value, in order, repeats included."""

_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
# A request's body is sent whole, with its length: no trailer and no wait for a 100 is left.
_REQUEST_ONLY_HERE: Final = _HOP | {
    b"content-length",
    b"expect",
    b"host",
    b"http2-settings",
    b"trailer",
}
_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})
_UNFRAMED: Final = _HOP | {b"content-length"}
_PLAIN_CONNECTION: Final = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


def request_head(
    request: Request,
    endpoint: Endpoint,
    *,
    rank: int,
    length: int,
    own_credentials: bool,
    request_id: bytes | None,
) -> bytes:
    """The head for a worker.

    Args:
        request: The client's.
        endpoint: Who is spoken to.
        rank: The DP rank the request is for.
        length: Bytes of the body.
        own_credentials: The client's credentials were for the router, not for the worker.
        request_id: Sent as `X-Request-Id`; None where the client sent its own.
    """
    drop = _without_listed(_REQUEST_ONLY_HERE, request.fields, request.lines)
    parts = [request.method, b" ", endpoint.prefix, request.target]
    parts += (b" HTTP/1.1\r\nHost: ", endpoint.host_header, b"\r\n")
    if endpoint.authorization is not None:
        drop = drop | _CREDENTIALS
        parts += (b"Authorization: ", endpoint.authorization, b"\r\n")
    elif own_credentials:
        drop = drop | _CREDENTIALS
    if endpoint.ranks > 1:
        drop = drop | {b"x-data-parallel-rank"}
        parts.append(b"X-Data-Parallel-Rank: %d\r\n" % rank)
    for (lower, value), (name, _) in zip(request.headers, request.lines, strict=True):
        if lower not in drop:
            parts += (name, b": ", value, b"\r\n")
    if request_id is not None:
        parts += (b"X-Request-Id: ", request_id, b"\r\n")
    if length or request.method == b"POST":
        parts.append(b"Content-Length: %d\r\n" % length)
    parts.append(b"\r\n")
    return b"".join(parts)


def answer_head(
    status: int,
    reason: bytes,
    lines: Lines,
    fields: Mapping[bytes, bytes],
    *,
    measured: bool,
    chunked: bool,
    closes: bool,
    request_id: bytes,
) -> bytes:
    """The head for a client: the worker's, with our framing.

    Args:
        status: As the worker said.
        reason: The worker's own phrase.
        lines: The worker's headers.
        fields: The same by name in lower case.
        measured: The worker's `Content-Length`, if any, holds.
        chunked: The body is sent in chunks.
        closes: The connection ends with this answer.
        request_id: Told where the worker did not tell it itself.
    """
    drop = _without_listed(_HOP if measured else _UNFRAMED, fields, lines)
    parts = [b"HTTP/1.1 %d " % status, reason, b"\r\n"]
    for name, value in lines:
        if name.lower() not in drop:
            parts += (name, b": ", value, b"\r\n")
    if b"x-request-id" not in fields:
        parts += (b"x-request-id: ", request_id, b"\r\n")
    if chunked:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    parts.append(b"Connection: close\r\n\r\n" if closes else b"\r\n")
    return b"".join(parts)


def status_line(status: int) -> bytes:
    """The first line of an answer of our own."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def _without_listed(
    drop: frozenset[bytes], fields: Mapping[bytes, bytes], lines: Lines
) -> frozenset[bytes]:
    """`drop`, and what `Connection` lists on top of it."""
    if fields.get(b"connection", b"close") in _PLAIN_CONNECTION and len(fields) == len(lines):
        return drop  # as nearly always
    for name, value in lines:
        if name.lower() == b"connection":
            drop = drop | {token.strip().lower() for token in value.split(b",")}
    return drop
