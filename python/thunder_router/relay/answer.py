"""What one client gets: a head, a body in our framing, an end.

An answer is begun by the worker's head, or early by ours (a held stream that is kept alive with
comments), or is an error of our own. Once begun it can only go on, end, or break: a stream breaks
with an error event in the form of its API and no `[DONE]`, anything else by ending the connection
before the announced end.
"""

import math
from collections.abc import Sequence
from typing import Final

from thunder_router import answers
from thunder_router._core import answer_head
from thunder_router.answers import Problem
from thunder_router.relay.client import Client
from thunder_router.relay.request import Request
from thunder_router.relay.status import status_line
from thunder_router.relay.upstream import Upstream

__all__ = ["Answer"]

_EARLY_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n"
)
_JOINED_BYTES: Final = 16 * 1024
"""A head and a body up to this are copied together: a second system call costs more."""
_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
_COMMENT: Final = b": keep-alive\n\n"
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")


class Answer:
    """The answer to one request.

    Attributes:
        status: As sent, 0 before.
        keeps: Whether the connection outlives this answer.
    """

    __slots__ = (
        "_chunked",
        "_client",
        "_dialect",
        "_head",
        "_last",
        "_request",
        "_request_id",
        "_sse",
        "_write",
        "keeps",
        "status",
    )

    def __init__(self, client: Client, request: Request, *, request_id: bytes) -> None:
        self._client = client
        self._write = client.write
        self._request = request
        self._request_id = request_id
        self._dialect = None if request.route is None else request.route.dialect
        self._chunked = False
        self._sse = False
        self._head = b""
        self._last = b""
        self.keeps = False
        self.status = 0

    def begin(self, worker: Upstream, *, sse: bool) -> None:
        """Takes the worker's head; it is sent with what comes first of the body."""
        request, status = self._request, worker.status
        bodiless = status in (204, 304) or request.method == b"HEAD"
        measured = worker.headers.get(b"content-length") is not None
        # What is read on the way may be cut, so the length of a stream is not the worker's to say.
        open_ended = not bodiless and (sse or not measured)
        self.keeps = self._client.keeps(request) and not (open_ended and request.http10)
        self._chunked = open_ended and not request.http10
        self._sse = sse
        self.status = status
        self._head = answer_head(
            status,
            worker.reason,
            worker.headers,
            measured=not open_ended,
            chunked=self._chunked,
            closes=not self.keeps,
            request_id=self._request_id,
        )

    def more(
        self, chunk: bytes, *, complete: bool = False, trailers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Sends a part of the body, and its end where that has come: in one write, where it can."""
        head, self._head = self._head, b""
        if self._chunked:
            if chunk:
                self._last = chunk
                head += b"%x\r\n%b\r\n" % (len(chunk), chunk)
            if complete:
                head += b"0\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % line for line in trailers)
            if head:
                self._write(head)
        elif len(chunk) < _JOINED_BYTES:
            if head or chunk:
                self._write(head + chunk)
        else:
            if head:
                self._write(head)
            self._write(chunk)

    # --- answers of our own ---

    def refuse(self, problem: Problem) -> None:
        """Sends a whole error answer."""
        self.whole(problem.status, answers.body(problem, self._dialect), problem.retry_after_s)

    def whole(self, status: int, body: bytes, retry_after_s: float | None = None) -> None:
        """Sends a whole JSON answer."""
        self.status = status
        # What is left of a request that was not read whole cannot be told from the next one.
        self.keeps = self._request.complete and self._client.keeps(self._request)
        parts = [
            status_line(status),
            b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body),
        ]
        if self._request_id:
            parts.append(b"x-request-id: %b\r\n" % self._request_id)
        if retry_after_s is not None:
            parts.append(b"retry-after: %d\r\n" % max(1, math.ceil(retry_after_s)))
        if status == 401:
            parts.append(b"www-authenticate: Bearer\r\n")
        parts.append(b"\r\n" if self.keeps else b"connection: close\r\n\r\n")
        if self._request.method != b"HEAD":
            parts.append(body)
        self._write(b"".join(parts))

    def keep_alive(self) -> None:
        """Tells a client whose stream is held that it is not forgotten; begins the answer."""
        if not self.status:
            self.status = 200
            self._sse = self._chunked = True
            self.keeps = self._client.keeps(self._request)
            closing = b"" if self.keeps else b"connection: close\r\n"
            self._head = b"%bx-request-id: %b\r\n%b\r\n" % (_EARLY_HEAD, self._request_id, closing)
        self.more(_PING if self._dialect == "messages" else _COMMENT)

    def break_off(self, problem: Problem) -> bool:
        """Ends an answer that cannot be completed, the connection with it.

        Returns:
            Whether the client was told. If not, only the broken connection can tell it.
        """
        self.keeps = False
        if not self._sse:
            return False
        event = answers.event(problem, self._dialect)
        if self._last and not self._last.endswith(_EVENT_ENDS):
            event = b"\n\n" + event  # the worker stopped within an event
        self.more(event, complete=True)
        return True
