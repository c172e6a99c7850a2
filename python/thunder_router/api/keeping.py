"""What is written to disk while the router runs: the journal, and the snapshot of programs."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from thunder_router.config import Settings
from thunder_router.scheduling import snapshot
from thunder_router.scheduling.core import new_scheduler
from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.journal import Journal
from thunder_router.scheduling.pool import Pool
from thunder_router.scheduling.recorder import Core, Recorder
from thunder_router.scheduling.snapshot import Memories

__all__ = ["Keeping"]

_LOG = logging.getLogger(__name__)
_FLUSH_S: Final = 0.25
"""The journal on disk is at most this far behind."""


class Keeping:
    """Journal and snapshot of one router, as its settings want them."""

    def __init__(self, settings: Settings) -> None:
        """Reads the snapshot, begins the journal.

        Raises:
            ConfigError: the journal cannot be written.
        """
        self._settings = settings
        self._disk = threading.Lock()
        keep = settings.journal
        self._journal: Journal | None = None
        if keep.path is not None:
            scheduling = settings.scheduling.model_dump(mode="json")
            self._journal = Journal(
                keep.path, scheduling, max_bytes=keep.max_bytes, files=keep.files
            )
        self._memories = Memories({})
        if keep.snapshot is not None:
            idle_ms = int(settings.scheduling.idle_timeout_s * 1000)
            self._memories = Memories.read(keep.snapshot, idle_ms)
            if len(self._memories):
                _LOG.info("snapshot_read programs=%d", len(self._memories))

    def new_core(self, pool: str) -> Core:
        """An empty core for the pool of that name, recorded where a journal is kept."""
        core = new_scheduler(self._settings.scheduling)
        return core if self._journal is None else Recorder(core, self._journal.writer(pool))

    def resume(self, driver: Driver) -> None:
        """A weight sync that was under way in the earlier run is under way still."""
        elapsed_ms = self._memories.syncing_ms
        limit_ms = self._settings.scheduling.weight_sync_timeout_s * 1000
        if elapsed_ms is not None and elapsed_ms < limit_ms:
            _LOG.info("weight_sync_resumed elapsed_s=%.1f", elapsed_ms / 1000)
            driver.weight_sync_begin(elapsed_ms)

    def recall(self, pool: Pool, worker: int, url: str) -> None:
        """A worker came up: its programs of an earlier run are there again."""
        recalled = self._memories.recall(pool, worker, url)
        if recalled:
            _LOG.info("programs_recalled worker=%d programs=%d", worker, recalled)

    @contextmanager
    def running(
        self, loop: asyncio.AbstractEventLoop, driver: Driver, worker_url: Callable[[int], str]
    ) -> Iterator[None]:
        """Writes both in their time, and a last time at the end."""
        tasks = []
        if self._journal is not None:
            tasks.append(loop.create_task(self._flush(self._journal), name="journal"))
        keep = self._settings.journal

        def take() -> list[list[Any]]:
            return snapshot.take(driver.pools, worker_url, self._memories)

        async def write_often(path: Path) -> None:
            while True:
                await asyncio.sleep(keep.snapshot_interval_s)
                # The disk may take its time, and the loop has requests to serve.
                await asyncio.to_thread(self._write, path, take(), driver.weight_sync_ms())

        if keep.snapshot is not None:
            tasks.append(loop.create_task(write_often(keep.snapshot), name="snapshot"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if keep.snapshot is not None:
                self._write(keep.snapshot, take(), driver.weight_sync_ms())
            if self._journal is not None:
                self._journal.close()

    async def _flush(self, journal: Journal) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            journal.flush()

    def _write(self, path: Path, rows: list[list[Any]], syncing_ms: int | None) -> None:
        # The last write of all may find the one before it still in its thread.
        with self._disk:
            try:
                snapshot.write(path, rows, syncing_ms)
            except OSError as error:
                _LOG.error("snapshot_failed path=%s error=%s", path, error)
