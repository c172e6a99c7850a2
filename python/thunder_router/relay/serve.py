"""Serving: uvicorn's server around our connections.

uvicorn opens the sockets, runs the application's lifespan, turns signals into a graceful end and
waits for it; each connection is a `Front`.
"""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from uvicorn import Config, Server
from uvicorn.server import ServerState

from thunder_router.relay.front import Front
from thunder_router.relay.guest import Guest
from thunder_router.relay.memory import keep_freed
from thunder_router.relay.relay import Relay

__all__ = ["RelayServer"]

_log = logging.getLogger(__name__)


class RelayServer(Server):
    """Serves a relay, and an ASGI application on every other path.

    Args:
        app: Gets what is not the relay's; its lifespan is run.
        relay: Entered before the first connection, left after the last.
        grace_s: Seconds that answers under way have once the socket is closed.
        delay_s: Seconds between SIGTERM and that moment, in which everything is served as before.
            SIGINT, or a second signal, ends them.
        on_draining: Called once when the end begins, before anything is closed.
        host: Address to listen on.
        port: TCP port; 0: any free one.
        ssl_certfile: Serves https with this certificate chain.
        ssl_keyfile: And this key.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        relay: Relay,
        *,
        grace_s: float,
        delay_s: float = 0.0,
        on_draining: Callable[[], None] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_certfile: Path | None = None,
        ssl_keyfile: Path | None = None,
    ) -> None:
        self._relay = relay
        self._grace_s = grace_s
        self._delay_s = delay_s
        self._signals = 0
        self._hurried = asyncio.Event()
        self._on_draining = on_draining
        self._accepting = asyncio.Event()
        super().__init__(
            Config(
                app,
                host=host,
                port=port,
                http=_protocol(relay),  # type: ignore[arg-type]
                ws="none",
                loop="uvloop",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                ssl_certfile=ssl_certfile,
                ssl_keyfile=ssl_keyfile,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until told to stop by a signal or `should_exit`."""
        self._loop = asyncio.get_running_loop()
        async with self._relay:
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, then listens."""
        keep_freed()
        await super().startup(sockets)
        # What is loaded by now stays: the collector need not walk it while streams wait.
        gc.collect()
        gc.freeze()
        self._accepting.set()

    async def listening(self) -> int:
        """The TCP port, once connections are accepted there."""
        await self._accepting.wait()
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Turns SIGTERM and SIGINT into a graceful end.

        uvicorn would raise the signal once more afterwards: the process would die of it instead
        of ending, its caller's last steps left out and its exit status no success.
        """
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: someone at a keyboard, or who asks twice, does not want to wait."""
        super().handle_exit(sig, frame)
        self._signals += 1
        if sig == signal.SIGINT or self._signals > 1:
            self._loop.call_soon_threadsafe(self._hurried.set)

    async def _linger(self) -> None:
        """Goes on for the delay: balancers learn from a probe that answers, not from a refusal."""
        if self._delay_s <= 0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self._delay_s)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets answers under way be completed within the grace time, then ends everything."""
        _log.info("shutdown=begun connections=%d", len(self._relay.connections))
        if self._on_draining is not None:
            self._on_draining()
        await self._linger()
        self._relay.drain()
        overdue = asyncio.get_running_loop().call_later(self._grace_s, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            overdue.cancel()

    def _cut(self) -> None:
        connections = list(self._relay.connections)
        _log.warning("shutdown=overdue connections=%d", len(connections))
        for connection in connections:
            connection.cut()
        for task in self.server_state.tasks:
            task.cancel()


def _protocol(relay: Relay) -> Callable[..., asyncio.Protocol]:
    """What uvicorn calls for each connection."""

    def connect(
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        def guest(front: Front) -> Guest:
            return Guest(front, config, server_state, app_state, _loop)

        return _Served(relay, guest, server_state)

    return connect


class _Served(Front):
    """A front that uvicorn's server counts among its connections."""

    def __init__(
        self, relay: Relay, application: Callable[[Front], Guest], server_state: ServerState
    ) -> None:
        super().__init__(relay, application)
        self._counted: set[Any] = server_state.connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._counted.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._counted.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Ends with the answer that is under way, or now if there is none."""
        self.drain()
