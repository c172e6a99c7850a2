"""The SSE load: N connections, each opening one stream after another until the time is up.

It counts events, and takes each read's delivery delay from the clock that the mock worker writes
into its deltas (both processes read one machine's monotonic clock). Raw bytes on raw sockets: an
HTTP library would cost more than what is measured. Prints `MEASURE-START` and `MEASURE-END`, so
that whoever started it can read the router's CPU account for exactly that span, then one line
`RESULT {json}`.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import cast

import uvloop

EVENT = b"data: {"
CLOCK = b'"content":"'
CLOCK_DIGITS = 19


class Tally:
    """What all connections of one run share."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.stopping = False
        self.recording = False
        self.events = 0
        self.streams = 0
        self.failures = 0
        self.delays_ns: list[int] = []


class Connection(asyncio.Protocol):
    """One client connection; a new stream follows as soon as one has ended."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opens the first stream."""
        self._transport = cast("asyncio.Transport", transport)
        self._begin()

    def _begin(self) -> None:
        if self._tally.stopping:
            self._transport.close()
        else:
            self._transport.write(self._tally.request)

    def data_received(self, data: bytes) -> None:
        """Counts events and notes the delay of the newest."""
        now = time.monotonic_ns()
        tally = self._tally
        buffer = self._tail + data
        tally.events += buffer.count(EVENT)
        if tally.recording:
            at = buffer.rfind(CLOCK)
            digits = buffer[at + len(CLOCK) : at + len(CLOCK) + CLOCK_DIGITS]
            if at >= 0 and len(digits) == CLOCK_DIGITS and digits.isdigit():
                tally.delays_ns.append(now - int(digits))
        if buffer.endswith(b"0\r\n\r\n") and b"[DONE]" in buffer[-64:]:
            tally.streams += 1
            self._tail = b""
            self._begin()
            return
        if buffer.startswith(b"HTTP/1.1") and b" 200 " not in buffer[:16]:
            tally.failures += 1
        # Keep what may be the beginning of an event, never one that is counted.
        last = buffer.rfind(EVENT)
        self._tail = buffer[max(last + len(EVENT), len(buffer) - 80) if last >= 0 else -80 :]

    def connection_lost(self, exc: Exception | None) -> None:
        """A failure, unless the time was up."""
        if exc is not None or not self._tally.stopping:
            self._tally.failures += 1


def _percentile_us(delays_ns: list[int], fraction: float) -> float | None:
    if not delays_ns:
        return None
    ordered = sorted(delays_ns)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] / 1e3


async def run(port: int, connections: int, seconds: float, warm_s: float, body: bytes) -> None:
    """Opens the streams, lets them settle for `warm_s`, then measures for `seconds`."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    tally = Tally(head.encode() + body)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(tally), "127.0.0.1", port)
        await asyncio.sleep(0.002)
    await asyncio.sleep(warm_s)

    tally.recording = True
    began, events, streams = time.monotonic(), tally.events, tally.streams
    print("MEASURE-START", flush=True)
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - began
    events, streams = tally.events - events, tally.streams - streams
    print("MEASURE-END", flush=True)
    tally.recording, tally.stopping = False, True
    result = {
        "requests": events,
        "seconds": elapsed,
        "streams": streams,
        "failures": tally.failures,
        "p50_us": _percentile_us(tally.delays_ns, 0.5),
        "p99_us": _percentile_us(tally.delays_ns, 0.99),
    }
    print("RESULT " + json.dumps(result), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm-s", type=float, default=1)
    parser.add_argument("--body", type=Path, required=True)
    given = parser.parse_args()
    uvloop.run(
        run(given.port, given.connections, given.seconds, given.warm_s, given.body.read_bytes())
    )


if __name__ == "__main__":
    main()
