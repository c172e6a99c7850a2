"""One phase of the demo: all agents at work under one policy, for a fixed time."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.demo.agent import Agent, Clock
from bench.demo.fleet import Scale
from bench.demo.tally import Tally

__all__ = ["Phase", "run_phase"]

LOOK_S = 0.25


@dataclass
class Phase:
    """What is to be seen of a phase while it runs."""

    policy: str
    scale: Scale
    clock: Clock
    agents: list[Agent]
    tally: Tally = field(default_factory=Tally)
    counting: bool = False
    elapsed_s: float = 0.0
    """Real seconds since the agents began."""
    workers: list[dict[str, Any]] = field(default_factory=list)
    """As the router's own API tells."""
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, as it tells."""


async def run_phase(
    url: str, policy: str, scale: Scale, seed: int, show: Callable[[Phase], None]
) -> Tally:
    """Runs the agents against the router at `url`; `show` is called a few times a second.

    Raises:
        httpx.HTTPError: a request failed: the router must not lose a single one.
    """
    async with AsyncExitStack() as stack:
        # One each: a connection pool shared by so many looks through all of them at every request.
        watcher, *clients = [
            await stack.enter_async_context(_client(url)) for _ in range(scale.programs + 1)
        ]
        clock = Clock(scale.speed)
        agents = [Agent(slot, seed, client, clock) for slot, client in enumerate(clients)]
        phase = Phase(policy, scale, clock, agents)
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(agent.work()) for agent in agents]
            await _watch(phase, watcher, show)
            for worker in workers:
                worker.cancel()
    return phase.tally


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=None, verify=False)


async def _watch(phase: Phase, client: httpx.AsyncClient, show: Callable[[Phase], None]) -> None:
    """Looks at everything until the time is over; counting begins after the warm-up."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    scale = phase.scale
    counted_from_s = 0.0
    while phase.elapsed_s < scale.warm_up_s + scale.measure_s:
        await asyncio.sleep(LOOK_S)
        phase.elapsed_s = loop.time() - began
        if not phase.counting and phase.elapsed_s >= scale.warm_up_s:
            phase.counting = True
            counted_from_s = phase.clock.now_s()
            for agent in phase.agents:
                agent.tally = Tally()
        phase.tally = Tally.total(agent.tally for agent in phase.agents)
        now_s = phase.clock.now_s()
        phase.tally.measured_s = now_s - counted_from_s
        for agent in phase.agents:
            if agent.phase == "model":
                phase.tally.still_waiting(now_s - agent.since_s)
        await _ask_the_router(phase, client)
        show(phase)


async def _ask_the_router(phase: Phase, client: httpx.AsyncClient) -> None:
    """What the router's own API says of its programs and workers."""
    programs = await client.get("/programs", params={"limit": 10_000})
    workers = await client.get("/workers")
    phase.programs = programs.raise_for_status().json()
    phase.workers = workers.raise_for_status().json()["workers"]
