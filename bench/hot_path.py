"""What one request costs inside the router, stage by stage, without a socket.

    python -m bench.hot_path              a table on stdout
    python -m bench.hot_path --json       the same as numbers

A stub stands for each transport: the bytes of a request go into a real `Front`, the bytes of an
answer into a real `Upstream`, and the real driver and metrics stand between them. What is counted
is this process's CPU time, best of many rounds, with the collector frozen, so the numbers hold on
a machine that others use too. They leave out the kernel and the event loop's own work, about half
of what `bench.relay` measures, and say where the other half goes.

Stages are measured alone, each with what the stage before it made; `whole` is all of them at once,
so a stage's share is a guide and the sum need not match.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench.bodies import write_bodies
from bench.mock_worker import write_script
from thunder_router import identity
from thunder_router._core import Headers, ResponseScanner, answer_head, scan_request
from thunder_router.config import RelaySettings, SchedulingSettings
from thunder_router.observe.metrics import Metrics
from thunder_router.relay.contract import Arrival, Ended, Endpoint
from thunder_router.relay.front import Front
from thunder_router.relay.message import compose
from thunder_router.relay.relay import Relay
from thunder_router.relay.request import Request
from thunder_router.relay.upstream import Upstream
from thunder_router.scheduling.clock import LoopClock
from thunder_router.scheduling.core import new_scheduler
from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.estimate import TokenEstimator
from thunder_router.scheduling.seats import Placement

ENDPOINT = Endpoint("w", 80, host_header=b"127.0.0.1:30000", aborts_by_rid=True)
POLICIES = ("off", "adaptive")
BATCH_S = 0.005
"""CPU seconds of one round: well above the clock's step, well below a scheduler's time slice."""


class _Wire:
    """A transport that takes everything and sends nothing."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.written += sum(map(len, parts))

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 40_000

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, **_limits: int) -> None:
        pass


class _Doors:
    """One worker, always well."""

    def endpoint(self, _worker: int) -> Endpoint:
        return ENDPOINT

    def answered(self, worker: int) -> None:
        pass

    def faulted(self, worker: int, fault: str) -> None:
        raise AssertionError(f"worker {worker}: {fault}")


class _Spot:
    """A ticket that is placed from the beginning, and an admission that gives it."""

    place = Placement(0, 0)

    def arrive(self, _arrival: Arrival) -> "_Spot":
        return self

    def finished(self, **_usage: Any) -> None:
        pass

    def progress(self, _tokens: int) -> None:
        pass


class _ReadOnly(Front):
    """Reads requests and answers none."""

    def _whole(self, request: Request) -> None:
        request.take_body()
        self.answered(keeps=True)


@dataclass
class Shape:
    """One kind of request, with what each stage makes of it."""

    body: bytes
    named: bool

    def __post_init__(self) -> None:
        extra = b"x-session-id: program-17\r\n" if self.named else b""
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
        )
        self.wire = head % (len(self.body), extra) + self.body
        self.request = Request()
        lines = [line.split(b": ") for line in self.wire.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
        self.request.lines = [(name, value) for name, value in lines]
        self.request.method, self.request.target = b"POST", b"/v1/chat/completions"
        self.request.seal()
        self.facts = scan_request(self.body, "chat")
        headers, target = self.request.headers.lowered, self.request.target
        self.arrival = Arrival("chat", self.facts, headers, target, len(self.body), "peer")


def best(act: Callable[[], object], rounds: int) -> float:
    """CPU microseconds of one call of `act`, in the best of `rounds` rounds."""
    spent, calls = 0.0, 1
    while spent < BATCH_S:
        spent = _spent(act, calls)
        calls = calls if spent >= BATCH_S else calls * 2
    return min(_spent(act, calls) for _ in range(rounds)) / calls * 1e6


def _spent(act: Callable[[], object], calls: int) -> float:
    begin = time.process_time()
    for _ in range(calls):
        act()
    return time.process_time() - begin


class _Turns(LoopClock):
    """The loop's clock, its turns taken by hand."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> Any:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


def new_driver(policy: str, clock: _Turns) -> Driver:
    """A driver with one worker of a million tokens."""
    settings = SchedulingSettings(policy=policy)  # type: ignore[arg-type]
    driver = Driver(lambda _pool: new_scheduler(settings), clock)
    driver.worker_up(
        0,
        0,
        models=("mock-model",),
        device_tokens=1_000_000,
        host_tokens=0,
        write_back=False,
        prefill_us_per_token=60.0,
        prefill_ns_per_token2=0.5,
        load_back_us_per_token=2.0,
        sessions=False,
    )
    return driver


def through(admission: Any, observer: Any, shape: Shape, answer: bytes) -> Callable[[], None]:
    """One request's whole way, over stub transports."""
    relay = Relay(RelaySettings(), admission=admission, workers=_Doors(), observer=observer)
    relay.loop = asyncio.get_running_loop()
    front = Front(relay)
    front.connection_made(_Wire())  # type: ignore[arg-type]
    lane = relay.pool.lane(0, ENDPOINT)
    upstream = Upstream(lane)
    upstream.connection_made(_Wire())  # type: ignore[arg-type]
    lane.park(upstream)
    ask, reply, wire = front.data_received, upstream.data_received, shape.wire

    def act() -> None:
        ask(wire)
        reply(answer)

    return act


def whole(policy: str, shape: Shape, answer: bytes) -> Callable[[], None]:
    """The same with a scheduler, its next turn included."""
    clock = _Turns()
    act = through(new_driver(policy, clock), Metrics(), shape, answer)

    def both() -> None:
        act()
        clock.turn()

    return both


def chunk(stream: Shape, head: bytes, event: bytes) -> Callable[[], None]:
    """One event of a stream that never ends."""
    relay = Relay(RelaySettings(), admission=_Spot(), workers=_Doors())  # type: ignore[arg-type]
    relay.loop = asyncio.get_running_loop()
    front = Front(relay)
    front.connection_made(_Wire())  # type: ignore[arg-type]
    lane = relay.pool.lane(0, ENDPOINT)
    upstream = Upstream(lane)
    upstream.connection_made(_Wire())  # type: ignore[arg-type]
    lane.park(upstream)
    front.data_received(stream.wire)
    upstream.data_received(head)
    return partial(upstream.data_received, event)


def scheduled(policy: str, shape: Shape) -> Callable[[], None]:
    """A request in the driver: arrival, end, and the turn after."""
    clock = _Turns()
    driver = new_driver(policy, clock)

    def act() -> None:
        driver.arrive(shape.arrival).finished(
            prompt_tokens=len(shape.body) // 4,
            completion_tokens=20,
            cached_tokens=48,
            cached_host_tokens=None,
            tools=(),
        )
        clock.turn()

    return act


def decided(policy: str, program: str | None) -> Callable[[], None]:
    """The same in the core alone."""
    core = new_driver(policy, _Turns()).pools[0].look()[0]
    number = 0
    now = 1_000

    def act() -> None:
        nonlocal number
        number += 1
        core.arrive(number, program=program, group=None, prompt_tokens=52, now_ms=now)
        core.tick(now)
        core.next_tick_ms(now)
        core.finished(number, prompt_tokens=52, completion_tokens=20, cached_tokens=48, now_ms=now)
        core.tick(now)
        core.next_tick_ms(now)

    return act


def reader(shape: Shape) -> Callable[[], None]:
    """The client's side alone."""
    relay = Relay(RelaySettings(), admission=_Spot(), workers=_Doors())  # type: ignore[arg-type]
    relay.loop = asyncio.get_running_loop()
    front = _ReadOnly(relay)
    front.connection_made(_Wire())  # type: ignore[arg-type]
    return partial(front.data_received, shape.wire)


class _Answered:
    """Takes a worker's answer and does nothing with it."""

    def received(self, chunk: bytes, complete: bool) -> None:
        pass


class _Home:
    """Keeps nothing."""

    def park(self, connection: Upstream) -> None:
        pass


def asker(message: Any, answer: bytes) -> Callable[[], None]:
    """The worker's side alone: a request sent, an answer read."""
    upstream = Upstream(_Home())  # type: ignore[arg-type]
    upstream.connection_made(_Wire())  # type: ignore[arg-type]
    receiver: Any = _Answered()

    def act() -> None:
        upstream.send(receiver, message.parts, bodiless=False)
        upstream.data_received(answer)

    return act


def judge(answer: bytes) -> Callable[[], None]:
    """The scan of an answer."""
    body = answer.split(b"\r\n\r\n", 1)[1]

    def act() -> None:
        scanner = ResponseScanner("chat", stream=False, strip_usage=False)
        scanner.feed(body)
        scanner.finish()

    return act


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Shape → stage → CPU µs."""
    script = write_script("mock-model", 1_000_000, 1, 0.0)
    event = script.stamped()
    with tempfile.TemporaryDirectory(prefix="thunder-bench-") as scratch:
        bodies = write_bodies(Path(scratch))
        shapes = {
            "small": Shape(bodies.small.read_bytes(), named=False),
            "small, named": Shape(bodies.small.read_bytes(), named=True),
            "100 KB": Shape(bodies.agent.read_bytes(), named=False),
        }
        stream = Shape(bodies.small_stream.read_bytes(), named=False)
    ended = Ended("chat", "finished", 200, 0, 1, 1e-5, 1e-3, 1e-3, 52, 20, 48)
    found: dict[str, dict[str, float]] = {}
    for name, shape in shapes.items():
        answer = script.answer(len(shape.body))
        request, facts, named = shape.request, shape.facts, shape.arrival.headers
        program = "program-17" if shape.named else None
        make = partial(
            compose,
            request,
            shape.body,
            "chat",
            facts,
            _Spot.place,
            ENDPOINT,
            spare_id="0" * 32,
            own_credentials=False,
        )
        head = [(b"content-type", b"application/json"), (b"content-length", b"400")]
        timed = partial(best, rounds=rounds)
        found[name] = {
            "read the request": timed(reader(shape)),
            "scan the body": timed(partial(scan_request, shape.body, "chat")),
            "name the program": timed(partial(identity.name, facts.identity, named)),
            "estimate tokens": timed(partial(TokenEstimator().estimate, "mock-model", facts)),
            **{f"core, {policy}": timed(decided(policy, program)) for policy in POLICIES},
            **{f"driver, {policy}": timed(scheduled(policy, shape)) for policy in POLICIES},
            "compose for the worker": timed(make),
            "send and read the answer": timed(asker(make(), answer)),
            "scan the answer": timed(judge(answer)),
            "write the answer's head": timed(
                partial(
                    answer_head,
                    200,
                    b"OK",
                    Headers(head),
                    measured=True,
                    chunked=False,
                    closes=False,
                    request_id=b"0" * 32,
                )
            ),
            "count in metrics": timed(partial(Metrics().ended, ended)),
            "whole, no scheduler": timed(through(_Spot(), None, shape, answer)),
            **{f"whole, {policy}": timed(whole(policy, shape, answer)) for policy in POLICIES},
        }
    found["stream"] = {"one event": best(chunk(stream, script.head + event, event), rounds)}
    return found


async def run(rounds: int) -> dict[str, dict[str, float]]:
    """`measure`, with nothing for the collector to do meanwhile."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return measure(rounds)
    finally:
        gc.enable()
        gc.unfreeze()


def table(found: dict[str, dict[str, float]]) -> str:
    """CPU µs per request: a line per stage, a column per shape."""
    stages = list(dict.fromkeys(stage for column in found.values() for stage in column))
    lines = ["| CPU µs | " + " | ".join(found) + " |", "| --- |" + " ---: |" * len(found)]
    for stage in stages:
        cells = (f"{found[name][stage]:.2f}" if stage in found[name] else "" for name in found)
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="numbers instead of a table")
    parser.add_argument("--rounds", type=int, default=15, help="the best of this many counts")
    given = parser.parse_args()
    found = uvloop.run(run(given.rounds))
    print(json.dumps(found, indent=1) if given.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
