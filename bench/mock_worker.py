"""A worker that answers at once: what is left of a round trip is the router.

Raw asyncio on uvloop and httptools, with enough of SGLang's HTTP surface that sglang-router and
thunder-router register it. It thinks nothing and stores nothing (the emulated worker of
`thunder-router emulate` is the one that behaves like an engine): a plain request gets one canned
answer, a streaming one a fixed number of canned SSE chunks at a fixed pace, each with the
machine's monotonic clock as its text, so that the client can tell the delay of its delivery.

Streams of one process share sixteen phase-shifted tickers: 200 streams at 50 chunks a second cost
16 timers, not 200. About 70,000 small requests or 200,000 chunks a second on one core.
"""

import argparse
import asyncio
import json
import re
import signal
import time
from dataclasses import dataclass
from typing import Any, cast

import httptools
import uvloop

PHASES = 16
STREAM = re.compile(rb'"stream"\s*:\s*true')
USAGE = re.compile(rb'"include_usage"\s*:\s*true')
CHAT = b"/v1/chat/completions"
CLOCK_SLOT = b"@" * 19
TOKENS_SLOT = 123_456_789
"""Where the prompt's tokens will stand: JSON takes blanks before a number, so its width stays."""

Json = dict[str, Any]


def _response(body: bytes, *, status: bytes = b"200 OK") -> bytes:
    return (
        b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % (status, len(body))
    ) + body


def _json(value: object) -> bytes:
    return _response(json.dumps(value).encode())


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def _event(value: Json) -> bytes:
    return _chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


@dataclass
class Script:
    """Everything this worker will ever say, encoded once."""

    before_usage: bytes
    after_usage: bytes
    head: bytes
    before_clock: bytes
    after_clock: bytes
    tail: bytes
    tail_with_usage: bytes
    control: dict[bytes, bytes]
    chunks: int
    interval_s: float

    def answer(self, body_bytes: int) -> bytes:
        """The whole answer, which counts a token for every four bytes of the request."""
        return b"%s%9d%s" % (self.before_usage, body_bytes // 4, self.after_usage)

    def stamped(self) -> bytes:
        """One delta chunk that carries the time of its making, in ns."""
        return b"%s%019d%s" % (self.before_clock, time.monotonic_ns(), self.after_clock)


def write_script(model: str, capacity_tokens: int, chunks: int, interval_s: float) -> Script:
    """Canned answers in SGLang's shapes (captured from 0.5.x)."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 90},
    }
    common: Json = {"id": "chatcmpl-mock", "created": 1_700_000_000, "model": model}

    def delta(content: Json, finish: str | None) -> Json:
        choice = {"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}
        return {
            **common,
            "object": "chat.completion.chunk",
            "choices": [{**choice, "matched_stop": None}],
            "usage": None,
        }

    message = {"role": "assistant", "content": "x" * 64, "reasoning_content": None}
    choice = {"index": 0, "message": {**message, "tool_calls": None}, "logprobs": None}
    text = {"role": None, "content": CLOCK_SLOT.decode(), "reasoning_content": None}
    before, after = _event(delta({**text, "tool_calls": None}, None)).split(CLOCK_SLOT)
    last = _event(delta({}, "stop"))
    usage_chunk = {**common, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    end = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    answer = {
        **common,
        "object": "chat.completion",
        "choices": [{**choice, "finish_reason": "stop", "matched_stop": None}],
        "usage": {**usage, "prompt_tokens": TOKENS_SLOT},
        "metadata": {"weight_version": "default"},
    }
    before_usage, after_usage = _json(answer).split(b"%d" % TOKENS_SLOT)
    return Script(
        before_usage=before_usage,
        after_usage=after_usage,
        head=b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
        before_clock=before,
        after_clock=after,
        tail=last + end,
        tail_with_usage=last + _event(usage_chunk) + end,
        control=_control(model, capacity_tokens),
        chunks=chunks,
        interval_s=interval_s,
    )


def _control(model: str, capacity_tokens: int) -> dict[bytes, bytes]:
    """The answers by which a router gets to know this worker."""
    server = _json(
        {
            "model_path": model,
            "served_model_name": model,
            "tp_size": 1,
            "dp_size": 1,
            "version": "0.5.23",
            "disaggregation_mode": "null",
            "page_size": 64,
            "enable_hierarchical_cache": False,
            "context_length": 204_800,
            "max_total_num_tokens": capacity_tokens,
            "max_running_requests": 4096,
            "internal_states": [{"memory_usage": {"token_capacity": capacity_tokens}}],
        }
    )
    details = _json({"model_path": model, "is_generation": True, "weight_version": "default"})
    card = {"id": model, "object": "model", "owned_by": "sglang", "max_model_len": 204_800}
    load = {
        "dp_rank": 0,
        "num_running_reqs": 0,
        "num_waiting_reqs": 0,
        "num_used_tokens": 0,
        "max_total_num_tokens": capacity_tokens,
        "token_usage": 0.0,
        "max_running_requests": 4096,
    }
    return {
        b"/health": _response(b""),
        b"/ready": _response(b""),
        b"/health_generate": _response(b""),
        b"/server_info": server,
        b"/get_server_info": server,
        b"/model_info": details,
        b"/get_model_info": details,
        b"/v1/models": _json({"object": "list", "data": [card]}),
        b"/v1/loads": _json({"dp_rank_count": 1, "loads": [load]}),
        b"/get_load": _json([{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0}]),
    }


class Stream:
    """One SSE answer under way."""

    def __init__(self, transport: asyncio.Transport, chunks: int, tail: bytes) -> None:
        self._transport = transport
        self._left = chunks
        self._tail = tail

    def emit(self, chunk: bytes) -> bool:
        """Writes the next chunk. False once there is no next one."""
        if self._transport.is_closing():
            return False
        if self._left:
            self._left -= 1
            self._transport.write(chunk)
            return True
        self._transport.write(self._tail)
        return False


class Ticker:
    """One timer for many streams: a chunk to each, every `interval_s`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, script: Script) -> None:
        self._loop = loop
        self._script = script
        self._streams: set[Stream] = set()
        self._due_s = 0.0

    def add(self, stream: Stream) -> None:
        """The stream gets its first chunk with the next tick."""
        if not self._streams:
            self._due_s = self._loop.time() + self._script.interval_s
            self._loop.call_at(self._due_s, self._tick)
        self._streams.add(stream)

    def _tick(self) -> None:
        chunk = self._script.stamped()
        self._streams = {stream for stream in self._streams if stream.emit(chunk)}
        if self._streams:
            self._due_s = max(self._due_s + self._script.interval_s, self._loop.time())
            self._loop.call_at(self._due_s, self._tick)


class Connection(asyncio.Protocol):
    """One connection from a router or a client."""

    def __init__(self, script: Script, tickers: list[Ticker]) -> None:
        self._script = script
        self._tickers = tickers
        self._body: list[bytes] = []
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A parser for each connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parses; what is not HTTP closes the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """httptools: its target."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of its body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole, so answer it."""
        path = self._url.partition(b"?")[0]
        if path != CHAT:
            missing = _response(b'{"detail":"Not Found"}', status=b"404 Not Found")
            self._transport.write(self._script.control.get(path, missing))
            return
        body = b"".join(self._body)
        if not STREAM.search(body):
            self._transport.write(self._script.answer(len(body)))
            return
        self._transport.write(self._script.head)
        tail = self._script.tail_with_usage if USAGE.search(body) else self._script.tail
        # Rotate through the phases, so that the chunks of all streams spread over the interval.
        ticker = self._tickers.pop(0)
        self._tickers.append(ticker)
        ticker.add(Stream(self._transport, self._script.chunks, tail))


async def serve(port: int, script: Script) -> None:
    """Serves on loopback until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    tickers = [Ticker(loop, script) for _ in range(PHASES)]
    server = await loop.create_server(
        lambda: Connection(script, tickers), "127.0.0.1", port, backlog=4096
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="mock-model")
    parser.add_argument("--capacity-tokens", type=int, default=100_000_000)
    parser.add_argument("--chunks", type=int, default=100, help="of each SSE answer")
    parser.add_argument("--interval-ms", type=float, default=20, help="between two chunks")
    given = parser.parse_args()
    script = write_script(
        given.model, given.capacity_tokens, given.chunks, given.interval_ms / 1000
    )
    uvloop.run(serve(given.port, script))


if __name__ == "__main__":
    main()
