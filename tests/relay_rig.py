"""A relay between a test's own client and a test's own workers, on loopback sockets.

`Desk` is an admission that counts: every ticket must end exactly once. `Yard` knows where the
workers are and writes down what the relay says about them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from faulty_worker import FaultyWorker
from thunder_router.config import RelaySettings
from thunder_router.errors import NoWorkerError
from thunder_router.relay.application import Application
from thunder_router.relay.contract import Arrival, Ended, Endpoint, Fault
from thunder_router.relay.front import Front
from thunder_router.relay.keys import ClientKey
from thunder_router.relay.relay import Relay

CHAT = b"/v1/chat/completions"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
STREAM = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
ASKED = b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}'


@dataclass
class Spot:
    """A place."""

    worker: int
    rank: int = 0
    session_id: str | None = None
    priority: int | None = None


class Chit:
    """A ticket that writes down what happens to it."""

    def __init__(self, desk: "Desk", arrival: Arrival) -> None:
        self.desk = desk
        self.arrival = arrival
        self.story: list[str] = []
        self.result: dict[str, Any] = {}
        self.refused: set[int] = set()
        self.progressed = 0
        self.place: Spot | None = None
        self.outcome: asyncio.Future[Spot] = asyncio.get_running_loop().create_future()
        if not desk.holds:
            self._choose()

    def _choose(self) -> None:
        free = [spot for spot in self.desk.spots if spot.worker not in self.refused]
        self.place = free[0] if free else None
        self.outcome = asyncio.get_running_loop().create_future()
        if self.place is None:
            self.reject(NoWorkerError("every worker bounced it"))

    def admit(self, spot: Spot | None = None) -> None:
        if not self.outcome.done():
            self.place = spot or self.desk.spots[0]
            self.outcome.set_result(self.place)

    def reject(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # nobody may be there to hear it

    async def placed(self) -> Spot:
        try:
            return await asyncio.shield(self.outcome)
        except asyncio.CancelledError:
            raise
        except Exception:
            self.story.append("rejected")
            raise

    def bounced(self) -> None:
        assert self.place is not None
        self.story.append("bounced")
        self.refused.add(self.place.worker)
        self._choose()

    def progress(self, decoded_tokens: int) -> None:
        self.progressed = decoded_tokens

    def finished(self, **result: Any) -> None:
        self.result = result
        self._end("finished")

    def failed(self) -> None:
        self._end("failed")

    def cancelled(self) -> None:
        self._end("cancelled")

    def _end(self, how: str) -> None:
        self.story.append(how)
        self.desk.an_end.set()

    @property
    def ends(self) -> list[str]:
        return [word for word in self.story if word != "bounced"]


@dataclass
class Desk:
    """An admission under a test's control."""

    spots: list[Spot] = field(default_factory=lambda: [Spot(0)])
    holds: bool = False
    tickets: list[Chit] = field(default_factory=list)
    refuses: Exception | None = None
    an_arrival: asyncio.Event = field(default_factory=asyncio.Event)
    an_end: asyncio.Event = field(default_factory=asyncio.Event)
    farewells: list[Arrival] = field(default_factory=list)

    def arrive(self, arrival: Arrival) -> Chit:
        if self.refuses is not None:
            raise self.refuses
        chit = Chit(self, arrival)
        self.tickets.append(chit)
        self.an_arrival.set()
        return chit

    def farewell(self, arrival: Arrival) -> tuple[str | None, bool]:
        self.farewells.append(arrival)
        return "p", True

    async def ended(self) -> None:
        """Waits until every ticket has ended, and checks that none did twice."""
        while not all(chit.ends for chit in self.tickets):
            self.an_end.clear()
            await self.an_end.wait()
        assert [chit.ends for chit in self.tickets if len(chit.ends) != 1] == []

    @property
    def stories(self) -> list[list[str]]:
        return [chit.story for chit in self.tickets]


@dataclass
class Yard:
    """Where the workers are, and what was said about them."""

    endpoints: dict[int, Endpoint] = field(default_factory=dict)
    notes: list[tuple[int, Fault | None]] = field(default_factory=list)

    def endpoint(self, worker: int) -> Endpoint:
        if worker not in self.endpoints:
            raise NoWorkerError("the worker is gone")
        return self.endpoints[worker]

    def answered(self, worker: int) -> None:
        self.notes.append((worker, None))

    def faulted(self, worker: int, fault: Fault) -> None:
        self.notes.append((worker, fault))

    def change(self, worker: int, **changes: Any) -> None:
        self.endpoints[worker] = replace(self.endpoints[worker], **changes)


@dataclass
class Log:
    """An observer that remembers."""

    entries: list[Ended] = field(default_factory=list)

    def ended(self, exchange: Ended) -> None:
        self.entries.append(exchange)


@dataclass
class Reply:
    """An answer as the client got it."""

    status: int
    head: bytes
    body: bytes
    trailers: bytes = b""
    whole: bool = True

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.rstrip(b"\r\n").split(b"\r\n")[1:]
        return [(n, v) for n, _, v in (line.partition(b": ") for line in lines)]

    def header(self, name: bytes) -> bytes | None:
        return {n.lower(): v for n, v in self.headers}.get(name)


class RawClient:
    """A client that sends what it is told, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: bytes = BODY, target: bytes = CHAT, *headers: bytes) -> None:
        lines = [b"POST " + target + b" HTTP/1.1", b"Host: router", *headers]
        self.send(b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body]))

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def chunk(self) -> bytes:
        """One chunk; empty at the end of the body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size)
        if size:
            assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def reply(self, *, bodiless: bool = False) -> Reply:
        """One whole answer, or as much of it as came before the connection ended."""
        head = await self.head()
        reply = Reply(int(head.split(b" ", 2)[1]), head, b"")
        if bodiless or reply.status in (204, 304) or reply.status < 200:
            return reply
        try:
            if reply.header(b"transfer-encoding") == b"chunked":
                while data := await self.chunk():
                    reply.body += data
                while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
                    reply.trailers += line
            elif (length := reply.header(b"content-length")) is not None:
                reply.body = await self.reader.readexactly(int(length))
            else:
                reply.body = await self.reader.read()
        except asyncio.IncompleteReadError as error:
            reply.body += error.partial
            reply.whole = False
        return reply

    async def ask(self, body: bytes = BODY, target: bytes = CHAT, *headers: bytes) -> Reply:
        self.post(body, target, *headers)
        return await self.reply()

    async def end(self) -> bytes:
        """What still comes until the router closes; empty also after a reset."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def leave(self) -> None:
        """Closes the connection."""
        self.writer.transport.abort()


@dataclass
class Rig:
    """A running relay."""

    relay: Relay
    desk: Desk
    yard: Yard
    log: Log
    port: int
    clients: list[RawClient] = field(default_factory=list)

    async def client(self) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        client = RawClient(reader, writer)
        self.clients.append(client)
        return client

    async def ask(self, body: bytes = BODY, target: bytes = CHAT, *headers: bytes) -> Reply:
        """One request on a connection of its own."""
        return await (await self.client()).ask(body, target, *headers)


@contextlib.asynccontextmanager
async def relay(
    *workers: FaultyWorker,
    desk: Desk | None = None,
    key: str | None = None,
    application: Callable[[Front], Application] | None = None,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Runs a relay before `workers`; at the end every ticket must have ended exactly once."""
    desk = desk or Desk([Spot(number) for number in range(len(workers))])
    yard = Yard({number: endpoint_of(worker) for number, worker in enumerate(workers)})
    log = Log()
    made = Relay(
        RelaySettings(**settings),
        admission=desk,
        workers=yard,
        observer=log,
        key=None if key is None else ClientKey(key),
    )
    async with made:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Front(made, application), "127.0.0.1", 0)
        rig = Rig(made, desk, yard, log, server.sockets[0].getsockname()[1])
        try:
            yield rig
        finally:
            for client in rig.clients:
                client.leave()
            server.close()
    await desk.ended()


def endpoint_of(worker: FaultyWorker) -> Endpoint:
    return Endpoint(host=worker.host, port=worker.port, host_header=b"127.0.0.1:%d" % worker.port)
