"""The client's side: one connection, its requests answered in the order in which they came.

A request on one of the relay's routes becomes an `Exchange` once it is read whole; any other is
handed to the application behind the relay, through a `Guest` on the same connection.

Pipelined requests are read ahead, 64 KiB of them, and wait for their turn. Reading goes on while an
answer is awaited: that is how a client that leaves is noticed at once. The end of the client's
bytes counts as leaving, as with nginx: who half-closes gets no answer.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from thunder_router.answers import Problem
from thunder_router.relay import problems
from thunder_router.relay.answer import Answer
from thunder_router.relay.application import Application
from thunder_router.relay.exchange import Exchange
from thunder_router.relay.reader import RequestReader
from thunder_router.relay.relay import Relay
from thunder_router.relay.request import Request

__all__ = ["Front"]

_REQUEST_BYTES: Final = 256
"""What a request without a body is taken to weigh while it waits."""
_AHEAD_LIMIT: Final = 64 * 1024
"""Bytes of pipelined requests read ahead before the client has to wait."""
_SMALL_BODY: Final = 64 * 1024
"""A refused request with a body up to this is read to its end, and the connection kept."""
_LINGER_S: Final = 5.0
"""How long a client may go on sending what is not wanted. Closing at once would reset the
connection, and the answer with it."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Front(RequestReader):
    """One client's connection."""

    def __init__(
        self, relay: Relay, application: Callable[["Front"], Application] | None = None
    ) -> None:
        self.relay = relay
        self.peer = ""
        self.paused = False
        self.deadline = math.inf
        self._make_application = application
        self._application: Application | None = None
        self._loop = asyncio.get_running_loop()
        super().__init__(relay.settings.max_body_bytes)
        self._read_timeout_s = relay.settings.request_read_timeout_s
        self._serving: Request | None = None  # whose answer is next
        self._exchange: Exchange | None = None
        self._waiting: deque[Request] = deque()
        self._ahead = 0  # bytes that the waiting ones take, about
        self._held_back = False  # reading is paused: too much is waiting
        self._last = False  # no request after the one being served
        self._served = 0

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.relay.settings.buffer_bytes)
        self.write = self.transport.write
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        self.relay.connections.add(self)
        self._wait_for_client()

    def eof_received(self) -> None:
        """The client sends no more, and so is taken to have left."""
        if self._exchange is not None:
            self.cut()
        elif self._incoming is not None and not self._deaf:
            self._give_up(problems.CUT_SHORT)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.relay.connections.discard(self)
        self._deaf = True
        self._waiting.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.leave()
        application, self._application = self._application, None
        if application is not None:
            application.connection_lost(exc)
        self._end_reading()

    def pause_writing(self) -> None:
        """The client does not keep up with its answer."""
        self.paused = True
        if self._exchange is not None:
            self._exchange.pause()
        elif self._application is not None:
            self._application.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.paused = False
        if self._exchange is not None:
            self._exchange.resume()
        elif self._application is not None:
            self._application.resume_writing()

    # --- from the reader ---

    @property
    def _is_idle(self) -> bool:
        return self._serving is None and not self._waiting

    def _began(self) -> None:
        if self._serving is None:
            self._wait_for_client()

    def _headed(self, request: Request) -> None:
        if self._is_idle:
            self._serve(request)
        else:
            self._waiting.append(request)
            self._read_ahead(_REQUEST_BYTES)

    def _grew(self, request: Request, piece: bytes) -> None:
        if request is self._serving:
            self.deadline = self._loop.time() + self._read_timeout_s
            if request.route is None:
                assert self._application is not None
                self._application.more(request, piece)
                return
        request.pieces.append(piece)
        if request is not self._serving:
            self._read_ahead(len(piece))

    def _completed(self, request: Request) -> None:
        if request is self._serving:
            self._whole(request)

    # --- the request whose turn it is ---

    def _serve(self, request: Request) -> None:
        """Its turn has come, and its head is read."""
        self._serving = request
        request.route = self.relay.routes.find(request.method, request.target)
        if request.problem is None:
            request.problem = self._object(request)
        expects = (request.headers.get(b"expect") or b"").lower() == b"100-continue"
        if request.problem is not None:
            small = request.announced <= _SMALL_BODY and not request.chunked and not expects
            if not request.complete and not small:
                self._give_up(request.problem)
                return
        elif request.route is None:
            self._hand_over(request)
        elif expects and not request.complete and not request.http10:
            self.write(_CONTINUE)
        if request.complete:
            self._whole(request)
        else:
            self._wait_for_client()

    def _object(self, request: Request) -> Problem | None:
        """What stands against serving it, as far as its head tells."""
        if request.route is None:
            return problems.NOT_FOUND if self._make_application is None else None
        if self.relay.key is not None and not self.relay.key.admits(request.headers):
            return problems.UNAUTHORIZED
        if request.announced > self._max_body:
            return problems.too_large(self._max_body)
        return None

    def _whole(self, request: Request) -> None:
        """Its turn has come, and it is read whole."""
        self.deadline = math.inf
        if request.problem is not None:
            self._refuse(request, request.problem)
        elif request.route is not None:
            self._exchange = Exchange(self.relay, self, request)
            self._exchange.start()
        elif self._application is not None:
            self._application.end(request)
            if request.answered:
                self.answered(keeps=True)

    def _hand_over(self, request: Request) -> None:
        """Gives it to the application, with as much of its body as has come."""
        if self._application is None:
            assert self._make_application is not None
            self._application = self._make_application(self)
        self._application.begin(request)
        pieces, request.pieces = request.pieces, []
        for piece in pieces:
            self._application.more(request, piece)

    def application_answered(self) -> None:
        """The application has answered, maybe before it had the whole request."""
        request = self._serving
        if request is not None:
            request.answered = True
            if request.complete:
                self.answered(keeps=True)

    def keeps(self, request: Request) -> bool:
        """Whether the connection may outlive the answer to this request."""
        limit = self.relay.settings.requests_per_connection
        spent = limit is not None and self._served + 1 >= limit
        last = self._last or self.relay.draining or (self._deaf and not self._waiting)
        return request.keep_alive and not (spent or last)

    def answered(self, *, keeps: bool) -> None:
        """The answer is complete: the next request's turn, or the end."""
        self._exchange = None
        self._serving = None
        self._served += 1
        if not keeps:
            self._deaf = True
            self.transport.close()
        elif self._waiting:
            self._loop.call_soon(self._next)
        elif self._last:
            self.transport.close()
        else:
            self._wait_for_client()

    def _next(self) -> None:
        if self._serving is None and self._waiting and not self.transport.is_closing():
            request = self._waiting.popleft()
            if not self._waiting:
                self._ahead = 0
                if self._held_back:
                    self._held_back = False
                    self.transport.resume_reading()
            self._serve(request)

    def _read_ahead(self, size: int) -> None:
        """Reads no more while much is waiting."""
        self._ahead += size
        if self._ahead > _AHEAD_LIMIT and not self._held_back:
            self._held_back = True
            self.transport.pause_reading()

    # --- refusals and ends ---

    def _give_up(self, problem: Problem) -> None:
        """Nothing more can be read from this client; it is told when its turn comes."""
        self._deaf = True
        request = self._incoming or Request()
        request.problem = problem
        if request is self._serving and request.route is None and self._application is not None:
            self.transport.close()  # the application may have begun to answer
        elif request is self._serving or (self._serving is None and not self._waiting):
            self._refuse(request, problem)
        elif request not in self._waiting:
            request.complete = True
            self._waiting.append(request)

    def _refuse(self, request: Request, problem: Problem) -> None:
        answer = Answer(self, request, request_id=request.headers.get(b"x-request-id") or b"")
        answer.refuse(problem)
        if answer.keeps:
            self.answered(keeps=True)
        else:
            self._linger()

    def _linger(self) -> None:
        """Ends our side of the connection, and lets the client find that out."""
        self._deaf = True
        self.deadline = self._loop.time() + _LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _wait_for_client(self) -> None:
        self.deadline = self._loop.time() + self._read_timeout_s

    def expire(self, now: float) -> None:
        """Ends what has taken too long."""
        if self._exchange is not None:
            self._exchange.expire(now)
        elif now >= self.deadline:
            self.deadline = math.inf
            if self._incoming is not None and not self._deaf:
                self._give_up(problems.TOO_SLOW)
            else:
                self.transport.close()

    def drain(self) -> None:
        """Ends with the answer that is under way, or now if there is none."""
        self._last = True
        if self._serving is None and not self._waiting:
            self.transport.close()
        elif self._application is not None and self._exchange is None:
            self._application.shutdown()

    def cut(self) -> None:
        """Ends now."""
        self._deaf = True
        self.transport.abort()
