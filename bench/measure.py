"""One measurement: a load for a few seconds on one system, and what the kernel says it cost.

CPU time comes from the router's own account (`/proc`, user and system), which a noisy neighbour
disturbs by some ten per cent where it halves requests per second. Latency comes from the load
tool. With one request in flight a round trip is a closed loop, so its median minus that of
`direct` is what the router adds.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bodies import Bodies
from bench.processes import Process

__all__ = ["SCENARIOS", "Load", "Sample", "Scenario", "fill_memory"]

POST_LUA = Path(__file__).parent / "load" / "post.lua"
CHAT_PATH = "/v1/chat/completions"
STREAMS = 200


@dataclass(frozen=True)
class Load:
    """Where the load runs and what it sends."""

    bodies: Bodies
    cores: Sequence[int]
    seconds: float

    def wrk(
        self, port: int, connections: int, *mode: str, seconds: float | None = None
    ) -> "Sample":
        """Plain requests, each connection sending the next when it has its answer."""
        command = [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds or self.seconds:.0f}s"),
            *("--timeout", "30s", "-s", str(POST_LUA)),
            *(f"http://127.0.0.1:{port}{CHAT_PATH}", "--", *mode),
        ]
        return self._run(command, None)

    def streams(self, port: int, system: Process | None) -> "Sample":
        """`STREAMS` paced SSE streams at all times; the figures are per chunk."""
        command = [
            *(sys.executable, "-m", "bench.load.streams", "--port", str(port)),
            *("--connections", str(STREAMS), "--seconds", str(self.seconds)),
            *("--body", str(self.bodies.small_stream)),
        ]
        return self._run(command, system)

    def _run(self, command: list[str], system: Process | None) -> "Sample":
        """Runs the load; the system's CPU time is read where the load marks its span."""
        pinned = ["taskset", "-c", ",".join(map(str, self.cores)), *command]
        marks: list[float] = []
        result: dict[str, float] = {}
        with subprocess.Popen(
            pinned, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            assert child.stdout is not None
            said = []
            for line in child.stdout:
                said.append(line)
                if line.startswith("MEASURE") and system is not None:
                    marks.append(system.cpu_seconds())
                elif line.startswith("RESULT "):
                    result = json.loads(line.removeprefix("RESULT "))
        if not result:
            raise RuntimeError(f"{command[0]} gave no result:\n{''.join(said)[-800:]}")
        return Sample(
            requests=int(result["requests"]),
            seconds=result["seconds"],
            failures=int(result["failures"]),
            p50_us=result["p50_us"],
            p99_us=result["p99_us"],
            cpu_s=marks[1] - marks[0] if len(marks) == 2 else None,
        )


@dataclass(frozen=True)
class Sample:
    """What one run of a scenario gave. `requests` are SSE chunks in a streaming scenario."""

    requests: int
    seconds: float
    failures: int
    p50_us: float
    p99_us: float
    cpu_s: float | None

    @property
    def per_second(self) -> float:
        """Requests or chunks a second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """The router's CPU time per request or chunk."""
        return None if self.cpu_s is None else self.cpu_s / self.requests * 1e6


@dataclass(frozen=True)
class Scenario:
    """A load with a name."""

    name: str
    title: str
    apply: Callable[[Load, int, Process | None], Sample]

    def run(self, load: Load, port: int, system: Process | None) -> Sample:
        """Applies the load, with the router's CPU time around it.

        Raises:
            RuntimeError: nothing was answered, or the load tool failed.
        """
        before = system.cpu_seconds() if system else 0.0
        sample = self.apply(load, port, system)
        if not sample.requests:
            raise RuntimeError(f"{self.name}: nothing was answered")
        if system is None or sample.cpu_s is not None:
            return sample
        return Sample(**{**vars(sample), "cpu_s": system.cpu_seconds() - before})


def _fixed(connections: int, which: Callable[[Bodies], Path]) -> Callable[..., Sample]:
    return lambda load, port, _system: load.wrk(port, connections, "fixed", str(which(load.bodies)))


def _conversation(load: Load, port: int, _system: Process | None) -> Sample:
    files = str(load.bodies.conversation_files)
    return load.wrk(port, 32, "conversation", str(load.bodies.conversation), files)


def _streams(load: Load, port: int, system: Process | None) -> Sample:
    return load.streams(port, system)


SCENARIOS = (
    Scenario("small-1", "small, 1 in flight", _fixed(1, lambda bodies: bodies.small)),
    Scenario("small-32", "small, 32 in flight", _fixed(32, lambda bodies: bodies.small)),
    Scenario("small-64", "small, 64 in flight", _fixed(64, lambda bodies: bodies.small)),
    Scenario("100k-1", "100 KB, 1 in flight", _fixed(1, lambda bodies: bodies.agent)),
    Scenario("100k-32", "100 KB, 32 in flight", _fixed(32, lambda bodies: bodies.agent)),
    Scenario("conversation-32", "growing conversations, 32 in flight", _conversation),
    Scenario("sse-200", "200 SSE streams, a chunk every 20 ms each", _streams),
)


def fill_memory(load: Load, port: int, system: Process, prompts: int) -> int:
    """The router's resident bytes after `prompts` different 100 KB prompts."""
    sent = 0
    while sent < prompts:
        sample = load.wrk(port, 32, "unique", str(load.bodies.agent), seconds=2)
        if not sample.requests:
            raise RuntimeError("nothing answers any more")
        sent += sample.requests
    return system.resident_bytes()


def require_wrk() -> None:
    """Says what to do where the load tool is missing.

    Raises:
        SystemExit: wrk is not installed.
    """
    if shutil.which("wrk") is None:
        raise SystemExit("error: wrk, the load tool, is missing: apt-get install wrk")
