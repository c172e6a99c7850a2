"""Programs that outlive the router: written every few seconds, taken over at the next start.

A snapshot holds each program's name, group, size, silence, where it is, and whether an operator has
paused it, with workers named by URL, since their numbers are only this run's; and how long a weight
sync has been under way, so that the next run holds on until it ends or its watchdog ends it. It is
written beside the old one and put in its place in one step, so a crash leaves the old or the new,
never half. Requests in flight are not in it: a router that died has ended them.

At the next start the programs of a worker are told to its pool's core when that worker comes up, so
that they continue where their KV cache is.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from thunder_router.scheduling.pool import Pool
from thunder_router.scheduling.recorder import Core

__all__ = ["FORMAT", "Memories", "Memory", "take", "write"]

_LOG = logging.getLogger(__name__)
FORMAT: Final = "thunder-snapshot-2"


@dataclass(frozen=True, slots=True)
class Memory:
    """One program as an earlier run left it; `idle_ms` counts up to when it was written."""

    program: str
    group: str | None
    context_tokens: int
    rank: int
    idle_ms: int
    operator: bool

    def tell(self, worker: int, core: Core, now_ms: int) -> None:
        """Has a core take the program over, where `worker` is its worker's number now."""
        core.remember(
            self.program,
            group=self.group,
            context_tokens=self.context_tokens,
            worker=worker,
            rank=self.rank,
            idle_ms=self.idle_ms,
            operator=self.operator,
            now_ms=now_ms,
        )


def take(
    pools: list[Pool], worker_url: Callable[[int], str], waiting: "Memories"
) -> list[list[Any]]:
    """All programs that have or had a place, as rows of a snapshot.

    Args:
        pools: Whose programs.
        worker_url: A worker's URL, by its number.
        waiting: Programs of an earlier run whose workers have not come up yet: kept as they are.
    """
    rows = waiting.rows()
    for pool in pools:
        core, now = pool.look()
        for view in core.programs(now):
            place = view.origin if view.worker is None else (view.worker, view.rank or 0)
            if place is not None:
                url = worker_url(place[0])
                where = [view.context_tokens, url, place[1], view.idle_ms]
                rows.append([view.program, view.group, *where, view.operator])
    return rows


def write(path: Path, rows: list[list[Any]], syncing_ms: int | None = None) -> None:
    """Puts a snapshot of these rows in the place of the old one; for any thread.

    Args:
        path: Where.
        rows: What `take` gave.
        syncing_ms: How long a weight sync has been under way; None without one.

    Raises:
        OSError: the disk is full or gone.
    """
    said = {"format": FORMAT, "written_s": time.time(), "syncing_ms": syncing_ms, "programs": rows}
    text = json.dumps(said)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


class Memories:
    """What an earlier run remembered, until the workers that it is about come up.

    Attributes:
        syncing_ms: How long ago a weight sync began that it had not seen end; None without one.
    """

    def __init__(self, by_url: dict[str, list[Memory]], syncing_ms: int | None = None) -> None:
        self.syncing_ms = syncing_ms
        self._by_url = by_url

    def __len__(self) -> int:
        return sum(len(memories) for memories in self._by_url.values())

    def rows(self) -> list[list[Any]]:
        """The rows of a snapshot for what has not been recalled."""
        return [
            [m.program, m.group, m.context_tokens, url, m.rank, m.idle_ms, m.operator]
            for url, memories in self._by_url.items()
            for m in memories
        ]

    @classmethod
    def read(cls, path: Path, idle_timeout_ms: int) -> "Memories":
        """The snapshot at `path`; empty without one. One that cannot be read is warned about.

        Programs that would have expired meanwhile are left out.
        """
        by_url: dict[str, list[Memory]] = {}
        syncing_ms = None
        try:
            found = json.loads(path.read_bytes())
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']!r}")
            away_ms = max(0, int((time.time() - found["written_s"]) * 1000))
            if found.get("syncing_ms") is not None:
                syncing_ms = int(found["syncing_ms"]) + away_ms
            for program, group, tokens, url, rank, idle_ms, operator in found["programs"]:
                silent_ms = idle_ms + away_ms
                memory = Memory(str(program), group, int(tokens), int(rank), silent_ms, operator)
                if memory.idle_ms < idle_timeout_ms:
                    by_url.setdefault(url, []).append(memory)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("snapshot_unreadable path=%s error=%r", path, error)
            by_url, syncing_ms = {}, None
        return cls(by_url, syncing_ms)

    def recall(self, pool: Pool, worker: int, url: str) -> int:
        """Tells the core of `pool` the programs of a worker that came up; returns how many."""
        memories = self._by_url.pop(url, [])
        for memory in memories:
            pool.tell("remember", partial(memory.tell, worker))
        return len(memories)
