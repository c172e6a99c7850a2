"""Starts the two commands as users do, and ends them by process id.

Emulated workers answer in SGLang's shapes; nothing here is a stand-in for the router. Each is
ready when its own endpoint says so, and its log is in the error where it never does.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.processes import Process, console_script, free_port, wait_until_answers

__all__ = [
    "MODEL",
    "Router",
    "Worker",
    "call",
    "emulated_worker",
    "eventually",
    "say",
    "served_router",
]

MODEL = "emulated-model"
LINES = "script.jsonl"


@dataclass(frozen=True)
class Worker:
    """An emulated worker in a process of its own."""

    url: str
    process: Process

    def requests(self) -> int:
        """Inference requests it has taken so far, by its own account."""
        return int(self._sum("sglang:num_requests_total"))

    def aborted(self) -> int:
        """Requests that it ended because somebody told it to."""
        return int(self._sum("sglang:num_aborted_requests_total"))

    def _sum(self, name: str) -> float:
        with urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))


@dataclass(frozen=True)
class Router:
    """A router in a process of its own."""

    url: str
    port: int
    process: Process

    def get(self, path: str) -> Any:
        """The JSON that its own API answers with."""
        with urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def emulated_worker(folder: Path, *options: str, script: Sequence[Any] = ()) -> Iterator[Worker]:
    """One worker; `script`: the lines of its answers (see `thunder_router/emulator/script.py`)."""
    port = free_port()
    folder = folder / f"worker-{port}"
    folder.mkdir()
    command = [console_script("thunder-router"), "emulate", "--port", str(port), "--model", MODEL]
    command += ["--speed", "100", *options]
    if script:
        lines = folder / LINES
        lines.write_text("".join(json.dumps(line) + "\n" for line in script))
        command += ["--script", str(lines)]
    url = f"http://127.0.0.1:{port}"
    with Process(command, log=folder / "log") as process:
        wait_until_answers(f"{url}/v1/models", process, timeout_s=30)
        yield Worker(url, process)


@contextmanager
def served_router(folder: Path, workers: Sequence[str], **settings: str) -> Iterator[Router]:
    """A router that serves these workers' URLs and is ready.

    `settings` are its `THUNDER_*` environment variables, without that prefix.
    """
    port = free_port()
    log = folder / f"router-{port}.log"
    command = [console_script("thunder-router"), "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--worker-urls", *workers]
    url = f"http://127.0.0.1:{port}"
    environment = {f"THUNDER_{name}": value for name, value in settings.items()}
    with Process(command, log=log, environment=environment) as process:
        wait_until_answers(f"{url}/readiness", process, timeout_s=30)
        yield Router(url, port, process)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Waits, within bounds, until other processes have come so far; `what` if they never do."""
    deadline = time.monotonic() + 20
    while True:
        with suppress(LookupError):
            if holds():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def say(content: str, *, match: str = "") -> dict[str, Any]:
    """A script line: plain text."""
    return {"match": match, "content": content}


def call(command: str, *, match: str = "") -> dict[str, Any]:
    """A script line: one call of the `bash` tool."""
    tools = [{"name": "bash", "arguments": {"command": command}}]
    return {"match": match, "content": "Let me see.", "tool_calls": tools}
