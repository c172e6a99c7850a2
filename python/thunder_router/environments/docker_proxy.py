"""A Docker socket for agents: what they create carries their program's labels, and stays harmless.

For agents that cannot label what they run, or that start containers inside containers. Give them
`DOCKER_HOST=unix:///run/thunder/PROGRAM.sock` instead of the engine's own socket. One socket serves
one program, or one run. `proxy_policy` says what is allowed; this module moves bytes.

Theory of operation. Requests on a connection are handled one by one: head, verdict, body, answer.
Only bodies of creations are read whole; all else streams. After 101 (attach, exec) both directions
are spliced until both have ended. A client that leaves in the midst of an answer ends its upstream
connection, which cancels a pull and closes an event stream.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from thunder_router.environments import labels, proxy_policy
from thunder_router.environments.proxy_policy import Allowed, Refused
from thunder_router.environments.proxy_wire import (
    HEAD_LIMIT,
    Reader,
    pass_body,
    read_body,
    read_head,
    with_body,
)

__all__ = ["serve"]

_log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
_BODILESS: Final = frozenset({204, 304})
_RAW: Final = "application/vnd.docker.raw-stream"


@asynccontextmanager
async def serve(listen: Path, engine: Path, program: str, router: str) -> AsyncIterator[None]:
    """Serves the proxy on one socket until left.

    Args:
        listen: The socket to make; for its owner and group.
        engine: The engine's socket.
        program: Whose the created objects are.
        router: The id of the router that looks after them.

    Raises:
        ValueError: the program cannot own anything.
    """
    if not labels.may_own(program):
        raise ValueError(f"{program!r} cannot own anything")
    stamped = {labels.MANAGED: "1", labels.ROUTER: router, labels.PROGRAM: program}
    loop = asyncio.get_running_loop()
    connections: set[asyncio.Task[None]] = set()

    def connected() -> asyncio.StreamReaderProtocol:
        reader = Reader()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = loop.create_task(_Connection(reader, writer, engine, stamped).run())
            connections.add(task)
            task.add_done_callback(connections.discard)

        return asyncio.StreamReaderProtocol(reader, accept, loop=loop)

    _clear(listen)
    server = await loop.create_unix_server(connected, listen)
    _open_to_group(listen)
    try:
        yield
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
        _clear(listen)


def _clear(listen: Path) -> None:
    listen.unlink(missing_ok=True)


def _open_to_group(listen: Path) -> None:
    listen.chmod(0o660)


class _Connection:
    """One agent's connection, and ours to the engine."""

    def __init__(
        self,
        reader: Reader,
        writer: asyncio.StreamWriter,
        engine: Path,
        stamped: Mapping[str, str],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._engine = engine
        self._stamped = stamped

    async def run(self) -> None:
        """Serves requests until either side ends."""
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(
                self._engine, limit=HEAD_LIMIT
            )
        except OSError as error:
            # Its question is read first: closed on unread bytes, it would see no answer at all.
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                await read_head(self._reader)
            self._refuse(502, f"the engine is not there: {error}")
            self._writer.close()
            return
        try:
            while await self._one(up_reader, up_writer):
                pass
        except ValueError as error:
            self._refuse(400, f"refused by thunder-router: {error}")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Either side broke off: nobody is left to be told.
            pass
        finally:
            for writer in (up_writer, self._writer):
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _one(self, up_reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False: the connection ends here."""
        head = await read_head(self._reader)
        if head is None:
            return False
        method, _, rest = head.start.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        path = unquote(path)
        whole = proxy_policy.needs_body(method, path)
        body = await read_body(self._reader, head) if whole else b""
        verdict = proxy_policy.judged(method, path, query, body, self._stamped)
        if isinstance(verdict, Allowed):
            verdict = await self._owned(verdict, method, path, query)
        if isinstance(verdict, Refused):
            _log.info("refused=%r request=%r", verdict.reason, head.start)
            self._refuse(403, f"refused by thunder-router: {verdict.reason}")
            await self._writer.drain()
            # What is left of its body would be taken for the next request.
            return whole
        if whole:
            up_writer.write(with_body(head, verdict.body if verdict.body is not None else body))
        else:
            up_writer.write(head.raw)
            await pass_body(self._reader, up_writer, head)
        await up_writer.drain()
        return await self._answer(method, up_reader, up_writer)

    async def _answer(
        self, method: str, up_reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter
    ) -> bool:
        answer = await read_head(up_reader)
        if answer is None:
            return False
        self._writer.write(answer.raw)
        await self._writer.drain()
        status = int(answer.start.split()[1])
        raw = answer.fields.get("content-type", "").startswith(_RAW)
        if status == 101 or (raw and not answer.chunked and answer.length is None):
            await asyncio.gather(_splice(self._reader, up_writer), _splice(up_reader, self._writer))
            return False
        if method == "HEAD" or status in _BODILESS:
            return True
        passing = asyncio.ensure_future(pass_body(up_reader, self._writer, answer, until_end=True))
        leaving = asyncio.ensure_future(self._reader.ended.wait())
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return passing.done() and not passing.result()
        finally:
            leaving.cancel()
            passing.cancel()
            await asyncio.gather(leaving, passing, return_exceptions=True)

    async def _owned(
        self, verdict: Allowed, method: str, path: str, query: str
    ) -> Allowed | Refused:
        """The verdict, once whatever the request enters, changes or mounts is this program's."""
        found = proxy_policy.target(method, path, query)
        if found is not None and await self._whose(*found) is False:
            return Refused(f"{found[1]} is not this program's")
        for name in verdict.volumes:
            owned = await self._whose("volumes", name)
            if owned is False:
                return Refused(f"volume {name} is not this program's")
            if owned is None:
                # The engine would make it without a label, and nobody would remove it.
                body = json.dumps({"Name": name, "Labels": dict(self._stamped)}).encode()
                await _ask(self._engine, "POST", "/volumes/create", body)
        return verdict

    async def _whose(self, collection: str, name: str) -> bool | None:
        """Whether the object carries our program's label; None: there is none such."""
        if not labels.is_ref(name):
            return False
        path = f"/{collection}/{name}" + ("/json" if collection == "containers" else "")
        shown = await _ask(self._engine, "GET", path)
        if shown is None:
            return None
        marked = (shown.get("Config") or shown).get("Labels") or {}
        return bool(marked.get(labels.PROGRAM) == self._stamped[labels.PROGRAM])

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"message": message}).encode()
        reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
        self._writer.write(
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )


async def _ask(engine: Path, method: str, path: str, body: bytes = b"") -> dict[str, Any] | None:
    """One question of our own to the engine; None: what it is about is not there."""
    reader, writer = await asyncio.open_unix_connection(engine, limit=HEAD_LIMIT)
    try:
        writer.write(
            f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await read_head(reader)
        if head is None or head.start.split()[1] == "404":
            return None
        shown: dict[str, Any] = json.loads(await reader.read() or b"{}")
        return shown
    finally:
        writer.close()


async def _splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes everything on, and the end too."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
