"""Routers that are killed at a chosen step of their journal, each in a process of its own.

Reads a JSON list of jobs, forks one process per job, and prints how each ended: the number of
commits it made where it lived, null where it was killed.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from thunder_router.config import EnvironmentSettings
from thunder_router.environments import DockerEngine, Environments, Store
from thunder_router.environments.actions import Forget, Keep

AT_ONCE = 4


class MortalStore(Store):
    """A journal whose process is killed at its nth commit, before or after it is durable."""

    def __init__(self, settings: EnvironmentSettings, die_at: int, *, before: bool) -> None:
        super().__init__(settings.journal)
        self._die_at = die_at
        self._before = before
        self.commits = 0

    async def commit(self, lines: Sequence[Keep | Forget]) -> None:
        self.commits += 1
        if self._before and self.commits == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().commit(lines)
        if self.commits == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


async def lives(job: dict[str, Any]) -> int:
    """A whole program: an agent's container, a prepared environment, its release."""
    settings = EnvironmentSettings.model_validate(job["settings"])
    store = MortalStore(settings, job["die_at"], before=job["before"])
    docker = settings.docker
    engine = DockerEngine(
        docker.host, call_timeout_s=docker.call_timeout_s, pull_timeout_s=docker.pull_timeout_s
    )
    program = job["program"]
    async with asyncio.timeout(50), Environments(settings, engine=engine, store=store) as room:
        await room.until(lambda: room.status().environments == "ok")
        room.request(program)
        room.prepare(program, 0)
        await room.until(lambda: room.environment(program).state == "ready")
        await room.until(lambda: len(room.owned(program)) == 2)
        room.released(program)
        await room.until(lambda: not room.owned(program))
    return store.commits


def main() -> None:
    jobs = json.load(sys.stdin)
    running: dict[int, int] = {}
    ends: list[int | None] = [None] * len(jobs)

    def reap() -> None:
        pid, status = os.wait()
        number = running.pop(pid)
        if os.WIFEXITED(status):
            ends[number] = os.WEXITSTATUS(status)

    for number, job in enumerate(jobs):
        if len(running) == AT_ONCE:
            reap()
        pid = os.fork()
        if pid == 0:
            os._exit(asyncio.run(lives(job)))
        running[pid] = number
    while running:
        reap()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
