"""A request as it came in: head and body, before anyone looked at what it says."""

from typing import Self

from thunder_router._core import Headers, read_plain_request
from thunder_router.answers import Problem
from thunder_router.relay.routes import Route

__all__ = ["Request"]

_NONE = Headers([])


class Request:
    """One request of a client, filled while it is read.

    Attributes:
        method: In upper case.
        target: Path and query.
        lines: Headers as sent, while the head is read: name and value, in order.
        headers: The same, once it is.
        chunked: Its length was not announced.
        announced: Bytes of body that the head announces; 0 where it says none or not how many.
        http10: The client speaks HTTP/1.0, or anything that is not 1.1: it cannot take chunks.
        keep_alive: The client wants its connection kept.
        route: Which of the relay's routes; None: not the relay's.
        pieces: The body as it came, transfer coding removed.
        size: Bytes in `pieces`.
        complete: The body has ended.
        answered: The application answered before the body had ended.
        problem: Why it will be refused, once its turn comes.
    """

    __slots__ = (
        "announced",
        "answered",
        "chunked",
        "complete",
        "headers",
        "http10",
        "keep_alive",
        "lines",
        "method",
        "pieces",
        "problem",
        "route",
        "size",
        "target",
    )

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.lines: list[tuple[bytes, bytes]] = []
        self.headers = _NONE
        self.chunked = False
        self.announced = 0
        self.http10 = False
        self.keep_alive = False
        self.route: Route | None = None
        self.pieces: list[bytes] = []
        self.size = 0
        self.complete = False
        self.answered = False
        self.problem: Problem | None = None

    @classmethod
    def plain(cls, data: bytes) -> Self | None:
        """The request that `data` begins with, read in one call, if its head is whole and plain.

        Its body is left to be taken: `announced` bytes from `size`, which counts the head's here.
        """
        found = read_plain_request(data)
        if found is None:
            return None
        request = cls()
        request.method = b"POST"
        request.keep_alive = True
        request.target, request.headers, request.size, request.announced = found
        return request

    def seal(self) -> None:
        """The head is read: its headers can be looked up."""
        self.headers = headers = Headers(self.lines)
        self.chunked = headers.get(b"transfer-encoding") is not None
        self.announced = int(headers.get(b"content-length") or b"0")

    def head(self, *, without: bytes = b"") -> bytes:
        """The head as it was sent, but for the header named `without` (in lower case)."""
        version = b"1.0" if self.http10 else b"1.1"
        sent = self.headers.lines
        lines = [b"%b: %b\r\n" % line for line in sent if line[0].lower() != without]
        start = b"%b %b HTTP/%b\r\n" % (self.method, self.target, version)
        return b"".join((start, *lines, b"\r\n"))

    def take_body(self) -> bytes:
        """The whole body; the pieces are let go."""
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
