"""The known faults of every public implementation, one by one, through real HTTP.

Numbers are those of the fault list: capacities and programs in tokens, sizes exact because the
prompts are token ids. The scheduler's own tests hold the same faults without the network.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from faulty_worker import plain
from router import House, routing
from small_worker import Asked, SmallWorker, crlf, generate, small_workers, streamed

QUICK: dict[str, Any] = {"policy": "adaptive", "tick_s": 0.05}


def post(house: House, program: str | None, tokens: int, **fields: Any) -> asyncio.Task[Any]:
    """Sends a `/generate` of exactly so many tokens; the task is its answer."""
    body = generate(program, tokens, **fields)
    return asyncio.create_task(house.client.post("/generate", json=body))


async def turn(house: House, worker: SmallWorker, program: str, tokens: int) -> None:
    """One whole turn of a program."""
    answer = post(house, program, tokens)
    await (await worker.next()).answer()
    assert (await answer).status_code == 200


async def shown(house: House, program: str) -> dict[str, Any]:
    found: dict[str, Any] = (await house.client.get(f"/programs/{program}")).json()
    return found


async def held(house: House, program: str) -> str:
    """Waits until a request of the program is held; says why it is."""
    pools = house.router.driver.pools
    await house.until(lambda: any(pool.why_held(program) for pool in pools))
    return str((await shown(house, program))["held_because"])


async def leave(house: House, answer: asyncio.Task[Any], program: str) -> None:
    """The client of a held request leaves; returns once the router has noticed."""
    answer.cancel()
    await asyncio.wait([answer])
    pools = house.router.driver.pools
    await house.until(lambda: not any(pool.why_held(program) for pool in pools))


@asynccontextmanager
async def scheduled(
    *tokens: int | None, ranks: int = 1, workers: Any = None, **scheduling: Any
) -> AsyncIterator[tuple[House, list[SmallWorker]]]:
    """A router with the adaptive policy over small workers."""
    section, about = QUICK | scheduling, workers or {}
    async with small_workers(*tokens, ranks=ranks) as small:
        urls = [worker.url for worker in small]
        ready = len(small) * ranks
        async with routing(urls, ready=ready, scheduling=section, workers=about) as house:
            yield house, small


# --- 2 and 3: every exit ends the request, and the program keeps its size -----------------------

USAGE = b'{"text":"x","meta_info":{"finish_reason":null}}'


async def a_500(asked: Asked) -> None:
    await asked.send(plain(b'{"error": {"message": "bug"}}', b"500 Internal Server Error"))


async def a_400(asked: Asked) -> None:
    await asked.send(plain(b'{"error": {"message": "no"}}', b"400 Bad Request"))


async def a_reset_before_the_head(asked: Asked) -> None:
    await asked.reset()


async def a_reset_in_the_body(asked: Asked) -> None:
    await asked.reset(plain(b"x" * 100)[:-50])


async def a_reset_mid_stream(asked: Asked) -> None:
    await asked.reset(streamed(USAGE, ends=False))


async def a_streamed_error(asked: Asked) -> None:
    await asked.send(streamed(b'{"error": {"message": "overloaded", "code": 503}}', b"[DONE]"))


async def a_stream_without_usage(asked: Asked) -> None:
    await asked.send(streamed(USAGE, b"[DONE]"))


async def a_stream_with_crlf(asked: Asked) -> None:
    await asked.send(crlf(USAGE, b"[DONE]"))


async def no_http_at_all(asked: Asked) -> None:
    await asked.send(b"\x00\x01\x02 what\r\n\r\n")


EXITS = [
    a_500,
    a_400,
    a_reset_before_the_head,
    a_reset_in_the_body,
    a_reset_mid_stream,
    a_streamed_error,
    a_stream_without_usage,
    a_stream_with_crlf,
    no_http_at_all,
]


@pytest.mark.parametrize("stream", [False, True])
async def test_2_and_3_every_exit_ends_the_request_and_keeps_the_size(stream: bool) -> None:
    async with scheduled(100_000) as (house, [worker]):
        for ends in EXITS:
            program = ends.__name__
            await turn(house, worker, program, 300)
            answer = post(house, program, 310, stream=stream)
            await ends(await worker.next())
            # The router may try a request again that its worker cannot have begun.
            await house.until(lambda answer=answer: answer.done() or worker.asked)
            if worker.asked:
                await (await worker.next()).reset()
            await asyncio.wait([answer])
            assert isinstance(answer.exception(), (httpx.RemoteProtocolError, type(None))), program
            await house.quiet()
            view = await shown(house, program)
            assert (view["status"], view["in_flight"]) == ("acting", 0), program
            assert 310 <= view["context_len"] <= 325, program
        assert (await house.quiet())["programs"] == len(EXITS)


@pytest.mark.parametrize("phase", ["held", "before the head", "mid-stream", "whole answer"])
async def test_2_a_client_that_leaves_in_any_phase_ends_its_request(phase: str) -> None:
    async with scheduled(1000) as (house, [worker]):
        await turn(house, worker, "p", 300)
        other = None
        if phase == "held":
            other = post(house, "other", 690)
            await worker.next()
        stream = phase != "whole answer"
        answer = post(house, "p" if phase != "held" else "late", 310, stream=stream)
        if phase == "held":
            await held(house, "late")
        else:
            asked = await worker.next()
            if phase == "mid-stream":
                await asked.wire.send(streamed(USAGE, ends=False))
                await asyncio.sleep(0)
        answer.cancel()
        await asyncio.wait([answer])
        if other is not None:
            other.cancel()
            await asyncio.wait([other])
        await house.quiet()
        assert (await shown(house, "p"))["context_len"] >= 300


async def test_2_a_worker_that_takes_no_connection_costs_one_try_and_nothing_else() -> None:
    async with scheduled(1000, 1000, workers={"down_after_s": 0.2}) as (house, workers):
        homes = {}
        for n in range(2):
            answer = post(house, f"p{n}", 100)
            await house.until(lambda: workers[0].asked or workers[1].asked)
            home = workers[0] if workers[0].asked else workers[1]
            homes[f"p{n}"] = home
            await (await home.next()).answer()
            await answer
        dead, alive = homes["p0"], homes["p1"]
        assert dead is not alive
        await dead.__aexit__()
        answer = post(house, "p0", 120)
        await (await alive.next()).answer()
        assert (await answer).status_code == 200
        await house.quiet()


# --- 4, 5, 6: nobody who does nothing is in the way ---------------------------------------------


async def test_4_a_cancelled_queued_request_blocks_nobody() -> None:
    async with scheduled(1000) as (house, [worker]):
        first = post(house, "first", 600)
        asked = await worker.next()
        big = post(house, "big", 900)
        await held(house, "big")
        await leave(house, big, "big")
        await asked.answer()
        await first
        await house.client.post("/programs/release", json={"program_id": "first"})
        newcomer = post(house, "new", 900)
        await (await worker.next()).answer()
        assert (await newcomer).status_code == 200
        assert (await house.client.get("/programs/big")).status_code == 404
        await house.quiet()


async def test_5_an_idle_paused_program_takes_no_room() -> None:
    async with scheduled(1000) as (house, [worker]):
        await turn(house, worker, "idle", 800)
        await house.client.post("/programs/idle/pause")
        newcomer = post(house, "new", 850)
        await (await worker.next()).answer()
        assert (await newcomer).status_code == 200
        assert (await shown(house, "idle"))["state"] == "paused"


async def test_6_programs_that_are_never_released_do_not_fill_the_cluster() -> None:
    leases: dict[str, Any] = {"lease_s": 0.05, "lease_min_s": 0.1}
    async with scheduled(1000, **leases) as (house, [worker]):
        for n in range(8):
            answer = post(house, f"p{n}", 400)
            await (await worker.next()).answer()
            assert (await answer).status_code == 200
        assert (await house.quiet())["programs"] == 8


# --- 7, 17: several requests at once ------------------------------------------------------------


async def test_7_a_program_reasons_until_the_last_of_its_requests_ends() -> None:
    async with scheduled(2000) as (house, [worker]):
        large, small = post(house, "p", 800), None
        first = await worker.next()
        small = post(house, "p", 80)
        second = await worker.next()
        await second.answer(completion=40)
        await small
        view = await shown(house, "p")
        assert (view["status"], view["in_flight"]) == ("reasoning", 1)
        [seat] = (await house.client.get("/health")).json()["workers"]
        assert 800 <= seat["charged_tokens"] <= 1000
        await first.answer(completion=20)
        await large
        view = await shown(house, "p")
        assert (view["status"], view["context_len"]) == ("acting", 820)


async def test_17_eight_requests_of_one_program_progress_and_one_release_ends_it() -> None:
    async with scheduled(10_000) as (house, [worker]):
        answers = [post(house, "group", 100) for _ in range(8)]
        asked = [await worker.next() for _ in range(8)]
        await house.client.post("/programs/release", json={"program_id": "group"})
        for one in asked:
            await one.answer()
        assert [answer.status_code for answer in await asyncio.gather(*answers)] == [200] * 8
        assert (await house.quiet())["programs"] == 0


# --- 8, 9, 11, 20: bounds, and their limits -----------------------------------------------------


async def test_8_a_large_program_is_served_within_the_bound_among_small_ones() -> None:
    async with scheduled(1000, reservation_s=0.3) as (house, [worker]):
        small = iter(f"small-{n}" for n in range(10_000))
        served = 0
        large = None
        alive: dict[str, asyncio.Task[Any]] = {}
        async with asyncio.timeout(20):
            while large is None or not large.done():
                while len(alive) < 2:
                    name = next(small)
                    alive[name] = post(house, name, 300)
                asked = await worker.next()
                if large is None:
                    large = post(house, "large", 700)
                    await held(house, "large")
                program = "large" if len(asked.body["input_ids"]) == 700 else None
                await asked.answer()
                if program == "large":
                    await large
                    break
                finished = [name for name, task in alive.items() if task.done()] or [
                    next(iter(alive))
                ]
                for name in finished:
                    await alive.pop(name)
                    served += 1
                    await house.client.post("/programs/release", json={"program_id": name})
        assert large is not None
        assert large.result().status_code == 200
        assert served > 2, "small ones were served meanwhile"
        for task in alive.values():
            task.cancel()
        await asyncio.wait([*alive.values()])


async def test_9_a_program_larger_than_every_worker_is_a_413_and_evicts_nobody() -> None:
    async with scheduled(1000) as (house, [worker]):
        await turn(house, worker, "a", 400)
        await turn(house, worker, "b", 400)
        answer = await post(house, "huge", 1200)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "context_too_large"
        assert [(await shown(house, name))["state"] for name in "ab"] == ["active", "active"]
        await house.quiet()


async def test_11_a_newcomer_that_tries_again_does_not_pass_others() -> None:
    async with scheduled(1000) as (house, [worker]):
        first = post(house, "first", 900)
        asked = await worker.next()
        x = post(house, "x", 800)
        await held(house, "x")
        y = post(house, "y", 800)
        await held(house, "y")
        await leave(house, x, "x")
        x = post(house, "x", 800)
        await held(house, "x")
        await asked.answer()
        await first
        await house.client.post("/programs/release", json={"program_id": "first"})
        await (await worker.next()).answer()
        assert (await y).status_code == 200
        assert not x.done()
        x.cancel()
        await asyncio.wait([x])


async def test_20_a_hold_beyond_its_limit_is_a_429_and_nobody_is_forced_in() -> None:
    async with scheduled(1000, hold_limit_s=0.2) as (house, [worker]):
        first = post(house, "first", 900)
        asked = await worker.next()
        late = await post(house, "late", 900)
        assert late.status_code == 429
        assert float(late.headers["retry-after"]) > 0
        assert not worker.asked
        await asked.answer()
        await first
        await house.quiet()


# --- 10, 14, 18, 19: workers --------------------------------------------------------------------


async def test_10_a_restored_program_goes_back_where_its_cache_is() -> None:
    async with scheduled(1000, 1000) as (house, workers):
        answer = post(house, "p", 150)
        await house.until(lambda: workers[0].asked or workers[1].asked)
        home, other = workers if workers[0].asked else reversed(workers)
        await (await home.next()).answer()
        await answer
        await house.client.post("/programs/p/pause")
        turn_again = post(house, "p", 170)
        await held(house, "p")
        await house.client.post("/programs/p/restore")
        await (await home.next()).answer()
        assert (await turn_again).status_code == 200
        assert not other.asked


async def test_14_every_dp_rank_has_a_budget_of_its_own() -> None:
    async with scheduled(1000, ranks=2) as (house, [worker]):
        answers = [post(house, name, 850) for name in "ab"]
        asked = [await worker.next() for _ in range(2)]
        assert sorted(one.rank for one in asked) == [0, 1]
        third = post(house, "c", 850)
        await held(house, "c")
        for one in asked:
            await one.answer()
        await asyncio.gather(*answers)
        third.cancel()
        await asyncio.wait([third])
        await house.quiet()


async def test_18_a_weight_sync_that_never_ends_is_ended_by_the_watchdog() -> None:
    async with scheduled(1000, weight_sync_timeout_s=0.3) as (house, [worker]):
        await house.client.post("/weight_sync/begin")
        answer = post(house, "p", 100)
        assert "weights" in await held(house, "p")
        await (await worker.next()).answer()
        assert (await answer).status_code == 200


async def test_19_when_a_worker_vanishes_what_waits_for_it_moves_at_once() -> None:
    async with scheduled(1000, 1000, workers={"down_after_s": 0.2}) as (house, workers):
        answer = post(house, "p", 150)
        await house.until(lambda: workers[0].asked or workers[1].asked)
        home, other = workers if workers[0].asked else reversed(workers)
        await (await home.next()).answer()
        await answer
        running = post(house, "p", 170)
        await home.next()
        await home.__aexit__()
        # What its worker cannot have begun is tried on another, the rest is a 502 at once.
        await house.until(lambda: running.done() or other.asked)
        if other.asked:
            await (await other.next()).answer()
        assert (await running).status_code in (200, 502)
        again = post(house, "p", 180)
        await (await other.next()).answer()
        assert (await again).status_code == 200
        await house.until(lambda: len([*house.router.driver.pools[0].seats]) == 1)
        view = await shown(house, "p")
        assert (view["backend"], view["context_len"]) == (other.url, 190)
        await house.quiet()


# --- 13, 15, 16: what is not known, what is not text, what is not ours --------------------------


async def test_13_an_unknown_capacity_means_plain_service() -> None:
    async with scheduled(None) as (house, [worker]):
        answers = [post(house, f"p{n}", 5_000) for n in range(12)]
        for _ in range(12):
            await (await worker.next()).answer()
        assert {answer.status_code for answer in await asyncio.gather(*answers)} == {200}
        await house.quiet()


async def test_15_a_megabyte_of_base64_is_not_a_megabyte_of_text() -> None:
    picture = base64.b64encode(b"\x89PNG" + b"x" * 750_000).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
    text = {"type": "text", "text": "What is on it?"}
    body = {
        "model": "m",
        "program_id": "p",
        "messages": [{"role": "user", "content": [text, image]}],
    }
    async with scheduled(10_000) as (house, [worker]):
        answer = asyncio.create_task(house.client.post("/v1/chat/completions", json=body))
        asked = await worker.next()
        assert (await shown(house, "p"))["status"] == "reasoning"
        said = {"choices": [], "usage": {"prompt_tokens": 1100, "completion_tokens": 5}}
        await asked.send(plain(json.dumps(said).encode()))
        assert (await answer).status_code == 200
        assert (await shown(house, "p"))["context_len"] == 1105


async def test_16_headers_pass_and_no_one_gets_a_usage_chunk_unasked() -> None:
    body = {"model": "m", "stream": True, "program_id": "p", "messages": []}
    delta = b'{"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}'
    usage = b'{"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
    async with scheduled(1000) as (house, [worker]):
        headers = {"Authorization": "Bearer mine", "X-Custom": "kept"}
        answer = asyncio.create_task(
            house.client.post("/v1/chat/completions", json=body, headers=headers)
        )
        asked = await worker.next()
        assert asked.seen.header(b"authorization") == b"Bearer mine"
        assert asked.seen.header(b"x-custom") == b"kept"
        assert "program_id" not in asked.body
        assert asked.body["stream_options"] == {"include_usage": True}
        await asked.send(streamed(delta, usage, b"[DONE]"))
        text = (await answer).text
        assert text == f"data: {delta.decode()}\n\ndata: [DONE]\n\n"
        assert (await shown(house, "p"))["context_len"] == 9
