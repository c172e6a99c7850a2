"""The journal: what must survive the router, in SQLite.

One thread writes. While it waits for the disk, further commits queue up and go together in its next
transaction, so that many teardowns at once cost few syncs. A commit is durable when its future is
done (WAL, synchronous=FULL). A lost journal loses ownership of pulled images and pending hooks,
never more: everything else carries labels.
"""

import asyncio
import fcntl
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from thunder_router.environments.actions import Forget, Keep
from thunder_router.environments.records import Image, Program, Resource

__all__ = ["Store"]

_log = logging.getLogger(__name__)

_SCHEMA: Final = 1
_TABLES: Final[dict[str, TypeAdapter[Any]]] = {
    "programs": TypeAdapter(Program),
    "resources": TypeAdapter(Resource),
    "images": TypeAdapter(Image),
}


@dataclass(slots=True)
class _Commit:
    lines: Sequence[Keep | Forget]
    done: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop


class Store:
    """A journal file, opened at once.

    Args:
        path: The file; its folder must exist.

    Raises:
        sqlite3.Error: the file cannot be opened, is of a newer version, or another router's.
    """

    def __init__(self, path: Path) -> None:
        self._lock = _locked(path)
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _SCHEMA:
            self._connection.close()
            os.close(self._lock)
            raise sqlite3.DatabaseError(f"{path} is of version {version}, this is {_SCHEMA}")
        for table in _TABLES:
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, body TEXT NOT NULL)"
            )
        self._connection.execute(f"PRAGMA user_version={_SCHEMA}")
        self._queue: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        # A router that fails before it serves never closes its journal, and must end all the same.
        self._thread = threading.Thread(
            target=self._write, name="environments-journal", daemon=True
        )
        self._thread.start()

    def load(self) -> list[Program | Resource | Image]:
        """Everything kept, programs first. A line that cannot be read is left out.

        Labels find again what such a line was about.
        """
        records: list[Program | Resource | Image] = []
        for table, adapter in _TABLES.items():
            for (body,) in self._connection.execute(f"SELECT body FROM {table}"):
                try:
                    records.append(adapter.validate_json(body))
                except ValidationError:
                    continue
        programs = {record.id for record in records if isinstance(record, Program)}
        return [r for r in records if not isinstance(r, Resource) or r.owner.program in programs]

    async def commit(self, lines: Sequence[Keep | Forget]) -> None:
        """Returns when the lines are durable, in order.

        Raises:
            sqlite3.Error: they are not, and none of them is.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put(_Commit(lines, done, loop))
        await done

    def close(self) -> None:
        """Writes what is queued, and closes the file."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()
        os.close(self._lock)

    def _write(self) -> None:
        while True:
            group = [self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get())
            commits = [commit for commit in group if commit is not None]
            error = self._transact(commits)
            for commit in commits:
                commit.loop.call_soon_threadsafe(_finish, commit.done, error)
            if len(commits) < len(group):
                return

    def _transact(self, commits: Sequence[_Commit]) -> sqlite3.Error | None:
        try:
            self._connection.execute("BEGIN")
            for commit in commits:
                for line in commit.lines:
                    self._apply(line)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return error
        return None

    def _apply(self, line: Keep | Forget) -> None:
        match line:
            case Forget(table=table, key=key):
                self._connection.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
            case Keep(table=table, key=key, record=record):
                try:
                    body = _TABLES[table].dump_json(record).decode()
                except ValueError:
                    # One line that cannot be written must not keep all the others from it.
                    _log.exception("unwritable=%s/%s", table, key)
                    return
                self._connection.execute(
                    f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, body)
                )


def _locked(path: Path) -> int:
    """A descriptor that holds the file, made for its owner's eyes only: specs may hold secrets.

    Two routers on one journal would each undo what the other is doing. The kernel lets go of the
    lock with the process, however it ends; it is not one of those that SQLite takes.
    """
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise sqlite3.OperationalError(str(error)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise sqlite3.OperationalError("another router uses it") from error
    return lock


def _finish(done: "asyncio.Future[None]", error: sqlite3.Error | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
