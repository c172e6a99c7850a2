"""From a client's bytes to requests.

A plain head (a POST that every reader of HTTP understands in the same way) is read by one call of
the native core, and its body is counted off. Everything else is llhttp's (through httptools), so
what a proxy must be strict about (lengths that contradict each other, bare line feeds, control
characters) is refused before anyone sees it.
"""

import asyncio
import logging
from typing import Any, Final

import httptools

from thunder_router.answers import Problem
from thunder_router.relay import problems
from thunder_router.relay.request import Request
from thunder_router.relay.routes import origin_form

__all__ = ["RequestReader"]

_log = logging.getLogger(__name__)

_HEAD_LIMIT: Final = 64 * 1024
"""Bytes of a head, of trailers, or of anything that adds nothing to a body."""
_HEADERS_LIMIT: Final = 256


class RequestReader(asyncio.Protocol):
    """Reads one client's requests; what becomes of them is for the class that extends it."""

    def __init__(self, max_body: int) -> None:
        self._start_parser()
        self._max_body = max_body
        self._incoming: Request | None = None  # being read
        self._in_head = False
        self._declining = False  # the request offered another protocol
        self._missing = 0  # bytes to come of a plain request's body
        self._fruitless = 0  # bytes since anything came of them
        self._deaf = False  # nothing that still comes is wanted

    def _start_parser(self) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        # What a client sends after its last request is not worth an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed = self._parser.feed_data

    def _end_reading(self) -> None:
        # The parser holds our callbacks: without this the two keep each other alive.
        del self._parser, self._feed

    # --- for the class that extends it ---

    @property
    def _is_idle(self) -> bool:
        """No request waits for its answer or its turn."""
        raise NotImplementedError

    def _began(self) -> None:
        """A request begins."""
        raise NotImplementedError

    def _headed(self, request: Request) -> None:
        """Its head is read, and, where it says so, its body too."""
        raise NotImplementedError

    def _grew(self, request: Request, piece: bytes) -> None:
        """A part of its body was read."""
        raise NotImplementedError

    def _completed(self, request: Request) -> None:
        """It is read whole."""
        raise NotImplementedError

    def _give_up(self, problem: Problem) -> None:
        """Nothing more can be read from this client."""
        raise NotImplementedError

    def cut(self) -> None:
        """Ends the connection now."""
        raise NotImplementedError

    # --- bytes ---

    def data_received(self, data: bytes) -> None:
        """Reads requests; what they ask for is begun within this call."""
        if self._deaf:
            return
        try:
            if self._missing:
                data = self._read_plain_body(data)
            elif self._incoming is None and self._is_idle and (found := Request.plain(data)):
                data = self._read_plain(found, data)
            if data and not self._deaf:
                self._fruitless += len(data)
                self._feed(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except Exception as error:
            is_ours = isinstance(error, httptools.HttpParserCallbackError)
            if isinstance(error, httptools.HttpParserError) and not is_ours:
                self._give_up(problems.MALFORMED)
            else:
                _log.error("front=failed", exc_info=error)
                self.cut()
        if self._fruitless > _HEAD_LIMIT and not self._deaf:
            self._give_up(problems.HEAD_TOO_LARGE)

    def _read_plain(self, request: Request, data: bytes) -> bytes:
        """Takes the request that `data` begins with. Returns what follows it."""
        start = request.size
        end = start + request.announced
        request.size = 0
        self._fruitless = 0
        if end == len(data):
            request.pieces.append(data[start:])
            request.size = request.announced
            request.complete = True
            self._headed(request)
            return b""
        self._incoming = request
        self._missing = request.announced
        self._headed(request)
        return self._read_plain_body(data[start:])

    def _read_plain_body(self, data: bytes) -> bytes:
        """Takes a part of a plain request's body. Returns what follows it."""
        piece = data[: self._missing]
        self._missing -= len(piece)
        self.on_body(piece)
        if not self._missing:
            self.on_message_complete()
        return data[len(piece) :]

    def _decline_upgrade(self, rest: bytes) -> None:
        """Reads the request again as if it had not offered another protocol: nobody here has one.

        The parser takes the body for the other protocol, so it cannot be asked to read on.
        """
        request, self._incoming = self._incoming, None
        assert request is not None
        self._start_parser()
        self.data_received(request.head(without=b"upgrade") + rest)

    # --- callbacks of the parser ---

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._deaf:
            return
        self._incoming, self._in_head = Request(), True
        self._began()

    def on_url(self, part: bytes) -> None:
        """The request target, maybe in parts."""
        if self._incoming is not None:
            self._incoming.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers end here: the body is passed on with its length."""
        request = self._incoming
        if self._in_head and request is not None:
            request.lines.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is read."""
        request = self._incoming
        if self._deaf or request is None:
            return
        self._in_head = False
        self._fruitless = 0
        parser = self._parser
        request.method = parser.get_method()
        request.target = origin_form(request.target)
        request.seal()
        request.http10 = parser.get_http_version() != "1.1"
        self._declining = parser.should_upgrade()
        if self._declining:
            return
        request.keep_alive = not request.http10 and parser.should_keep_alive()
        if len(request.headers) > _HEADERS_LIMIT:
            request.problem = problems.HEAD_TOO_LARGE
        self._headed(request)

    def on_body(self, piece: bytes) -> None:
        """A part of a body."""
        request = self._incoming
        if self._deaf or request is None:
            return
        self._fruitless = 0
        request.size += len(piece)
        if request.problem is not None:
            return
        if request.size > self._max_body:
            self._give_up(problems.too_large(self._max_body))
            return
        self._grew(request, piece)

    def on_message_complete(self) -> None:
        """A request is read whole."""
        request = self._incoming
        if self._deaf or request is None or self._declining:
            return
        self._fruitless = 0
        self._incoming = None
        request.complete = True
        self._completed(request)
