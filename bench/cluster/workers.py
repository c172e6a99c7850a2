"""The emulated workers of a day: as few processes as may be, so that two cores carry many.

Workers that are alike share a process. One that is to be lost has its own, which is killed.
"""

import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cluster.agents import BYTES_PER_TOKEN
from bench.processes import Process, console_script, free_port, wait_until_answers
from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["Host", "Workers", "workers_of"]

START_S = 60.0
CONTEXT_TOKENS = 1_000_000
"""Longer than any session: the simulator's engines have no limit but their pool."""


class Host:
    """A process of emulated workers."""

    def __init__(self, options: Sequence[str], count: int, log: Path) -> None:
        # One can come back to its port; several take what is free.
        port = free_port() if count == 1 else 0
        self._command = [
            *(console_script("thunder-router"), "emulate", "--log-level", "warning"),
            *("--port", str(port), "--workers", str(count), *options),
        ]
        self._log = log
        self.start()
        self.urls = self._said(count)

    def start(self) -> None:
        """Starts it."""
        self._process = Process(self._command, log=self._log)

    def lose(self) -> None:
        """Ends it as a crash would."""
        self._process.signal(signal.SIGKILL)
        self._process.stop()

    def come_back(self) -> None:
        """Starts it again, empty; returns once it serves."""
        self.start()
        wait_until_answers(f"{self.urls[0]}/health", self._process)

    def stop(self) -> None:
        """Ends it."""
        self._process.stop()

    def _said(self, count: int) -> list[str]:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.alive:
            urls = re.findall(r"^emulated .* at (\S+)$", self._log.read_text(), re.MULTILINE)
            if len(urls) == count:
                for url in urls:
                    wait_until_answers(f"{url}/health", self._process)
                return urls
            time.sleep(0.05)
        raise RuntimeError(f"no workers: {self._log.read_text()[-800:]}")


class Workers:
    """All workers of a day, in order; the last one is the one that may be lost."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.urls = [url for host in hosts for url in host.urls]

    def event_lag_p99_s(self) -> float:
        """How late the latest of them heard of its engine's events, engine seconds."""
        return max(float(_info(url)["emulated"]["event_lag_p99_s"]) for url in self.urls)

    def retractions(self) -> int:
        """Requests that lost their KV while they ran, so far."""
        return sum(map(_retractions, self.urls))


@contextmanager
def workers_of(day: SimulationOptions, speed: float, folder: Path) -> Iterator[Workers]:
    """Workers as the day wants them, serving."""
    shared = [
        *("--preset", day.model, "--model", day.model, "--speed", str(speed)),
        *("--bytes-per-token", str(BYTES_PER_TOKEN), "--hicache-ratio", str(day.hicache_ratio)),
        *("--context-length", str(CONTEXT_TOKENS)),
        *("--write-policy", day.write_policy, "--page-size", str(day.page_size)),
    ]
    with ExitStack() as stack:
        hosts = []
        for index, (count, capacity) in enumerate(_groups(day)):
            options = [*shared, *(["--capacity-tokens", str(capacity)] if capacity else [])]
            hosts.append(Host(options, count, folder / f"workers-{index}.log"))
            stack.callback(hosts[-1].stop)
        yield Workers(hosts)


def _groups(day: SimulationOptions) -> list[tuple[int, int | None]]:
    """How many workers of which capacity share each process."""
    capacities: list[int | None] = [*day.capacities] or [None] * day.workers
    groups: list[tuple[int, int | None]] = []
    for index, capacity in enumerate(capacities):
        mortal = day.lose_worker and index == day.workers - 1
        if groups and groups[-1][1] == capacity and not mortal:
            groups[-1] = (groups[-1][0] + 1, capacity)
        else:
            groups.append((1, capacity))
    return groups


def _info(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/server_info", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _retractions(url: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("sglang:num_retracted_requests_total"):
                return round(float(line.split()[-1]))
    return 0
