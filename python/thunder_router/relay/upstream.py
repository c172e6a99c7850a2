"""The worker's side: one kept-alive connection, one request on it at a time.

An answer that comes in one piece and is plain is read by one call of the native core. llhttp
(through httptools) reads all others. Its body callback is a bare `list.append`, so a chunk
of a stream costs no Python frame of ours until all that one read brought is parsed; then the
`Receiver` hears of it in one call. The bytes it gets do not depend on how the stream was split.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import httptools

from thunder_router._core import Headers, read_plain_answer
from thunder_router.errors import ProtocolError, UpstreamError, WorkerResetError

__all__ = ["Home", "Receiver", "Upstream"]

_NONE: Final = Headers([])
_HEAD_LIMIT: Final = 256 * 1024
"""Bytes of a head, or of trailers, above which an answer is not HTTP any more."""
_STALE_S: Final = 1.0
"""A worker that closes an idle connection just as it is used again is heard of within a round
trip. Later than this the request has reached it, and must not be sent twice."""


class Receiver(Protocol):
    """Who waits for the answer on a connection."""

    def received(self, chunk: bytes, complete: bool) -> None:
        """More of the body, transfer coding removed; the head stands in the connection.

        The first call comes with the head, even where no body follows it.
        """

    def lost(self, error: UpstreamError, *, stale: bool) -> None:
        """The answer will not be completed.

        `stale`: an idle connection ended before the worker can have seen the request.
        """


class Home(Protocol):
    """Where a connection rests between two requests."""

    def park(self, connection: "Upstream") -> None:
        """It may be used again."""

    def forget(self, connection: "Upstream") -> None:
        """It is gone."""


class Upstream(asyncio.Protocol):
    """One connection to a worker.

    Attributes:
        status: Of the answer being received.
        reason: The phrase beside it.
        headers: Its headers as sent.
        trailers: Lines after a chunked body.
        uses: Requests sent on this connection so far.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._paused = False
        self.uses = 0
        # Read by the parser's constructor, before it looks for callbacks.
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser: Any = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._expect(bodiless=False)

    def _expect(self, *, bodiless: bool) -> None:
        """Gets ready for the next answer."""
        self.status = 0
        self.reason = b""
        self.headers = _NONE
        self._lines: list[tuple[bytes, bytes]] = []
        self.trailers: list[tuple[bytes, bytes]] = []
        self._pieces.clear()
        self._bodiless = bodiless
        self._kept = False  # the worker keeps the connection
        self._headed = False  # the final answer's head is read
        self._interim = False  # within a 1xx answer
        self._complete = False
        self._surplus = False  # bytes after the end of the answer
        self._whole_pieces = 0  # pieces that belong to the answer, once it is complete
        self._fruitless = 0  # bytes since anything came of them
        self._heard = False

    # --- towards the worker ---

    @property
    def usable(self) -> bool:
        """Open, and nobody's."""
        transport = self._transport
        return self._receiver is None and transport is not None and not transport.is_closing()

    def serves(self, receiver: Receiver) -> bool:
        """Whether it is this receiver's answer that is coming."""
        return self._receiver is receiver

    def send(
        self, receiver: Receiver, parts: "Sequence[bytes | memoryview]", *, bodiless: bool
    ) -> None:
        """Sends one request; `receiver` hears of the answer.

        Args:
            receiver: Told of every part of the answer, until it is complete or lost.
            parts: The head with its empty line, then the body.
            bodiless: The answer has no body whatever its head says (HEAD).
        """
        assert self._transport is not None, "sent on a connection that was never made"
        if self.uses:
            self._expect(bodiless=bodiless)
        else:
            self._bodiless = bodiless
        self.uses += 1
        self._sent_at = self._loop.time()
        self._receiver = receiver
        self._transport.writelines(parts)

    def pause(self) -> None:
        """Reads no more: the receiver has enough for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def drop(self) -> None:
        """Ends the connection at once; the receiver hears nothing more."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parses what came, and passes on what came of it."""
        receiver = self._receiver
        if receiver is None:  # it speaks without having been asked
            self.drop()
            return
        if not self._heard and not self._bodiless and self._take_plain(receiver, data):
            return
        self._heard = True
        broken = False
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # A bad byte after the end of an answer does not spoil the answer.
            broken = not self._complete
            self._surplus = True
        if not self._headed:
            self._fruitless += len(data)
            if broken or self._fruitless > _HEAD_LIMIT:
                self._fail(receiver, ProtocolError("The worker's answer is not HTTP."))
            return
        complete = self._complete
        pieces = self._pieces
        if complete:
            del pieces[self._whole_pieces :]
        elif pieces:
            self._fruitless = 0
        else:
            self._fruitless += len(data)
            broken = broken or self._fruitless > _HEAD_LIMIT
        chunk = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if complete:
            self._rest()
        receiver.received(chunk, complete)
        if broken and self._receiver is receiver:
            self._fail(receiver, ProtocolError("The worker's answer is not HTTP."))

    def _take_plain(self, receiver: Receiver, data: bytes) -> bool:
        """Takes an answer that is plain and came in one piece; the parser does not see it."""
        found = read_plain_answer(data)
        if found is None:
            return False
        self.status, self.reason, self.headers, body = found
        self._heard = self._headed = self._complete = self._kept = True
        self._rest()
        receiver.received(body, True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it whatever was not received."""
        self._home.forget(self)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if exc is None and self._headed and not self._complete and self._until_close():
                receiver.received(b"", True)
            else:
                age_s = self._loop.time() - self._sent_at
                stale = not self._heard and self.uses > 1 and age_s < _STALE_S
                receiver.lost(WorkerResetError("The worker closed the connection."), stale=stale)
        # The parser holds our callbacks: without this the two keep each other alive.
        del self._parser, self._feed
        self._transport = None

    # --- callbacks of the parser ---

    def on_message_begin(self) -> None:
        """Something begins; after an answer it is nothing that we asked for."""
        if self._complete:
            self._surplus = True

    def on_status(self, phrase: bytes) -> None:
        """The phrase beside the status, maybe in parts."""
        if not self._complete:
            self.reason += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if self._complete:
            self._surplus = True
        elif self._headed:
            self.trailers.append((name, value))
        else:
            self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is read; 1xx answers are not what we wait for."""
        if self._complete:
            self._surplus = True
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            self.reason = b""
            self._lines.clear()
            return
        self.headers = headers = Headers(self._lines)
        if (headers.get(b"transfer-encoding") or b"chunked").lower() != b"chunked":
            raise ProtocolError("a transfer coding nobody asked for")
        self.status = status
        self._headed = True
        self._kept = self._parser.should_keep_alive()  # it says so here only
        if self._bodiless:
            self._complete = self._surplus = True

    def on_message_complete(self) -> None:
        """The answer has ended."""
        if self._interim:
            self._interim = False
        elif self._complete:
            self._surplus = True
        else:
            self._complete = True
            self._whole_pieces = len(self._pieces)

    # --- the end of an answer ---

    def _until_close(self) -> bool:
        """The answer ends with the connection."""
        get = self.headers.get
        return get(b"content-length") is None and get(b"transfer-encoding") is None

    def _rest(self) -> None:
        """Keeps the connection for another request where both sides are through with this one."""
        self._receiver = None
        transport = self._transport
        assert transport is not None
        if (
            not self._surplus
            and not transport.is_closing()
            and self._kept
            and transport.get_write_buffer_size() == 0  # else it answered before it heard us out
        ):
            self.resume()
            self._home.park(self)
        else:
            transport.close()

    def _fail(self, receiver: Receiver, error: UpstreamError) -> None:
        self.drop()
        receiver.lost(error, stale=False)
