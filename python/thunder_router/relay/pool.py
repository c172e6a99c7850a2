"""Idle connections to workers, and the making of new ones.

A connection is kept for less time than a worker keeps it (uvicorn: 5 s), so that the worker is
rarely the one to end it, and the youngest is used first, so that a burst's connections can age.
"""

import asyncio
from typing import Final

from thunder_router.errors import ConnectError
from thunder_router.relay.contract import Endpoint
from thunder_router.relay.upstream import Upstream

__all__ = ["Lane", "Pool"]


class Lane:
    """One worker's idle connections; the home they come back to."""

    def __init__(self, endpoint: Endpoint, *, idle_s: float, uses: int | None) -> None:
        self.endpoint: Final = endpoint
        self._idle_s = idle_s
        self._uses = uses
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Upstream, float] = {}  # to the time it was parked, oldest first
        self._closed = False

    def take(self) -> Upstream | None:
        """The idle connection used last, or None."""
        idle = self._idle
        while idle:
            connection, parked = idle.popitem()
            if connection.usable and self._loop.time() - parked < self._idle_s:
                return connection
            connection.drop()
        return None

    def park(self, connection: Upstream) -> None:
        """Keeps it for the next request."""
        spent = self._uses is not None and connection.uses >= self._uses
        if spent or self._closed:
            connection.drop()
        else:
            self._idle[connection] = self._loop.time()

    def forget(self, connection: Upstream) -> None:
        """It is gone."""
        self._idle.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Ends those that nobody wanted for too long."""
        for connection in [c for c, parked in self._idle.items() if now - parked >= self._idle_s]:
            del self._idle[connection]
            connection.drop()

    def close(self) -> None:
        """Ends them all; what comes back later ends too."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[0].drop()


class Pool:
    """A lane for each worker.

    Args:
        idle_s: Seconds a connection may be idle.
        connect_timeout_s: Seconds to connect, TLS included.
        uses: Requests on one connection before it is replaced; None: no limit.
    """

    def __init__(self, *, idle_s: float, connect_timeout_s: float, uses: int | None) -> None:
        self._idle_s = idle_s
        self._connect_timeout_s = connect_timeout_s
        self._uses = uses
        self._lanes: dict[int, Lane] = {}

    def lane(self, worker: int, endpoint: Endpoint) -> Lane:
        """The worker's lane; a new one where its endpoint changed."""
        lane = self._lanes.get(worker)
        if lane is not None:
            if lane.endpoint is endpoint or lane.endpoint == endpoint:
                return lane
            lane.close()
        lane = self._lanes[worker] = Lane(endpoint, idle_s=self._idle_s, uses=self._uses)
        return lane

    async def connect(self, lane: Lane) -> Upstream:
        """A new connection.

        Raises:
            ConnectError: refused, unreachable, too slow, or TLS failed.
        """
        connection = Upstream(lane)
        endpoint = lane.endpoint
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, endpoint.host, endpoint.port, ssl=endpoint.tls
                )
        except TimeoutError as error:
            connection.drop()
            raise ConnectError("The worker did not take the connection in time.") from error
        except OSError as error:
            raise ConnectError("The worker could not be reached.") from error
        except BaseException:
            connection.drop()
            raise
        return connection

    def sweep(self, now: float) -> None:
        """Ends what was idle for too long."""
        for lane in self._lanes.values():
            lane.sweep(now)

    def close(self) -> None:
        """Ends every idle connection."""
        for lane in self._lanes.values():
            lane.close()
