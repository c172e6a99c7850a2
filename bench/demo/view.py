"""The live view: workers with what fills them, programs as a field of marks.

On a terminal it is drawn anew a few times a second; elsewhere a plain line is printed every few
seconds, so that a log of it can be read.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bench.demo.phase import Phase

__all__ = ["live_view"]

PLAIN_EVERY_S = 5.0
MARKS = {
    "model": ("█", "green", "at the model"),
    "tool": ("▒", "cyan", "its tool runs"),
    "held": ("░", "yellow", "held: its turn waits in the router"),
    "starting": ("·", "dim", "starting"),
}


@contextmanager
def live_view(console: Console) -> Iterator[Callable[[Phase], None]]:
    """What to call with each look at a phase."""
    if not console.is_terminal:
        yield _PlainLines(console).show
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda phase: live.update(_picture(phase), refresh=True)


class _PlainLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = 0.0

    def show(self, phase: Phase) -> None:
        """A line, unless the last one was just now."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PLAIN_EVERY_S
        marks = Counter(_mark(phase, agent.run.name, agent.phase) for agent in phase.agents)
        self._console.print(
            f"{phase.policy:9} {phase.elapsed_s:5.1f} s  {_progress(phase)}  "
            + "  ".join(f"{marks[mark]} {mark}" for mark in ("model", "tool", "held")),
            highlight=False,
            soft_wrap=True,
        )


def _mark(phase: Phase, name: str, agent_phase: str) -> str:
    """What an agent does, as its user and the router see it together."""
    if agent_phase == "model" and phase.programs.get(name, {}).get("waiting"):
        return "held"
    return agent_phase


def _progress(phase: Phase) -> str:
    tally = phase.tally
    if not phase.counting:
        return "warming up"
    return (
        f"{tally.steps_per_minute:4.0f} steps/min  cache hit {tally.hit_rate:3.0%}  "
        f"{tally.programs_finished} finished"
    )


def _picture(phase: Phase) -> RenderableType:
    scale = phase.scale
    left_s = max(0.0, scale.warm_up_s + scale.measure_s - phase.elapsed_s)
    title = f"policy [b]{phase.policy}[/b] · {_progress(phase)} · {left_s:.0f} s left"
    return Panel(Group(_workers(phase), Text(), _field(phase), _legend()), title=title)


def _workers(phase: Phase) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column()
    table.add_column(ratio=1)
    table.add_column(justify="right")
    for number, worker in enumerate(phase.workers):
        used, capacity = _kv_tokens(worker)
        table.add_row(
            f"emulated worker {number}",
            ProgressBar(total=max(1, capacity), completed=used, style="grey23"),
            f"KV {used / 1000:,.0f}k of {capacity / 1000:,.0f}k tokens, {worker['load']} running",
        )
    return table


def _kv_tokens(worker: dict[str, Any]) -> tuple[int, int]:
    """KV tokens in use and in all, over the worker's ranks; zeros before its first report."""
    used = capacity = 0
    for rank in (worker["report"] or {}).get("ranks", ()):
        used += _value(rank, "in_flight_tokens") + _value(rank, "evictable_tokens")
        capacity += _value(rank, "device_tokens")
    return used, capacity


def _value(rank: dict[str, Any], name: str) -> int:
    reading = rank[name]
    return int(reading["value"]) if reading else 0


def _field(phase: Phase) -> Text:
    field = Text(overflow="fold")
    for agent in phase.agents:
        mark, style, _ = MARKS[_mark(phase, agent.run.name, agent.phase)]
        field.append(mark, style)
        field.append(" ")
    return field


def _legend() -> Text:
    legend = Text("\n")
    for mark, style, meaning in MARKS.values():
        legend.append(f"{mark} ", style)
        legend.append(f"{meaning}   ", "dim")
    return legend
