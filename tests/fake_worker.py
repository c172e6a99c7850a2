"""A worker in memory, made from recorded answers, with faults to switch on and a clock to turn.

`Network` is the `HttpClient` of the rooms under test: it takes a URL to a `FakeWorker`, or to
nobody. Time passes only in `TurnedClock.advance`.
"""

import asyncio
import heapq
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from thunder_router.errors import ConnectError, WorkerResetError
from thunder_router.workers.http import Answer

HEALTH_CHECK_S = 20.0
"""A paused SGLang lets `/health` wait this long, then says 503."""

CAPTURES = Path(__file__).parent / "captures" / "workers"

FILES = {
    "/server_info": "server_info",
    "/get_server_info": "get_server_info",
    "/v1/loads": "v1_loads_core",
    "/get_load": "get_load",
    "/v1/models": "v1_models",
    "/model_info": "model_info",
    "/ready": "ready",
    "/metrics": "metrics",
    "/version": "version",
    "/load": "load",
    "/kv_event_sources": "kv_event_sources",
}


class TurnedClock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float = 0.0) -> None:
        """Lets `seconds` pass, waking every sleeper in order, and everybody run."""
        end_s = self._now_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._now_s = max(self._now_s, due_s)
            future.set_result(None)
            await settle()
        self._now_s = end_s


async def settle() -> None:
    """Lets every task run until it waits for time to pass."""
    for _ in range(25):
        await asyncio.sleep(0)


@dataclass
class Asked:
    """A question that a worker got."""

    method: str
    path: str
    key: str | None
    body: bytes | None


@dataclass
class FakeWorker:
    """One engine. Faults are fields; set them between turns of the clock."""

    clock: TurnedClock
    capture: str = "sglang-0.5.23-radix"
    refusing: bool = False
    """Nobody listens."""
    hanging: bool | set[str] = False
    """Nothing, or nothing at these paths, is ever answered."""
    resetting: bool = False
    paused: bool = False
    terminating: bool = False
    key: str | None = None
    admin_key: str | None = None
    running: int = 0
    waiting: int = 0
    weight_version: str = "default"
    starts: int = 1
    """A restart is one more."""
    prefilled: int = 1000
    capacity: int | None = None
    statuses: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Answers to give instead, by path."""
    asked: list[Asked] = field(default_factory=list)
    _frozen_at_s: float | None = None

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def answer(self, asked: Asked, timeout_s: float) -> Answer:
        path = asked.path
        self.asked.append(asked)
        if self.refusing:
            raise ConnectError("ClientConnectorError")
        if self.hanging is True or (self.hanging and path in self.hanging):
            await self.clock.sleep(timeout_s)
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if self.resetting:
            raise WorkerResetError("ServerDisconnectedError")
        if path in self.statuses:
            status, body = self.statuses[path]
            return Answer(status, body)
        if path not in ("/ready", "/health", "/health_generate", "/metrics"):
            wanted = self.key
            if asked.method == "POST" and self.admin_key is not None:
                wanted = self.admin_key
            if wanted is not None and asked.key != wanted:
                return Answer(401, b'{"error":"Unauthorized"}', "application/json")
        if path in ("/health", "/health_generate") and self.paused:
            await self.clock.sleep(min(timeout_s, HEALTH_CHECK_S))
            if timeout_s < HEALTH_CHECK_S:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
        if asked.method == "POST" or path not in FILES:
            return self._control(path)
        return self._recorded(path)

    def _control(self, path: str) -> Answer:
        if path in ("/health", "/health_generate"):
            return Answer(503 if self.paused or self.terminating else 200)
        if path == "/pause_generation":
            self.paused = True
        elif path == "/continue_generation":
            self.paused = False
        elif path not in (
            "/flush_cache",
            "/abort_request",
            "/update_weights_from_disk",
            "/release_memory_occupation",
            "/resume_memory_occupation",
        ):
            return Answer(404, b'{"detail":"Not Found"}', "application/json")
        return Answer(200, b'{"message":"done","status":"ok"}', "application/json")

    def _recorded(self, path: str) -> Answer:
        file = CAPTURES / self.capture / f"{FILES[path]}.body"
        if not file.is_file():
            return Answer(404, b'{"detail":"Not Found"}', "application/json")
        body = recorded(file)
        if path == "/ready":
            return Answer(503 if self.paused or self.terminating else 200)
        if path == "/metrics":
            return Answer(200, body, "text/plain; version=0.0.4")
        if path == "/v1/loads":
            body = edited(body, self._loads)
        elif path == "/server_info":
            body = edited(body, self._server_info)
        elif path == "/model_info":
            body = edited(body, lambda found: found.update(weight_version=self.weight_version))
        return Answer(200, body, "application/json")

    def _loads(self, found: dict[str, Any]) -> None:
        now_s = self.clock.now_s()
        if not self.paused or not self.running:
            self._frozen_at_s = None  # a paused engine with nothing in flight goes on reporting
        elif self._frozen_at_s is None:
            self._frozen_at_s = now_s
        found["timestamp"] = datetime.fromtimestamp(now_s, UTC).isoformat()
        for item in found["loads"]:
            item["num_running_reqs"] = self.running
            item["num_waiting_reqs"] = self.waiting
            decoded = round((self._frozen_at_s or now_s) * 100) % 3000
            item["num_used_tokens"] = decoded if self.running else 0
            if "timestamp" in item:
                item["timestamp"] = self._frozen_at_s or now_s
                item["total_prefill_uncached_tokens"] = self.prefilled
            if self.capacity is not None:
                item["max_total_num_tokens"] = self.capacity

    def _server_info(self, found: dict[str, Any]) -> None:
        if isinstance(found.get("startup_time"), dict):
            found["startup_time"]["load_weight"] = float(self.starts)
        if self.capacity is not None:
            found["max_total_num_tokens"] = self.capacity

    def restart(self) -> None:
        self.starts += 1
        self.prefilled = 0
        self.refusing = self.terminating = False


@cache
def recorded(file: Path) -> bytes:
    """A recorded answer, read once."""
    return file.read_bytes()


def edited(body: bytes, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """The JSON object `body` after `edit`."""
    found = json.loads(body)
    edit(found)
    return json.dumps(found).encode()


class Network:
    """Takes questions to the worker that listens at their host and port."""

    def __init__(self) -> None:
        self.workers: dict[str, FakeWorker] = {}

    def place(self, url: str, worker: FakeWorker) -> FakeWorker:
        self.workers[urlsplit(url).netloc] = worker
        return worker

    async def ask(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        key: SecretStr | None = None,
        body: bytes | None = None,
    ) -> Answer:
        parts = urlsplit(url)
        worker = self.workers.get(parts.netloc)
        if worker is None:
            raise ConnectError("ClientConnectorError")
        secret = None if key is None else key.get_secret_value()
        return await worker.answer(Asked(method, parts.path, secret, body), timeout_s)


class Ear:
    """A scheduler that only listens."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.ranks: dict[tuple[int, int], dict[str, Any]] = {}

    def worker_up(self, worker: int, rank: int, **facts: Any) -> None:
        self.heard.append(("up", worker, rank))
        self.ranks[worker, rank] = facts

    def worker_unready(self, worker: int) -> None:
        self.heard.append(("unready", worker))

    def worker_draining(self, worker: int) -> None:
        self.heard.append(("draining", worker))

    def worker_down(self, worker: int) -> None:
        self.heard.append(("down", worker))

    def kv_flushed(self, worker: int) -> None:
        self.heard.append(("flushed", worker))

    def weight_sync_begin(self) -> None:
        self.heard.append(("sync begins",))

    def weight_sync_end(self) -> None:
        self.heard.append(("sync ends",))

    def take(self) -> list[tuple[Any, ...]]:
        """What was heard since the last take."""
        heard, self.heard = self.heard, []
        return heard
