"""A worker that does what a test tells it, on raw sockets: also what no HTTP server would.

It reads whole requests and keeps what it saw, byte for byte. What it answers is a coroutine of the
test's, which writes bytes, waits, resets or closes, and can await that its peer is gone.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

__all__ = ["FaultyWorker", "Seen", "Wire", "chunk", "chunks", "event", "plain", "sse_head"]

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def plain(
    body: bytes = b'{"ok": true}', status: bytes = b"200 OK", headers: Sequence[bytes] = ()
) -> bytes:
    """A whole answer with its length."""
    lines = [b"HTTP/1.1 " + status, b"content-type: application/json", *headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", body])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(*parts: bytes) -> bytes:
    """A whole chunked body."""
    return b"".join(map(chunk, parts)) + b"0\r\n\r\n"


def event(data: bytes) -> bytes:
    """A server-sent event in a chunk of its own."""
    return chunk(b"data: " + data + b"\n\n")


def sse_head(*headers: bytes) -> bytes:
    return SSE[:-2] + b"".join(h + b"\r\n" for h in headers) + b"\r\n"


@dataclass
class Seen:
    """One request as it came over the wire."""

    head: bytes
    body: bytes = b""

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.rstrip(b"\r\n").split(b"\r\n")[1:]
        return [(n, v) for n, _, v in (line.partition(b": ") for line in lines)]

    def header(self, name: bytes) -> bytes | None:
        return {n.lower(): v for n, v in self.headers}.get(name)


class Wire:
    """The worker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Sends; also into a broken connection."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def send_until_stuck(self, data: bytes, unsent: int = 2**20) -> int:
        """Sends `data` again and again until the peer takes no more.

        Returns:
            How often it was sent, what waits here unsent included.
        """
        transport, times = self.writer.transport, 0
        while not self.writer.is_closing():
            self.writer.write(data)
            times += 1
            if transport.get_write_buffer_size() > unsent:
                # Full, unless the peer is only slower than we are: give it a moment to prove that.
                before = transport.get_write_buffer_size()
                await asyncio.sleep(0.2)
                if transport.get_write_buffer_size() == before:
                    break
            await asyncio.sleep(0)
        return times

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection as a crash does: RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Returns once the peer has closed or reset the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Seen, Wire], Awaitable[None]]


async def ok(seen: Seen, wire: Wire) -> None:
    await wire.send(plain())


@dataclass
class FaultyWorker:
    """Listens on a free port of the loopback while its context is open.

    Attributes:
        script: Answers each request. Returning leaves the connection open for the next.
        seen: Every request, in order of completion.
        aborted: Bodies sent to `/abort_request`.
        connections: How many were opened.
        arrived: Set when a request was read whole; clear it to wait for the next.
    """

    script: Script = ok
    seen: list[Seen] = field(default_factory=list)
    aborted: list[bytes] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    abort_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    read_whole: bool = True
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._wires: list[Wire] = []
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for wire in self._wires:
            wire.writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close_idle(self) -> None:
        """Closes every connection, as a server does whose keep-alive has run out."""
        for wire in self._wires:
            wire.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        wire = Wire(reader, writer)
        self._wires.append(wire)
        try:
            while (seen := await self._read(reader)) is not None:
                if seen.target.endswith(b"/abort_request"):
                    self.aborted.append(seen.body)
                    self.abort_arrived.set()
                    await wire.send(plain(b""))
                    continue
                self.seen.append(seen)
                self.arrived.set()
                await self.script(seen, wire)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled only by our own exit
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Seen | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        seen = Seen(head)
        if self.read_whole:
            length = int(seen.header(b"content-length") or 0)
            seen.body = await reader.readexactly(length)
        return seen
