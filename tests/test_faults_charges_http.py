"""Faults 1 and 12 of the list, and releases that come early, late and twice, through real HTTP."""

import asyncio
import json
from typing import Any

from faulty_worker import plain
from small_worker import Asked
from test_faults_http import held, post, scheduled, shown, turn

EXACT: dict[str, Any] = {
    "margin_min": 0.0,
    "growth_steps_new": 0.0,
    "growth_steps_paused": 0.0,
    "mark_running_above": 1.0,
}


async def test_1_an_overflow_pauses_as_few_as_cover_it() -> None:
    async with scheduled(100, **EXACT) as (house, [worker]):
        answers = [post(house, f"p{n}", 10) for n in range(10)]
        asked = [await worker.next() for _ in range(10)]
        for one in asked:
            await one.answer(completion=1)
        assert {answer.status_code for answer in await asyncio.gather(*answers)} == {200}
        await house.quiet()
        paused = (await house.client.get("/programs?state=paused")).json()
        active = (await house.client.get("/programs?state=active")).json()
        assert (len(paused), len(active)) == (1, 9), "11 cover an overflow of 10"


async def test_12_a_prefix_that_ten_programs_share_is_charged_once() -> None:
    async def answer(asked: Asked, cached: int) -> None:
        usage = {
            "prompt_tokens": 1_000,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        await asked.send(plain(json.dumps({"choices": [], "usage": usage}).encode()))

    async with scheduled(3_000, **EXACT) as (house, [worker]):

        def ask(program: str) -> asyncio.Task[Any]:
            system = {"role": "system", "content": "share " * 600}
            own = {"role": "user", "content": f"{program} " * 133}
            body = {"model": "m", "program_id": program, "messages": [system, own]}
            return asyncio.create_task(house.client.post("/v1/chat/completions", json=body))

        for number in range(10):
            first = ask(f"p{number}")
            await answer(await worker.next(), cached=0 if number == 0 else 900)
            assert (await first).status_code == 200
        assert len((await house.client.get("/programs?state=active")).json()) == 10
        again = [ask(f"p{number}") for number in range(10)]
        asked = [await worker.next() for _ in range(10)]
        for one in asked:
            await answer(one, cached=1_000)
        assert {one.status_code for one in await asyncio.gather(*again)} == {200}
        await house.quiet()
        [seat] = (await house.client.get("/health")).json()["workers"]
        assert seat["charged_tokens"] == 900 + 10 * 100


async def test_a_program_released_while_its_request_is_held_is_still_answered() -> None:
    async with scheduled(1_000) as (house, [worker]):
        first = post(house, "first", 900)
        asked = await worker.next()
        waiting = post(house, "p", 900)
        await held(house, "p")
        release = await house.client.post("/programs/release", json={"program_id": "p"})
        assert release.json() == {"program_id": "p", "released": True}
        assert (await house.client.get("/programs/p")).status_code == 404
        await house.client.post("/programs/release", json={"program_id": "first"})
        await asked.answer()
        await (await worker.next()).answer()
        assert [one.status_code for one in (await first, await waiting)] == [200, 200]
        assert (await house.quiet())["programs"] == 0


async def test_releases_at_once_and_again_end_a_program_once() -> None:
    async with scheduled(1_000) as (house, [worker]):
        await turn(house, worker, "p", 100)

        async def release() -> bool:
            answer = await house.client.post("/programs/release", json={"program_id": "p"})
            return bool(answer.json()["released"])

        assert sorted(await asyncio.gather(*(release() for _ in range(8)))) == [False] * 7 + [True]
        assert not await release()
        assert (await house.quiet())["programs"] == 0


async def test_a_name_used_again_is_a_new_program_whatever_is_left_of_the_old_one() -> None:
    async with scheduled(1_000) as (house, [worker]):
        old = post(house, "p", 200)
        asked_old = await worker.next()
        before = (await shown(house, "p"))["generation"]
        await house.client.post("/programs/release", json={"program_id": "p"})
        new = post(house, "p", 100)
        asked_new = await worker.next()
        await asked_new.answer(completion=5)
        await new
        await asked_old.answer(completion=50)
        await old
        await house.quiet()
        view = await shown(house, "p")
        assert view["generation"] > before
        assert (view["context_len"], view["step_count"]) == (105, 1)
        [seat] = (await house.client.get("/health")).json()["workers"]
        assert seat["charged_tokens"] == 105
