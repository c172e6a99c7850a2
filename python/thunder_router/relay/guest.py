"""The application behind the relay, as a guest on a client's connection.

Whatever is not the relay's is answered by the ASGI application (FastAPI) through uvicorn's own
protocol, which is fed the requests that `Front` has read and writes to the same transport.
"""

from asyncio import AbstractEventLoop
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from thunder_router.relay.front import Front
from thunder_router.relay.request import Request

__all__ = ["Guest"]


class Guest(HttpToolsProtocol):
    """uvicorn's side of one connection, without the ownership of it."""

    def __init__(
        self,
        front: Front,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self._front = front
        self.connection_made(front.transport)
        # The server ends and counts fronts, not their guests.
        self.connections.discard(self)

    def begin(self, request: Request) -> None:
        """Takes the head, as it was sent."""
        self.data_received(request.head())

    def more(self, request: Request, piece: bytes) -> None:
        """Takes a part of the body."""
        self.data_received(b"%x\r\n%b\r\n" % (len(piece), piece) if request.chunked else piece)

    def end(self, request: Request) -> None:
        """The body is complete."""
        if request.chunked:
            self.data_received(b"0\r\n\r\n")

    def on_response_complete(self) -> None:
        """The application has answered."""
        super().on_response_complete()
        self._front.application_answered()

    def timeout_keep_alive_handler(self) -> None:
        """The front ends idle connections."""
