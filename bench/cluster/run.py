"""One run: workers, a router and a day of programs; and the record that is kept of it.

A run fails itself where the machine did not keep up: events of the engines or of tools came late
beside the engines' part of a turn, or the router had hardly a core left, so that its own CPU time,
which is of the wall, would count as so many engine seconds.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.cluster.agents import Agents, Seen
from bench.cluster.routers import ROUTERS, Setting
from bench.cluster.scenarios import SCENARIOS
from bench.cluster.workers import Workers, workers_of
from bench.processes import Process, free_port, wait_until_answers
from bench.systems import METRICS_PORT_OFFSET
from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["Record", "run"]

LAG_SHARE = 0.02
"""Of the engines' median part of a turn: how late the 99th percentile of events may come."""
ROUTER_CORES = 0.7
"""Of one core: what a router may use and still be said to answer at once."""


@dataclass(frozen=True)
class Record:
    """What one run gave, named as the simulator's report. Times are engine time."""

    origin: str
    scenario: str
    router: str
    seed: int
    speed: float
    steps_per_min: float
    programs_per_hour: float
    hit_rate: float
    recomputed_tokens: int
    """In prompts; what retractions cost is not in it."""
    steps: int
    retractions: int
    failed: int
    hold_p50_ms: int
    hold_p99_ms: int
    hold_max_ms: int
    turn_p50_ms: int
    turn_p90_ms: int
    engine_p50_ms: int
    router_ms_per_step: float
    """CPU time of the router, milliseconds of the wall's."""
    router_cores: float
    """The same as a share of one core."""
    event_lag_p99_ms: int
    answered: list[int] = field(default_factory=list)
    """Turns answered in each measured minute."""

    @property
    def flaw(self) -> str | None:
        """Why its figures mean nothing; None where they do."""
        if self.event_lag_p99_ms > LAG_SHARE * self.engine_p50_ms:
            return "events came late"
        if self.router_cores > ROUTER_CORES:
            return "the router lacked a core"
        return None


def run(
    scenario: str, router: str, seed: int, *, speed: float, thunderagent: Path | None, origin: str
) -> Record:
    """Plays one day.

    Args:
        scenario: One of `SCENARIOS`.
        router: One of `ROUTERS`.
        seed: Which programs.
        speed: Engine seconds in a real one.
        thunderagent: A clone of the public ThunderAgent.
        origin: Day, machine and commit, kept with the record.

    Raises:
        UnavailableError: the router cannot be had here.
        RuntimeError: a process did not come up.
    """
    day, system = SCENARIOS[scenario].day, ROUTERS[router]
    with tempfile.TemporaryDirectory(prefix="thunder-cluster-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        workers = stack.enter_context(workers_of(day, speed, folder))
        port = free_port(also=METRICS_PORT_OFFSET)
        setting = Setting(port, workers.urls, day.model, speed, folder, thunderagent)
        process = stack.enter_context(Process(system.command(setting), log=folder / "router.log"))
        url = f"http://127.0.0.1:{port}"
        wait_until_answers(f"{url}{system.ready}", process)
        seen, cpu_s, retractions = uvloop.run(
            _play(day, seed, speed, url, system.releases, workers, process)
        )
        lag_s = max(workers.event_lag_p99_s(), percentile(seen.lags_s, 99))
    return record(
        day,
        seen,
        speed=speed,
        cpu_s=cpu_s,
        lag_s=lag_s,
        names={"origin": origin, "scenario": scenario, "router": router, "seed": seed},
        retractions=retractions,
    )


def record(
    day: SimulationOptions,
    seen: Seen,
    *,
    speed: float,
    cpu_s: float,
    lag_s: float,
    retractions: int,
    names: dict[str, Any],
) -> Record:
    """The figures of what was seen."""

    def ms(values_s: Sequence[float], percent: int) -> int:
        return round(percentile(values_s, percent) * 1e3)

    return Record(
        **names,
        speed=speed,
        steps_per_min=seen.steps * 60 / day.measured_s,
        programs_per_hour=seen.programs * 3600 / day.measured_s,
        hit_rate=seen.cached_tokens / max(1, seen.prompt_tokens),
        recomputed_tokens=seen.recomputed_tokens,
        steps=seen.steps,
        retractions=retractions,
        failed=seen.failed,
        hold_p50_ms=ms(seen.holds_s, 50),
        hold_p99_ms=ms(seen.holds_s, 99),
        hold_max_ms=ms(seen.holds_s, 100),
        turn_p50_ms=ms(seen.turns_s, 50),
        turn_p90_ms=ms(seen.turns_s, 90),
        engine_p50_ms=ms(seen.engine_s, 50),
        router_ms_per_step=cpu_s * 1e3 / max(1, seen.steps),
        router_cores=cpu_s * speed / day.measured_s,
        event_lag_p99_ms=round(lag_s * 1e3),
        answered=seen.answered,
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """By nearest rank, as the simulator's; 0 where there is none."""
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[rank - 1] if values else 0.0


async def _play(
    day: SimulationOptions,
    seed: int,
    speed: float,
    url: str,
    releases: bool,
    workers: Workers,
    router: Process,
) -> tuple[Seen, float, int]:
    """The day, with the router's CPU seconds and the workers' retractions in its measured part."""
    agents = Agents(day, seed, speed, url, releases=releases)
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(agents.play())
        for gone_s, back_s in day.lose_worker:
            group.create_task(_outage(agents, workers, gone_s, back_s))
        await agents.until(day.warmup_s)
        cpu_s = router.cpu_seconds()
        before = await asyncio.to_thread(workers.retractions)
        seen = await playing
        cpu_s = router.cpu_seconds() - cpu_s
    after = await asyncio.to_thread(workers.retractions)
    # One that was lost counts from nothing again.
    return seen, cpu_s, max(0, after - before)


async def _outage(agents: Agents, workers: Workers, gone_s: float, back_s: float) -> None:
    host = workers.hosts[-1]
    await agents.until(gone_s)
    await asyncio.to_thread(host.lose)
    await agents.until(back_s)
    await asyncio.to_thread(host.come_back)
