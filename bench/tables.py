"""Markdown tables, and their place in README.md between two markers.

The script that measured writes the table, with the day, the machine and the commit; nobody copies
a figure by hand.
"""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["commit_of", "figure", "provenance", "replace_section", "table"]

HERE = Path(__file__).parent


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(value: float | None, digits: int = 0) -> str:
    """A number as people read it; a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def provenance() -> str:
    """The day, the machine and the commit of a measurement, in one line; taken as it begins.

    The load average says how quiet the machine was: above about 1 for each core, latencies are
    those of its other tenants, and only ratios mean something.
    """
    commit = commit_of(HERE)
    changed = ", with changes" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {_processor()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, commit {commit}{changed}, "
        f"load average {os.getloadavg()[0]:.1f} before it began"
    )


def replace_section(file: Path, name: str, text: str) -> None:
    """Puts `text` between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.

    Raises:
        ValueError: the file lacks the markers.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = file.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{file} has no section {name!r}")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def commit_of(folder: Path) -> str:
    """The commit that is checked out in a folder, in short."""
    return _git("rev-parse", "--short", "HEAD", folder=folder) or "unknown commit"


def _git(*arguments: str, folder: Path = HERE) -> str:
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return run.stdout.strip()


def _processor() -> str:
    cores = _cores()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()} ({cores})"
    return f"{platform.machine()} ({cores})"


def _cores() -> str:
    count = len(os.sched_getaffinity(0))
    return f"{count} core" + "s" * (count != 1)
