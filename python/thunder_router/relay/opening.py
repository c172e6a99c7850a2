"""The beginning of a worker's answer, held back until it is clear what it is.

SGLang answers 200 to a stream and only then says that it refuses it, so a status is not to be
believed before the first event. Anything else is held until the first byte of its body: a head and
a short body then leave in one write, and a worker that breaks in between is a clean error still.
"""

from typing import TYPE_CHECKING, Final

from thunder_router._core import ResponseScanner
from thunder_router.answers import Problem
from thunder_router.relay.message import USAGE_ON_REQUEST
from thunder_router.relay.upstream import Upstream

if TYPE_CHECKING:
    from thunder_router._core import Dialect, RequestFacts

__all__ = ["Opening"]

_LIMIT: Final = 64 * 1024
"""Bytes held back at most; what has no event within them is passed on as it is."""
_UNSPECIFIC: Final = "The worker refused the request."


class Opening:
    """The head of an answer and the first of its body.

    Attributes:
        status: As the head says; see `refusal` for what the body says.
        sse: It is a stream of server-sent events.
        scanner: Reads the answer. None where it is not read: of a path that is handed on unread,
            or compressed; its usage is then not known.
    """

    __slots__ = ("_held", "_whole", "scanner", "sse", "status")

    def __init__(
        self, connection: Upstream, dialect: "Dialect | None", facts: "RequestFacts | None"
    ) -> None:
        headers = connection.headers
        self.status = connection.status
        self.sse = (headers.get(b"content-type") or b"").startswith(b"text/event-stream")
        self.scanner: ResponseScanner | None = None
        if dialect is not None and facts is not None and headers.get(b"content-encoding") is None:
            strip = self.sse and dialect in USAGE_ON_REQUEST and not facts.include_usage
            self.scanner = ResponseScanner(dialect, stream=self.sse, strip_usage=strip)
        self._held = b""
        self._whole = False

    def feed(self, chunk: bytes, complete: bool) -> bytes:
        """Takes more of the body.

        Returns:
            All that is there to be sent on, held back so far.
        """
        scanner = self.scanner
        if scanner is not None:
            chunk = scanner.feed(chunk)
            if complete:
                chunk += scanner.finish()
        self._whole = complete
        self._held = held = self._held + chunk if self._held else chunk
        return held

    @property
    def clear(self) -> bool:
        """Whether enough is there to tell what it is."""
        if self._whole or len(self._held) > _LIMIT:
            return True
        if self.sse and self.scanner is not None:
            return self.scanner.events > 0
        return bool(self._held)

    @property
    def busy(self) -> bool:
        """The worker has not begun it: its queue is full."""
        if self.status == 503:
            return True
        refusal = self.refusal if self.sse else None
        return refusal is not None and refusal.status == 503

    @property
    def refusal(self) -> Problem | None:
        """What a stream's first event refuses it for, with the status that it should have had."""
        scanner = self.scanner
        if scanner is None or not self.sse or scanner.first_event_error is None:
            return None
        code = scanner.first_event_error_code
        status = code if code is not None and 400 <= code < 600 else 500
        return Problem(status, scanner.first_event_error or _UNSPECIFIC, "worker_refused")

    @property
    def no_stream(self) -> Problem | None:
        """Why it cannot go on a stream that has begun already, or None: it can."""
        if self.sse and self.status < 300:
            return None
        message = None if self.scanner is None else self.scanner.error
        status = self.status if self.status >= 400 else 502
        return Problem(status, message or _UNSPECIFIC, "worker_refused")
