"""Programs over real engines: they stay where their KV is, and come back cheaply from a pause."""

import asyncio
from pathlib import Path

from bench.sglang_server import CAPACITY_TOKENS, SGLang
from engine.agent import Agent, eventually
from router import routing


def closed_sessions(engine: SGLang) -> int:
    """Times it was told to close a session, by its own access log."""
    return Path(engine.process.log).read_text().count('"POST /close_session')


async def test_programs_stay_where_their_cache_is(engines: list[SGLang]) -> None:
    urls = [engine.url for engine in engines]
    async with routing(urls) as house:
        agents = [Agent(house, f"stays{number}") for number in range(4)]
        places = set()
        for _ in range(4):
            await asyncio.gather(*(agent.turn() for agent in agents))
            places.add(tuple([(await agent.seen())["worker"] for agent in agents]))
        counts = await house.quiet()

    (place,) = places
    assert sorted(place) == [0, 0, 1, 1]
    assert counts["paused"] == 0
    for agent in agents:
        first, *later = agent.turns
        assert first.cached < 10, "only the chat template's own beginning is shared"
        for before, turn in zip(agent.turns, later, strict=False):
            assert before.prompt <= turn.cached < turn.prompt
            assert turn.device == turn.cached
    known = sum(turn.prompt for agent in agents for turn in agent.turns[1:])
    cached = sum(turn.cached for agent in agents for turn in agent.turns[1:])
    assert cached / known > 0.85


async def test_a_paused_program_leaves_the_device_first_and_comes_back_from_the_host(
    engine: SGLang,
) -> None:
    """Four programs that do not fit together; the one used last is paused.

    By age it would be the last to go. Its session was closed, so it goes first, and its copy in
    the host tier is what it comes back with.
    """
    async with routing([engine.url]) as house:
        first, second = Agent(house, "first", 200), Agent(house, "second", 200)
        paused, fourth = Agent(house, "paused", 200), Agent(house, "fourth", 330)
        for agent in (first, second, paused):
            await agent.turn()
        closed = closed_sessions(engine)
        await paused.pause()
        await eventually(lambda: closed_sessions(engine) > closed, "its session is closed")
        await fourth.turn()
        sizes = [agent.turns[0].prompt for agent in (first, second, paused, fourth)]
        assert sum(sizes) > CAPACITY_TOKENS, "somebody had to go"

        stayed = await first.turn()
        await fourth.release()
        await paused.restore()
        back = await paused.turn()

    assert stayed.device >= first.turns[0].prompt
    assert stayed.host == 0
    shared = 10  # the chat template's own beginning
    assert back.device < shared
    assert back.host >= paused.turns[0].prompt - shared
    assert back.cached == back.device + back.host


async def test_under_pressure_programs_are_paused_and_hardly_anything_is_recomputed(
    engine: SGLang,
) -> None:
    """Six programs that outgrow the device's cache by half; the host tier holds them all."""
    async with routing([engine.url]) as house:
        agents = [Agent(house, f"grows{number}", 80) for number in range(6)]
        held = 0

        async def live(agent: Agent) -> None:
            for _ in range(6):
                await agent.turn(13)

        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(live(agent)) for agent in agents]
            while not all(task.done() for task in lives):
                held = max(held, house.router.driver.pools[0].look()[0].counts()["waiting"])
                await asyncio.sleep(0.01)
        await house.quiet()

    last = [agent.turns[-1] for agent in agents]
    whole = sum(turn.prompt + turn.completion for turn in last)
    assert 1.5 * CAPACITY_TOKENS < whole < 2 * CAPACITY_TOKENS
    assert held > 0, "somebody waited for room"
    recomputed = sum(
        max(0, before.prompt - turn.cached)
        for agent in agents
        for before, turn in zip(agent.turns, agent.turns[1:], strict=False)
    )
    prompts = sum(turn.prompt for agent in agents for turn in agent.turns)
    assert recomputed / prompts < 0.05
    assert sum(turn.host for agent in agents for turn in agent.turns) > 0
