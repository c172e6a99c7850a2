"""A trace: recorded sessions as the simulator plays them, one JSON list."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from thunder_router.emulator.traces import journal, request_log
from thunder_router.emulator.traces.calls import Session, sessions_of
from thunder_router.errors import ConfigError
from thunder_router.scheduling.journal import FORMAT

__all__ = ["Session", "Trace", "load", "write"]

_JOURNAL_BEGINS: Final = f'{{"format":"{FORMAT.rsplit("-", 1)[0]}'


@dataclass(frozen=True)
class Trace:
    """Sessions, and what they were read from: `trace`, `journal` or `request log`."""

    sessions: list[Session]
    form: str

    @property
    def turns(self) -> int:
        """Over all sessions."""
        return sum(map(len, self.sessions))


def load(path: Path) -> Trace:
    """Recorded sessions from a trace, a journal or a request log: its beginning says which.

    Raises:
        ConfigError: it cannot be read, is none of the three, is broken, or has no session.
    """
    try:
        with path.open(encoding="utf-8") as file:
            begins = file.read(64).lstrip()
        if begins.startswith("["):
            trace = Trace(_sessions(path), "trace")
        elif begins.replace(" ", "").startswith(_JOURNAL_BEGINS):
            trace = Trace(sessions_of(journal.calls(path)), "journal")
        elif begins.startswith("{"):
            trace = Trace(sessions_of(request_log.calls(path)), "request log")
        else:
            raise ConfigError(f"{path}: neither a trace, a journal nor a request log")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    if not trace.sessions:
        raise ConfigError(f"{path}: no session in it")
    return trace


def write(trace: Trace, path: Path) -> None:
    """As a trace, one session a line.

    Raises:
        ConfigError: the file cannot be written.
    """
    lines = ",\n".join(json.dumps(session, separators=(",", ":")) for session in trace.sessions)
    try:
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _sessions(path: Path) -> list[Session]:
    try:
        sessions = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not a list of sessions: {error}") from error
    return [
        [_turn(path, s, t, turn) for t, turn in enumerate(_list(path, s, session), start=1)]
        for s, session in enumerate(sessions, start=1)
    ]


def _list(path: Path, number: int, session: Any) -> Sequence[Any]:
    if not isinstance(session, list) or not session:
        raise ConfigError(f"{path}: session {number} is not a list of turns")
    return session


def _turn(path: Path, session: int, number: int, turn: Any) -> tuple[int, int, int, float]:
    """What follows the fourth number is the recorder's own."""
    where = f"{path}: session {session}, turn {number}"
    try:
        prompt, output, shared, gap_s = turn[:4]
        counts = int(prompt), int(output), int(shared)
        pause = float(gap_s)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {turn!r} is not four numbers") from error
    if min(counts) < 0 or not 0 <= pause < math.inf:
        raise ConfigError(f"{where}: {turn!r} has a number below 0")
    return *counts, pause
