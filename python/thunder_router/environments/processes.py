"""Processes that own programs: which one, and whether it still runs.

A pid alone names nobody for long. A process is its pid, its start time and the boot it belongs to.

Source: proc(5), /proc/PID/stat field 22 (starttime, in clock ticks since boot).
"""

from pathlib import Path

from thunder_router.environments.records import Process

__all__ = ["identify", "runs"]

_PROC = Path("/proc")


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None: there is none, or it is a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, more of them included.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return None
    return Process(pid, int(fields[19]), boot_id)


def runs(process: Process) -> bool:
    """Whether that very process still runs."""
    return identify(process.pid) == process
