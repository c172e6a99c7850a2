"""Just enough HTTP/1.1 for the Docker proxy: heads, bodies, and nothing that can be read two ways.

What the proxy judges and what the engine executes must be the same request. The engine's parser
forgives (bare line feeds, odd lengths); this one does not, so that no request hides in another.

Source: RFC 9112, sections 2.2, 6 and 11.2.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["HEAD_LIMIT", "Head", "Reader", "pass_body", "read_body", "read_head", "with_body"]

HEAD_LIMIT: Final = 1 << 20
_BODY_LIMIT: Final = 1 << 22
_CHUNK: Final = 1 << 16
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?\r\n")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class Reader(asyncio.StreamReader):
    """A stream reader whose end can be awaited without taking what comes before it."""

    def __init__(self) -> None:
        super().__init__(limit=HEAD_LIMIT)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        """The other side has ended."""
        self.ended.set()
        super().feed_eof()

    def set_exception(self, exc: Any) -> None:
        """The connection broke."""
        self.ended.set()
        super().set_exception(exc)


@dataclass(frozen=True, slots=True)
class Head:
    """A request's or an answer's start line and headers, as they came."""

    start: str
    fields: Mapping[str, str]
    raw: bytes

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "transfer-encoding" in self.fields

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the head says so."""
        value = self.fields.get("content-length")
        return None if value is None else int(value)


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; None: the other side has ended.

    Raises:
        ValueError: it can be read in more than one way.
        IncompleteReadError: the other side ended in the midst of it.
    """
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    bare = raw.replace(b"\r\n", b"")
    if b"\n" in bare or b"\r" in bare or b"\0" in bare:
        raise ValueError("a bare line break")
    start, *lines = raw.decode("latin-1").split("\r\n")
    fields: dict[str, str] = {}
    for line in filter(None, lines):
        found = _FIELD.fullmatch(line)
        if found is None:
            raise ValueError("a header line that is none")
        name = found[1].lower()
        if name in fields and name in ("content-length", "transfer-encoding"):
            raise ValueError("two lengths for one body")
        fields[name] = found[2]
    if fields.get("transfer-encoding", "chunked").lower() != "chunked":
        raise ValueError("an unknown transfer coding")
    length = fields.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise ValueError("a length that is none")
    if "content-length" in fields and "transfer-encoding" in fields:
        raise ValueError("two lengths for one body")
    return Head(start, fields, raw)


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """A whole body, without its transfer coding.

    Raises:
        ValueError: it is too long, or its chunks are malformed.
    """
    if not head.chunked:
        if (head.length or 0) > _BODY_LIMIT:
            raise ValueError("the body is too long")
        return await reader.readexactly(head.length or 0)
    body = bytearray()
    while True:
        _, data = await _chunk(reader)
        body += data
        if len(body) > _BODY_LIMIT:
            raise ValueError("the body is too long")
        if not data:
            return bytes(body)


async def _chunk(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A chunk's size line, and its bytes. Trailers are refused."""
    line = await reader.readline()
    found = _SIZE.fullmatch(line)
    if found is None:
        raise ValueError("a chunk without a size")
    data = await reader.readexactly(int(found[1], 16) + 2)
    if not data.endswith(b"\r\n"):
        raise ValueError("a chunk that does not end where it says")
    return line, data[:-2]


def with_body(head: Head, body: bytes) -> bytes:
    """The request with another body, and the length that goes with it."""
    dropped = ("content-length:", "transfer-encoding:")
    lines = head.raw.decode("latin-1").split("\r\n")
    kept = [line for line in lines if line and not line.lower().startswith(dropped)]
    return "\r\n".join([*kept, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body


async def pass_body(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: Head,
    *,
    until_end: bool = False,
) -> bool:
    """Passes a body on as it comes. True: it lasted until its sender ended.

    `until_end`: without a length it does, as an answer's body; a request then has none.
    """
    if head.chunked:
        data = b"more"
        while data:
            line, data = await _chunk(reader)
            writer.write(line + data + b"\r\n")
            await writer.drain()
        return False
    left = head.length
    if left is None and not until_end:
        return False
    while left is None or left > 0:
        data = await reader.read(_CHUNK if left is None else min(left, _CHUNK))
        if not data:
            return True
        writer.write(data)
        await writer.drain()
        left = None if left is None else left - len(data)
    return False
