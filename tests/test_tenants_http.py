"""Tenants, unknown models and continued answers through real HTTP."""

import asyncio
import json
from typing import Any

from faulty_worker import plain
from router import routing
from small_worker import generate, small_workers

SHARED: dict[str, Any] = {
    "policy": "adaptive",
    "tick_s": 0.05,
    "margin_min": 0.0,
    "growth_steps_new": 0.0,
    "growth_steps_paused": 0.0,
    "mark_running_above": 1.0,
}


async def test_a_tenant_that_asks_most_does_not_get_all_and_no_key_is_shown() -> None:
    async with (
        small_workers(1_000) as [worker],
        routing([worker.url], scheduling=SHARED, fairness={"by": "key"}) as house,
    ):

        async def ask(program: str, key: str, tokens: int) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            body = generate(program, tokens)
            answer = await house.client.post("/generate", json=body, headers=headers)
            return answer.status_code

        def held(program: str) -> bool:
            return house.router.driver.pools[0].why_held(program) is not None

        first = asyncio.create_task(ask("first", "secret-of-a", 1_000))
        asked = await worker.next()
        waiting = [asyncio.create_task(ask(f"a{n}", "secret-of-a", 490)) for n in range(3)]
        await house.until(lambda: all(held(f"a{n}") for n in range(3)))
        waiting.append(asyncio.create_task(ask("b0", "secret-of-b", 500)))
        await house.until(lambda: held("b0"))
        await house.client.post("/programs/release", json={"program_id": "first"})
        await asked.answer(completion=0)
        assert await first == 200
        together = [await worker.next(), await worker.next()]
        sizes = sorted(len(one.body["input_ids"]) for one in together)
        assert sizes == [490, 500], "one of each, though three of the shorter wait"
        listed = (await house.client.get("/programs")).json()
        assert listed["b0"]["tenant"] != listed["a0"]["tenant"] == listed["a1"]["tenant"]
        metrics = (await house.client.get("/metrics")).text
        assert (
            f'thunder_tenant_charged_tokens{{model="m",tenant="{listed["b0"]["tenant"]}"}} 500.0'
            in (metrics)
        )
        assert "secret" not in metrics + json.dumps(listed)
        for one in together:
            await one.answer(completion=0)
        for program in ("a0", "a1", "a2", "b0"):
            await house.client.post("/programs/release", json={"program_id": program})
        await (await worker.next()).answer(completion=0)
        await (await worker.next()).answer(completion=0)
        assert await asyncio.gather(*waiting) == [200] * 4
        await house.quiet()


async def test_a_model_that_nobody_serves_is_a_404_in_each_apis_own_form() -> None:
    async with (
        small_workers(1_000) as [worker],
        routing([worker.url], workers={"strict_models": True}) as house,
    ):
        body = {"model": "gpt-9", "messages": [{"role": "user", "content": "Hello."}]}
        answer = await house.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 404
        assert answer.json()["error"] == {
            "message": "no worker serves the model 'gpt-9'",
            "type": "not_found_error",
            "param": None,
            "code": "model_not_found",
        }
        answer = await house.client.post("/v1/messages", json=body | {"max_tokens": 5})
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"
        assert not worker.asked
        await house.quiet()


async def test_who_continues_an_answer_is_the_program_that_got_it() -> None:
    hints = {"weak_hints": ["previous_response_id"]}
    async with small_workers(1_000) as [worker], routing([worker.url], identity=hints) as house:

        async def turn(number: int, **said: Any) -> None:
            body = {"model": "m", "input": "Hello.", **said}
            answer = asyncio.create_task(house.client.post("/v1/responses", json=body))
            usage = {
                "input_tokens": 10 * number,
                "output_tokens": 1,
                "total_tokens": 10 * number + 1,
            }
            whole = {"id": f"resp_{number}", "object": "response", "status": "completed"}
            asked = await worker.next()
            assert asked.body.get("previous_response_id") == said.get("previous_response_id")
            await asked.send(plain(json.dumps(whole | {"output": [], "usage": usage}).encode()))
            assert (await answer).status_code == 200

        await turn(1, program_id="p")
        await turn(2, previous_response_id="resp_1")
        await turn(3, previous_response_id="resp_2")
        listed = (await house.client.get("/programs")).json()
        assert [(name, one["step_count"], one["context_len"]) for name, one in listed.items()] == [
            ("p", 3, 31)
        ]
        await house.quiet()
