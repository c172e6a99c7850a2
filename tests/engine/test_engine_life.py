"""Clients that leave, weight syncs, drains and restarts, with a real engine behind."""

import asyncio
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.processes import free_port
from bench.sglang_server import SESSIONS, SGLang, sglang
from engine.agent import Agent, body, eventually
from router import House, routing

LONG = [{"role": "user", "content": "a long story"}]
CHAT = "/v1/chat/completions"
RESTART = {"down_after_s": 0.5, "retry_interval_s": 0.2, "ready_interval_s": 0.1}


async def workers(house: House) -> dict[str, Any]:
    """The router's workers, by URL."""
    listed = (await house.client.get("/workers")).raise_for_status().json()["workers"]
    return {worker["url"]: worker for worker in listed}


async def becomes(house: House, url: str, right: Callable[[Any], bool], what: str) -> None:
    """Waits until the router sees the worker so; it is None once it is gone."""
    seen: Any = None
    try:
        async with asyncio.timeout(60):
            while not right(seen := (await workers(house)).get(url)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never {what}: {seen}") from None


def aborted(engine: SGLang) -> float:
    """Requests it has aborted since it started."""
    found = re.findall(
        r"^sglang:num_aborted_requests_total(?:{.*})? (\S+)$", engine.ask("/metrics"), re.MULTILINE
    )
    return sum(map(float, found))


async def test_a_request_whose_client_left_is_off_the_engine_at_once(engine: SGLang) -> None:
    """The fixture's engines look for closed connections once a minute, so only an abort ends it."""
    before = aborted(engine)
    async with routing([engine.url]) as house:
        asking = asyncio.create_task(house.client.post(CHAT, json=body(LONG, tokens=4000)))
        await eventually(lambda: engine.running() == 1, "it runs")
        asking.cancel()
        await eventually(lambda: engine.running() == 0, "it was aborted", within_s=10)
        counts = await house.quiet()

    assert counts["in_flight"] == 0
    assert aborted(engine) == before + 1


async def test_a_weight_sync_holds_what_comes_and_keeps_what_runs(engine: SGLang) -> None:
    async with routing([engine.url]) as house:
        agent = Agent(house, "syncs")
        await agent.turn()
        running = asyncio.create_task(house.client.post(CHAT, json=body(LONG, tokens=600)))
        await eventually(lambda: engine.running() == 1, "it runs")

        paused = await house.client.post("/pause_generation", json={"mode": "retract"})
        assert paused.json()["success"], paused.text
        await becomes(house, engine.url, lambda w: w["state"] == "unready", "paused")
        held = asyncio.create_task(agent.turn())
        pool = house.router.driver.pools[0]
        await house.until(lambda: pool.look()[0].counts()["waiting"] == 1, "the turn is held")
        assert not running.done()

        continued = await house.client.post("/continue_generation", json={})
        assert continued.json()["success"], continued.text
        turn = await held
        answer = (await running).json()

    assert turn.prompt > agent.turns[0].prompt
    assert answer["usage"]["completion_tokens"] == 600
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_worker_that_is_deleted_finishes_its_work_and_its_programs_move(
    engines: list[SGLang],
) -> None:
    urls = [engine.url for engine in engines]
    async with routing(urls) as house:
        agents = [Agent(house, f"moves{number}") for number in range(2)]
        for agent in agents:
            await agent.turn()
        (mover,) = [agent for agent in agents if (await agent.seen())["worker"] == 0]
        long = asyncio.create_task(mover.turn(tokens=800))
        await eventually(lambda: engines[0].running() == 1, "it runs")

        deleted = await house.client.delete("/workers/0")
        assert deleted.status_code == 202
        await becomes(house, urls[0], lambda w: w["state"] == "draining", "draining")
        finished = await long
        assert (await mover.seen())["worker"] in (0, None)
        await mover.turn()
        there = (await mover.seen())["worker"]
        await becomes(house, urls[0], lambda w: w is None, "removed")

    assert finished.completion == 800
    assert there == 1


async def test_a_restarted_engine_is_drained_then_down_then_back_with_an_empty_cache(
    engine: SGLang, tmp_path: Path
) -> None:
    port = free_port()
    with ExitStack() as stack:
        start = sglang(tmp_path, *SESSIONS, port=port)
        first = await asyncio.to_thread(stack.enter_context, start)
        async with routing([first.url, engine.url], workers=RESTART) as house:
            agents = [Agent(house, f"restart{number}") for number in range(2)]
            for agent in agents:
                await agent.turn()
            (moved,) = [agent for agent in agents if (await agent.seen())["worker"] == 0]
            before = (await workers(house))[first.url]["report"]["incarnation"]

            story = body(LONG, tokens=1500, stream=True, program_id=moved.name)
            async with house.client.stream("POST", CHAT, json=story) as stream:
                lines = stream.aiter_lines()
                await anext(lines)
                first.process.signal(signal.SIGTERM)
                await becomes(house, first.url, lambda w: w["state"] != "ready", "drained")
                rest = [line async for line in lines if line]
            assert rest[-1] == "data: [DONE]"
            await eventually(lambda: not first.process.alive, "it ends", within_s=60)
            await becomes(house, first.url, lambda w: w["state"] == "unhealthy", "down")
            elsewhere = await moved.turn()
            assert (await moved.seen())["worker"] == 1
            assert elsewhere.cached < 10

            again = sglang(tmp_path, *SESSIONS, port=port)
            back = await asyncio.to_thread(stack.enter_context, again)
            await becomes(house, back.url, lambda w: w["state"] == "ready", "back")
            after = (await workers(house))[back.url]["report"]["incarnation"]
            newcomer = Agent(house, "newcomer")
            turn = await newcomer.turn()
            place = (await newcomer.seen())["worker"]

    assert after != before
    assert place == 0, "the empty worker has most room"
    assert turn.cached < 10
