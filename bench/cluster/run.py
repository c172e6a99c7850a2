"""One run: workers, a router and a day of programs; and the record that is kept of it.

The router has the last core to itself, where there are two or more; workers and clients share the
others. A run whose events came late fails itself: at that speed this machine does not emulate what
it says, and its figures mean nothing.
"""

import asyncio
import json
import os
import signal
import statistics
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster.play import BYTES_PER_TOKEN, Play, Seen
from bench.cluster.routers import ROUTERS, Setting
from bench.cluster.scenarios import SCENARIOS
from bench.processes import Process, console_script, free_port, wait_until_answers
from bench.systems import METRICS_PORT_OFFSET
from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["LAG_SHARE", "Record", "run"]

LAG_SHARE = 0.02
"""Of a turn: how late the 99th percentile of events may come."""


@dataclass(frozen=True)
class Record:
    """What one run gave. Times are engine seconds."""

    origin: str
    scenario: str
    router: str
    seed: int
    speed: float
    steps_per_min: float
    programs_per_hour: float
    hit_rate: float
    recomputed_per_step: float
    retractions: int
    turn_p50_s: float
    turn_p99_s: float
    turn_max_s: float
    failures: int
    router_ms_per_step: float
    """CPU time of the router, milliseconds of the wall's."""
    event_lag_p99_s: float

    @property
    def counts(self) -> bool:
        """Whether the machine kept up."""
        return self.event_lag_p99_s <= LAG_SHARE * self.turn_p50_s


def run(
    scenario: str, router: str, seed: int, *, speed: float, thunderagent: Path | None, origin: str
) -> Record:
    """Plays one day.

    Raises:
        UnavailableError: the router cannot be had here.
        RuntimeError: a process did not come up.
    """
    day = SCENARIOS[scenario].day
    with tempfile.TemporaryDirectory(prefix="thunder-cluster-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        *others, own = sorted(os.sched_getaffinity(0))
        workers = [
            stack.enter_context(_worker(day, index, speed, folder, others))
            for index in range(day.workers)
        ]
        port = free_port(also=METRICS_PORT_OFFSET)
        setting = Setting(
            port, [worker.url for worker in workers], day.model, speed, folder, thunderagent
        )
        system = ROUTERS[router]
        command = system.command(setting)
        process = stack.enter_context(Process(command, log=folder / "router.log", cores=[own]))
        url = f"http://127.0.0.1:{port}"
        wait_until_answers(f"{url}{system.ready}", process)
        seen, cpu_s, retractions = asyncio.run(
            _play(day, seed, speed, url, system.releases, workers, process)
        )
        lags = [sorted(seen.lags_s)[len(seen.lags_s) * 99 // 100]] if seen.lags_s else []
        lags += [worker.info()["emulated"]["event_lag_p99_s"] for worker in workers]
    return record(
        day, seen, cpu_s, retractions, max(lags), origin=origin, scenario=scenario, router=router,
        seed=seed, speed=speed,
    )  # fmt: skip


def record(
    day: SimulationOptions,
    seen: Seen,
    cpu_s: float,
    retractions: int,
    lag_s: float,
    **names: Any,
) -> Record:
    """The figures of what was seen."""
    turns = sorted(seen.turns_s)
    steps = max(1, seen.steps)
    return Record(
        **names,
        steps_per_min=seen.steps * 60 / day.measured_s,
        programs_per_hour=seen.programs * 3600 / day.measured_s,
        hit_rate=seen.cached_tokens / max(1, seen.prompt_tokens),
        recomputed_per_step=seen.recomputed_tokens / steps,
        retractions=retractions,
        turn_p50_s=statistics.median(turns),
        turn_p99_s=turns[len(turns) * 99 // 100],
        turn_max_s=turns[-1],
        failures=seen.failures,
        router_ms_per_step=cpu_s * 1e3 / steps,
        event_lag_p99_s=lag_s,
    )


async def _play(
    day: SimulationOptions,
    seed: int,
    speed: float,
    url: str,
    releases: bool,
    workers: Sequence["_Worker"],
    router: Process,
) -> tuple[Seen, float, int]:
    """The day, with the router's CPU seconds and the workers' retractions in its measured part."""
    play = Play(day, seed, speed, url, releases=releases)
    outages = [
        asyncio.create_task(_outage(play, workers[-1], gone_s, back_s, speed))
        for gone_s, back_s in day.lose_worker
    ]
    playing = asyncio.create_task(play.run())
    await asyncio.wait([playing], timeout=day.warmup_s / speed)
    cpu_s = router.cpu_seconds()
    before = [await asyncio.to_thread(worker.retractions) for worker in workers]
    seen = await playing
    cpu_s = router.cpu_seconds() - cpu_s
    await asyncio.gather(*outages)
    after = [await asyncio.to_thread(worker.retractions) for worker in workers]
    # One that was lost counts from nothing again.
    gained = [max(0, last - first) for first, last in zip(before, after, strict=True)]
    return seen, cpu_s, sum(gained)


async def _outage(
    play: Play, worker: "_Worker", gone_s: float, back_s: float, speed: float
) -> None:
    await asyncio.sleep((gone_s - play.now_s()) / speed)
    await asyncio.to_thread(worker.kill)
    await asyncio.sleep((back_s - play.now_s()) / speed)
    await asyncio.to_thread(worker.start)


class _Worker:
    """An emulated worker in a process of its own."""

    def __init__(self, command: list[str], port: int, log: Path, cores: Sequence[int]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = command
        self._log = log
        self._cores = cores
        self.start()

    def start(self) -> None:
        """Returns once it serves."""
        self._process = Process(self._command, log=self._log, cores=self._cores or None)
        wait_until_answers(f"{self.url}/health", self._process)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.signal(signal.SIGKILL)
        self._process.stop()

    def stop(self) -> None:
        """Ends it."""
        self._process.stop()

    def info(self) -> dict[str, Any]:
        """What it says of itself."""
        with urllib.request.urlopen(f"{self.url}/server_info", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def retractions(self) -> int:
        """Requests whose KV was taken from them while they ran, so far."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("sglang:num_retracted_requests_total"):
                    return round(float(line.split()[-1]))
        return 0


@contextmanager
def _worker(
    day: SimulationOptions, index: int, speed: float, folder: Path, cores: Sequence[int]
) -> Iterator[_Worker]:
    port = free_port()
    command = [
        *(console_script("thunder-router"), "emulate", "--port", str(port)),
        *("--preset", day.model, "--model", day.model, "--speed", str(speed)),
        *("--bytes-per-token", str(BYTES_PER_TOKEN), "--log-level", "warning"),
        *("--hicache-ratio", str(day.hicache_ratio)),
    ]
    if day.capacities:
        command += ["--capacity-tokens", str(day.capacities[index])]
    worker = _Worker(command, port, folder / f"worker-{index}.log", cores)
    try:
        yield worker
    finally:
        worker.stop()
