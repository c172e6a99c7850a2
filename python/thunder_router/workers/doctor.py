"""`thunder-router doctor`: looks at workers once and says, a screen each, what was found.

What is known with which source, what is switched on, what is off and which flag of the engine would
switch it on, and what looks wrong. Exit code 0: all workers can serve; 1: some cannot.
"""

import asyncio
from collections.abc import Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConfigError, UpstreamError
from thunder_router.workers.advice import Finding, Level, findings
from thunder_router.workers.clock import Clock, MonotonicClock
from thunder_router.workers.compose import compose
from thunder_router.workers.endpoint import normal_url
from thunder_router.workers.feeds import installed
from thunder_router.workers.http import AiohttpClient, HttpClient
from thunder_router.workers.probe import Door, probe
from thunder_router.workers.report import Reading, WorkerReport

__all__ = ["examine", "run"]


def run(urls: Sequence[str], settings: WorkerSettings) -> int:
    """Examines the workers at `urls`, prints a screen for each, and gives the exit code."""

    async def all_of_them() -> int:
        async with AiohttpClient() as client:
            return await examine(urls, settings, client, MonotonicClock(), Console())

    return asyncio.run(all_of_them())


async def examine(
    urls: Sequence[str],
    settings: WorkerSettings,
    client: HttpClient,
    clock: Clock,
    console: Console,
) -> int:
    """As `run`, with everything that touches the world given."""
    if not urls:
        console.print("no workers: name some with --worker-urls")
        return 1
    entries = {entry.url: entry for entry in settings.entries}
    screens = await asyncio.gather(
        *(_screen(entries.get(url) or WorkerEntry(url=url), settings, client, clock)
          for url in urls)
    )  # fmt: skip
    for panel, _ in screens:
        console.print(panel)
    well = sum(serves for _, serves in screens)
    console.print(f"{well} of {len(screens)} workers can serve")
    return 0 if well == len(screens) else 1


async def _screen(
    entry: WorkerEntry, settings: WorkerSettings, client: HttpClient, clock: Clock
) -> tuple[Panel, bool]:
    """One worker's screen, and whether it can serve."""
    try:
        url = normal_url(entry.url)
        entry = settings.complete(entry)
        found = await probe(Door(url, entry.api_key, client, clock, settings.probe_timeout_s))
    except (ConfigError, UpstreamError, TimeoutError) as error:
        problem = Text(f"cannot be reached: {error}", style="bold red")
        return Panel(problem, title=entry.url, title_align="left"), False
    if found.problem is not None:
        return Panel(Text(found.problem, style="bold red"), title=url, title_align="left"), False
    report = compose(found.seen, entry)
    ready = report.ready is None or report.ready.value
    state = Text("ready", style="green") if ready else Text("not ready", style="yellow")
    head = Text.assemble(f"{report.engine} {report.version or '(version unknown)'}, ", state)
    advice = findings(report, listens=settings.listen and installed())
    body = Group(head, _facts(report), _ranks(report), *_findings(advice))
    return Panel(body, title=url, title_align="left"), ready


def _facts(report: WorkerReport) -> Table:
    table = Table.grid(padding=(0, 2))
    models = ", ".join(
        f"{m.id} (context {m.max_model_len:,})" if m.max_model_len else m.id for m in report.models
    )
    table.add_row("models", models or "unknown")
    if report.weight_version:
        table.add_row("weights", report.weight_version.value)
    if report.write_policy:
        tier = report.write_policy.value
        storage = f", storage {report.storage_backend}" if report.storage_backend else ""
        table.add_row("HiCache", tier + storage)
    if report.cache_hits:
        hits = report.cache_hits.value
        tiers = {"device": hits.device, "host": hits.host, "storage": hits.storage}
        said = ", ".join(f"{tier} {n:,}" for tier, n in tiers.items() if n is not None)
        table.add_row("cached so far", f"{said} tokens" if said else "unknown")
    if report.retractions:
        table.add_row("retractions", f"{report.retractions.value:,}")
    return table


_COLUMNS = (
    ("capacity", "device_tokens"),
    ("page", "page_size"),
    ("in flight", "in_flight_tokens"),
    ("evictable", "evictable_tokens"),
    ("host used", "host_used_tokens"),
    ("host", "host_tokens"),
    ("reach", "reach_tokens"),
    ("running", "running"),
    ("waiting", "waiting"),
)


def _ranks(report: WorkerReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("rank")
    for title, _ in _COLUMNS:
        table.add_column(title, justify="right")
    for rank in report.ranks:
        table.add_row(str(rank.rank), *(_number(getattr(rank, name)) for _, name in _COLUMNS))
    return table


def _number(reading: Reading[int] | None) -> str:
    """The value; `?` where nobody said, `~` where it may be out of date."""
    if reading is None:
        return "?"
    return ("~" if reading.stale else "") + _short(reading.value)


def _short(tokens: int) -> str:
    """Four digits, so that a row fits an 80-column terminal; `/workers` has them all."""
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1e3:.4g}k" if tokens < 1_000_000 else f"{tokens / 1e6:.4g}M"


_MARKS = {
    Level.ON: ("on ", "green"),
    Level.OFF: ("off", "yellow"),
    Level.WARNING: ("!  ", "bold red"),
}


def _findings(found: Sequence[Finding]) -> list[Text]:
    lines = []
    for level, (mark, style) in _MARKS.items():
        for finding in found:
            if finding.level is level:
                flag = f"  ->  {finding.flag}" if finding.flag else ""
                lines.append(Text.assemble((f"{mark} ", style), finding.text, (flag, "cyan")))
    return lines
