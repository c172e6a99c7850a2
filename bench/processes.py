"""Processes started from here: pinned if need be, watched by the kernel's account, ended by id.

Each is the leader of its own session. Only processes started here are ever signalled, and their
descendants are found through `/proc`, never by name.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Process", "console_script", "free_port", "resident_bytes", "wait_until_answers"]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_S = 10.0


class Process:
    """A running child with everything it forked.

    Args:
        command: The program and its arguments.
        log: Where stdout and stderr go.
        cores: Pins it to these; None leaves it free.
        environment: On top of this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cores: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        with log.open("ab") as sink:
            self._child = subprocess.Popen(
                [*pinned, *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the child itself (`taskset` replaces itself by the command)."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the child still runs."""
        return self._child.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time so far, of the child and its living descendants."""
        return sum(_cpu_seconds(pid) for pid in _family(self.pid))

    def resident_bytes(self) -> int:
        """Resident memory now, of the child and its living descendants."""
        return sum(resident_bytes(pid) for pid in _family(self.pid))

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        return self._child.poll()

    def signal(self, number: signal.Signals) -> None:
        """Sends the child itself a signal."""
        self._child.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Its exit status, once it has ended by itself.

        Raises:
            TimeoutError: it still runs after `timeout_s`.
        """
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"still running after {timeout_s} s: {self.log}") from error

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left after STOP_S."""
        family = _family(self.pid) if self.alive else []
        for pid in reversed(family):
            _signal(pid, signal.SIGTERM)
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in family:
                _signal(pid, signal.SIGKILL)
            self._child.wait(STOP_S)


def console_script(name: str) -> str:
    """The path of a command that belongs to the running interpreter's environment.

    Raises:
        FileNotFoundError: it is not installed there.
    """
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run make setup")
    return str(path)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name: state, parent, and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def resident_bytes(pid: int) -> int:
    """Resident memory of one process now; 0: there is none."""
    fields = _stat(pid)
    return int(fields[21]) * PAGE_BYTES if fields else 0


def _family(pid: int) -> list[int]:
    """The process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def free_port(also: int = 0) -> int:
    """A loopback port nobody listens on; `also`: one that far above it is free too."""
    for port in _candidates():
        if not also or _is_free(port + also):
            return port
    raise RuntimeError("no free port on loopback")


def _candidates() -> Iterator[int]:
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            yield probe.getsockname()[1]


def _is_free(port: int) -> bool:
    if port > 65_535:
        return False
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until_answers(
    url: str, process: Process, *, body: bytes | None = None, timeout_s: float = 60
) -> None:
    """Returns once `url` answers 200.

    Raises:
        RuntimeError: the process ended, or `timeout_s` passed; the message has its last words.
    """
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.alive:
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    last_words = process.log.read_text(errors="replace")[-800:]
    raise RuntimeError(f"{url} did not answer; the process said:\n{last_words}")
