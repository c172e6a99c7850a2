"""A worker with a tiny KV cache whose every answer the test gives, on real sockets.

It says of itself what SGLang does. An inference request stays open until the test answers it, so
that a test decides what is in flight and for how long. Token ids in `/generate` make sizes exact.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from faulty_worker import FaultyWorker, Seen, Wire, chunks, event, plain, sse_head

__all__ = ["Asked", "SmallWorker", "crlf", "generate", "small_workers", "streamed"]

INFERENCE = (b"/generate", b"/v1/")


def generate(program: str | None, tokens: int, **fields: Any) -> dict[str, Any]:
    """The body of a `/generate` request whose prompt is so many tokens, exactly."""
    named = {} if program is None else {"program_id": program}
    return {"input_ids": [7] * tokens, **named, **fields}


@dataclass
class Asked:
    """One inference request, waiting for the test's answer."""

    seen: Seen
    wire: Wire
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.seen.body)
        return found

    @property
    def rank(self) -> int:
        return int(self.seen.header(b"x-data-parallel-rank") or 0)

    async def answer(
        self, prompt: int | None = None, completion: int = 10, cached: int = 0
    ) -> None:
        """A whole answer; `prompt` None: what it was sent, by length."""
        tokens = len(self.body["input_ids"]) if prompt is None else prompt
        counted = {
            "prompt_tokens": tokens,
            "completion_tokens": completion,
            "cached_tokens": cached,
        }
        finish = {"type": "stop"}
        said = {"text": "ok", "meta_info": {"id": "g", "finish_reason": finish, **counted}}
        await self.send(plain(json.dumps(said).encode()))

    async def send(self, data: bytes) -> None:
        """Whole bytes of an answer; the connection goes on."""
        await self.wire.send(data)
        self.done.set()

    async def reset(self, after: bytes = b"") -> None:
        """Goes away as a crash does."""
        if after:
            await self.wire.send(after)
        self.wire.reset()
        self.done.set()


class SmallWorker(FaultyWorker):
    """Listens while its context is open.

    Attributes:
        tokens: KV capacity per rank; None: it does not say.
        asked: Requests that came and were not taken by the test yet.
    """

    def __init__(self, tokens: int | None = 1000, *, ranks: int = 1, model: str = "m") -> None:
        super().__init__(script=self._serve_one)
        self.tokens = tokens
        self.ranks = ranks
        self.model = model
        self.ready = True
        self.asked: deque[Asked] = deque()
        self._came = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def next(self) -> Asked:
        """The next request that comes, or has come."""
        async with asyncio.timeout(10), self._came:
            await self._came.wait_for(lambda: self.asked)
            return self.asked.popleft()

    async def _serve_one(self, seen: Seen, wire: Wire) -> None:
        if seen.target.startswith(INFERENCE) and seen.line.startswith(b"POST"):
            asked = Asked(seen, wire)
            async with self._came:
                self.asked.append(asked)
                self._came.notify_all()
            waits = [asyncio.ensure_future(wire.gone()), asyncio.ensure_future(asked.done.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiting in waits:
                    waiting.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
        else:
            await wire.send(self._about(seen.target.partition(b"?")[0]))

    def _about(self, path: bytes) -> bytes:
        rank = {"num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": 0}
        if self.tokens is not None:
            rank["max_total_num_tokens"] = self.tokens
        match path:
            case b"/server_info":
                info: dict[str, Any] = {"version": "0.5.23", "dp_size": self.ranks}
                info |= {"served_model_name": self.model, "page_size": 1, "frontend": "python"}
                info["internal_states"] = [{} for _ in range(self.ranks)]
                if self.tokens is not None:
                    info["max_total_num_tokens"] = self.tokens
                return plain(json.dumps(info).encode())
            case b"/v1/models":
                models = {"object": "list", "data": [{"id": self.model, "object": "model"}]}
                return plain(json.dumps(models).encode())
            case b"/v1/loads":
                loads = [{"dp_rank": n, **rank} for n in range(self.ranks)]
                return plain(json.dumps({"version": "0.5.23", "loads": loads}).encode())
            case b"/ready":
                return plain(b"", b"200 OK" if self.ready else b"503 Service Unavailable")
            case b"/health":
                return plain(b"")
            case _:
                return plain(b'{"detail":"Not Found"}', b"404 Not Found")


@asynccontextmanager
async def small_workers(*tokens: int | None, **options: Any) -> AsyncIterator[list[SmallWorker]]:
    """One worker for each capacity."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(SmallWorker(n, **options)) for n in tokens]


def streamed(*events: bytes, ends: bool = True) -> bytes:
    """A streamed answer of these events' data."""
    body = b"".join(event(data) for data in events)
    return sse_head() + body + (b"0\r\n\r\n" if ends else b"")


def crlf(*events: bytes) -> bytes:
    """The same with CR LF between the lines of its events."""
    return sse_head() + chunks(*(b"data: " + data + b"\r\n\r\n" for data in events))
