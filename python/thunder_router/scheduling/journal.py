"""The journal: every event and every decision, as JSON lines in the order in which they happened.

Each line is `[pool, milliseconds, event, arguments]`; a tick's arguments are its decisions. The
first line of a file says the format, the settings in force, and which file of the series this is.
There is no prompt text and no secret in it: programs, sizes, times and workers' numbers.

Lines are gathered in memory and written a few times a second, so a crash loses at most that; at a
certain size the file is set aside (`journal.jsonl.1` is the one before), and only so many are kept.
A disk that is full or gone costs the journal, never a request.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from thunder_router.errors import ConfigError
from thunder_router.scheduling.recorder import Record

__all__ = ["FORMAT", "Header", "Journal", "Line", "encode", "read"]

_LOG = logging.getLogger(__name__)
FORMAT: Final = "thunder-journal-1"
_BATCH: Final = 512
"""Records in memory above which they are written at once."""

Line = tuple[str, int, str, Any]
"""Pool, milliseconds, event, and its arguments or decisions."""


def encode(line: Line) -> str:
    """One line of the journal, without its end."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a file.

    Attributes:
        scheduling: The scheduling settings in force, as `config.SchedulingSettings` reads them.
        part: Which file of the series; 0 begins with an empty scheduler.
    """

    scheduling: Mapping[str, Any]
    part: int


class Journal:
    """Writes records of all pools to one series of files."""

    def __init__(
        self, path: Path, scheduling: Mapping[str, Any], *, max_bytes: int, files: int
    ) -> None:
        """Sets files of an earlier run aside, and begins a new series.

        Args:
            path: The file being written; older ones get `.1`, `.2` and so on.
            scheduling: The settings in force, for the header.
            max_bytes: Size at which a file is set aside.
            files: How many are kept, the current one included.

        Raises:
            ConfigError: the file cannot be written.
        """
        self._path = path
        self._scheduling = scheduling
        self._max_bytes = max_bytes
        self._files = files
        self._part = 0
        self._pending: list[tuple[str, Record]] = []
        self._size = 0
        try:
            self._set_aside()
            self._file: IO[bytes] | None = self._begin()
        except OSError as error:
            raise ConfigError(f"journal.path: {error}") from error

    def writer(self, pool: str) -> Callable[[Record], None]:
        """What a recorder of that pool's core hands its records to."""

        def write(record: Record) -> None:
            self._pending.append((pool, record))
            if len(self._pending) >= _BATCH:
                self.flush()

        return write

    def flush(self) -> None:
        """Writes what was gathered."""
        pending, self._pending = self._pending, []
        if self._file is None:
            return
        try:
            for pool, record in pending:
                line = encode((pool, *record)) + "\n"
                self._size += self._file.write(line.encode("utf-8", "surrogatepass"))
                if self._size >= self._max_bytes:
                    self._file.close()
                    self._set_aside()
                    self._part += 1
                    self._file = self._begin()
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Writes what was gathered and closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
        self._file = None

    def _begin(self) -> IO[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("wb")
        head = {"format": FORMAT, "part": self._part, "scheduling": self._scheduling}
        self._size = file.write(json.dumps(head, separators=(",", ":")).encode() + b"\n")
        return file

    def _set_aside(self) -> None:
        """Every file moves on by one; the oldest goes. What is no file of ours stays in place."""
        if not self._path.is_file():
            return
        aged = [self._path, *(_aged(self._path, age) for age in range(1, self._files))]
        aged[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(aged), reversed(aged[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)

    def _give_up(self, error: OSError) -> None:
        _LOG.error("journal_stopped path=%s error=%s", self._path, error)
        if self._file is not None:
            # What could not be written cannot be written by closing either.
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None


def read(path: Path) -> tuple[Header, Iterator[Line]]:
    """A series of files, oldest first, that ends with `path`; its first header and its lines.

    A last line that was cut off by a crash is left out.

    Raises:
        ConfigError: not a journal, or its beginning is gone, or a line in its middle is broken.
    """
    parts = [path]
    header = _header(path)
    wanted = header.part
    while wanted > 0:
        older = _aged(path, len(parts))
        if not older.is_file():
            raise ConfigError(
                f"{path}: its beginning was set aside and is gone; decisions cannot be reproduced"
                " from the middle (keep more with journal.files)"
            )
        parts.append(older)
        header = _header(older)
        wanted -= 1
        if header.part != wanted:
            raise ConfigError(f"{older}: part {header.part} of another series, not part {wanted}")
    parts.reverse()
    return header, _lines(parts)


def _aged(path: Path, age: int) -> Path:
    return path.with_name(f"{path.name}.{age}")


def _header(path: Path) -> Header:
    try:
        with path.open(encoding="utf-8", errors="surrogatepass") as file:
            head = json.loads(file.readline())
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
        return Header(dict(head["scheduling"]), int(head["part"]))
    except FileNotFoundError as error:
        raise ConfigError(f"no such file: {path}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a journal of this version ({FORMAT})") from error


def _lines(parts: list[Path]) -> Iterator[Line]:
    for part in parts:
        with part.open(encoding="utf-8", errors="surrogatepass") as file:
            file.readline()
            for number, text in enumerate(file, start=2):
                if not text.endswith("\n") and part is parts[-1]:
                    return
                try:
                    pool, now_ms, event, arguments = json.loads(text)
                except ValueError as error:
                    raise ConfigError(f"{part}:{number}: broken line") from error
                yield pool, now_ms, event, arguments
