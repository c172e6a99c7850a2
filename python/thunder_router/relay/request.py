"""A request as it came in: head and body, before anyone looked at what it says."""

from thunder_router.answers import Problem
from thunder_router.relay.routes import Route

__all__ = ["Request"]


class Request:
    """One request of a client, filled while it is read.

    Attributes:
        method: In upper case.
        target: Path and query.
        lines: Headers as sent: name and value, in order.
        headers: The same with names in lower case.
        fields: The same as a mapping; of repeats, the last.
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
        "answered",
        "complete",
        "fields",
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
        self.headers: list[tuple[bytes, bytes]] = []
        self.fields: dict[bytes, bytes] = {}
        self.http10 = False
        self.keep_alive = False
        self.route: Route | None = None
        self.pieces: list[bytes] = []
        self.size = 0
        self.complete = False
        self.answered = False
        self.problem: Problem | None = None

    def seal(self) -> None:
        """The head is read: its headers can be looked up."""
        self.headers = [(name.lower(), value) for name, value in self.lines]
        self.fields = dict(self.headers)

    def head(self, *, without: bytes = b"") -> bytes:
        """The head as it was sent, but for the header named `without` (in lower case)."""
        version = b"1.0" if self.http10 else b"1.1"
        lines = [b"%b: %b\r\n" % line for line in self.lines if line[0].lower() != without]
        start = b"%b %b HTTP/%b\r\n" % (self.method, self.target, version)
        return b"".join((start, *lines, b"\r\n"))

    @property
    def chunked(self) -> bool:
        """Its length was not announced."""
        return b"transfer-encoding" in self.fields

    @property
    def announced(self) -> int:
        """Bytes of body that the head announces; 0 where it says none or not how many."""
        return int(self.fields.get(b"content-length", b"0"))

    def take_body(self) -> bytes:
        """The whole body; the pieces are let go."""
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
