"""Processes of this machine: those that own programs, and those that programs own.

A pid alone names nobody for long. A process is its pid, its start time and the boot it belongs to,
and it is signalled through a descriptor that can mean no other.

Source: proc(5), /proc/PID/stat field 4 (ppid) and 22 (starttime, in clock ticks since boot);
pidfd_open(2).
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from thunder_router.environments.records import Process

__all__ = ["end", "identify", "may_end", "runs"]

_PROC = Path("/proc")


def _stat(pid: int) -> list[str] | None:
    """Fields 3 and on of /proc/PID/stat."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, more of them included.
    return stat.rpartition(")")[2].split()


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None: there is none, or it is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    try:
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return Process(pid, int(fields[19]), boot_id)


def runs(process: Process) -> bool:
    """Whether that very process still runs."""
    return identify(process.pid) == process


def may_end(pid: int) -> bool:
    """Whether a program may own it: of our user, and neither ourselves nor what started us."""
    try:
        if (_PROC / str(pid)).stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    above: int = os.getpid()
    while above > 1:
        if above == pid:
            return False
        fields = _stat(above)
        above = 0 if fields is None else int(fields[1])
    return pid > 1


async def end(process: Process, grace_s: float) -> None:
    """SIGTERM, and SIGKILL after `grace_s`, to that very process and the group that it leads.

    Raises:
        OSError: it cannot be signalled.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # Looked at only now: from here on the descriptor, and its group, can mean no other.
        if not runs(process):
            return
        _signal(process.pid, descriptor, signal.SIGTERM)
        if not await _ended(descriptor, grace_s):
            _signal(process.pid, descriptor, signal.SIGKILL)
            await _ended(descriptor, grace_s)
    finally:
        os.close(descriptor)


def _signal(pid: int, descriptor: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid != os.getpgid(0):
            os.killpg(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)


async def _ended(descriptor: int, limit_s: float) -> bool:
    """Whether the process ends within the limit: its descriptor can then be read."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        async with asyncio.timeout(limit_s):
            await over.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
