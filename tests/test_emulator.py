"""The emulated worker behaves as a worker does: caches, queues, streams, pauses, forgets."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from emulated import chat, emulated, events
from thunder_router.emulator import EmulatorOptions, running
from thunder_router.errors import ConfigError

CHAT = "/v1/chat/completions"


def cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


async def metric(client: httpx.AsyncClient, pattern: str) -> float:
    found = re.search(rf"^{pattern}(?:{{.*}})? (\S+)$", (await client.get("/metrics")).text, re.M)
    assert found is not None, pattern
    return float(found[1])


async def loads(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return (await client.get("/v1/loads")).json()["loads"]  # type: ignore[no-any-return]


async def until_running(client: httpx.AsyncClient, running: int, waiting: int = 0) -> None:
    """Returns once the worker says so."""
    while True:
        items = await loads(client)
        seen = tuple(
            sum(one[name] for one in items) for name in ("num_running_reqs", "num_waiting_reqs")
        )
        if seen == (running, waiting):
            return
        await asyncio.sleep(0.002)


def turns(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return {"messages": messages, "max_tokens": 40}


async def test_a_growing_conversation_finds_the_turn_before_in_the_cache() -> None:
    async with emulated() as client:
        first = await client.post(CHAT, json=turns("once " * 400))
        answer = first.json()["choices"][0]["message"]["content"]
        second = await client.post(CHAT, json=turns("once " * 400, answer, "and then?"))
        other = await client.post(CHAT, json=turns("twice " * 400))
    whole = first.json()["usage"]["total_tokens"]
    assert (cached(first), cached(other)) == (0, 0)
    # All of it but for the last block that was not yet full.
    assert whole - 64 <= cached(second) <= whole


async def test_programs_share_a_system_prompt_and_nothing_else() -> None:
    system = {"role": "system", "content": "rules " * 400}

    def ask(text: str) -> dict[str, Any]:
        return {"messages": [system, {"role": "user", "content": text}], "max_tokens": 5}

    async with emulated() as client:
        await client.post(CHAT, json=ask("a " * 500))
        second = await client.post(CHAT, json=ask("b " * 500))
    shared = len("rules " * 400) // 4
    assert shared - 64 <= cached(second) <= shared + 16


async def test_token_ids_count_exactly_and_go_on_from_the_answers_ids() -> None:
    async with emulated() as client:

        async def generate(ids: list[int]) -> dict[str, Any]:
            sampling = {"max_new_tokens": 64, "ignore_eos": True}
            body = {"input_ids": ids, "sampling_params": sampling}
            return (await client.post("/generate", json=body)).json()  # type: ignore[no-any-return]

        first = await generate(list(range(640)))
        ids = list(range(640)) + first["output_ids"]
        second = await generate([*ids, 5, 5])
        again = await generate([*ids, 5, 5])
    assert first["meta_info"]["prompt_tokens"] == 640
    # 704 tokens but for the last, whose KV was never written.
    assert second["meta_info"]["cached_tokens"] == 703
    assert again["meta_info"]["cached_tokens_details"] == {"device": 704, "host": 0}


# A prompt of 1,000 tokens is found in whole blocks of 64: the 960 below are a real worker's 999.


async def test_what_the_device_dropped_comes_back_from_the_host() -> None:
    def ask(first: int) -> dict[str, Any]:
        ids = list(range(first, first + 1_000))
        return {"input_ids": ids, "sampling_params": {"max_new_tokens": 4}}

    async with emulated(capacity_tokens=4096, hicache_ratio=2.0) as client:
        for program in range(6):
            await client.post("/generate", json=ask(program * 10_000))
        back = (await client.post("/generate", json=ask(0))).json()["meta_info"]
        loaded = await metric(client, "sglang:load_back_tokens_total")
        host = await metric(client, "sglang:hicache_host_used_tokens")
    assert back["cached_tokens_details"] == {"device": 0, "host": 960}
    assert loaded >= 960
    assert host >= 6_000


async def test_a_closed_session_is_forgotten_before_an_older_open_one() -> None:
    def ask(program: int, length: int = 1_000) -> dict[str, Any]:
        ids = list(range(program * 10_000, program * 10_000 + length))
        sampling = {"max_new_tokens": 4}
        return {"input_ids": ids, "session_id": f"p{program}", "sampling_params": sampling}

    for close in (False, True):
        async with emulated(capacity_tokens=4096, session_radix=True) as client:
            for program in range(3):
                await client.post("/generate", json=ask(program))
            if close:
                closed = await client.post("/close_session", json={"session_id": "p2"})
                assert (closed.status_code, closed.text) == (200, "")
            await client.post("/generate", json=ask(3, 1_500))
            revisit = (await client.post("/generate", json=ask(2))).json()["meta_info"]
        assert revisit["cached_tokens"] == (0 if close else 960)


async def test_sessions_open_once() -> None:
    async with emulated() as client:
        body = {"capacity_of_str_len": 100, "session_id": "s"}
        first = await client.post("/open_session", json=body)
        second = await client.post("/open_session", json=body)
        await client.post("/close_session", json={"session_id": "s"})
        third = await client.post("/open_session", json=body)
        unnamed = await client.post("/open_session", json={"capacity_of_str_len": 100})
    assert (first.status_code, first.json()) == (200, "s")
    assert (second.status_code, third.status_code) == (400, 200)
    assert len(unnamed.json()) == 32


async def test_stated_tokens_overrule_the_text() -> None:
    stated = {"prompt_tokens": 5_000, "output_tokens": 77}
    async with emulated() as client:
        answer = await client.post(CHAT, json=chat("short", emulate=stated))
        bad = await client.post(CHAT, json=chat("short", emulate={"output_tokens": 0}))
    usage = answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5_000, 77)
    assert bad.status_code == 400
    assert "emulated" not in answer.json()


async def test_what_is_stated_may_travel_in_metadata_and_ask_for_the_engines_time() -> None:
    stated = json.dumps({"output_tokens": 77, "timings": True})
    async with emulated() as client:
        answer = await client.post(CHAT, json=chat("short", metadata={"emulate": stated}))
        bad = await client.post(CHAT, json=chat("short", metadata={"emulate": "{"}))
        other = await client.post(CHAT, json=chat("short", metadata={"emulate": "[1]"}))
        plain = await client.post(CHAT, json=chat("short", metadata={"user": "u"}, max_tokens=3))
    assert answer.json()["usage"]["completion_tokens"] == 77
    # 77 iterations of 6.5 ms at least.
    assert 0.5 < answer.json()["emulated"]["engine_s"] < 10
    assert [bad.status_code, other.status_code, plain.status_code] == [400, 400, 200]


async def test_drawn_answers_depend_on_seed_and_prompt_alone() -> None:
    async def draw(seed: int, text: str) -> tuple[Any, Any]:
        async with emulated(seed=seed) as client:
            answer = (await client.post(CHAT, json=chat(text))).json()
        return answer["usage"]["completion_tokens"], answer["choices"][0]["message"]["content"]

    assert await draw(1, "same") == await draw(1, "same")
    assert await draw(1, "same") != await draw(2, "same")
    assert await draw(1, "same") != await draw(1, "other")


async def test_a_prefix_of_a_rid_aborts_all_that_begin_so() -> None:
    async with emulated(speed=1.0) as client:
        asks = [
            asyncio.create_task(
                client.post(CHAT, json=chat("hi", max_tokens=5_000, ignore_eos=True, rid=rid))
            )
            for rid in ("prog-1", "prog-10", "prog-2")
        ]
        await until_running(client, 3)
        again = await client.post(CHAT, json=chat("hi", rid="prog-2"))
        await client.post("/abort_request", json={"rid": "prog-1"})
        first, tenth = await asyncio.gather(*asks[:2])
        await until_running(client, 1)
        assert not asks[2].done()
        await client.post("/abort_request", json={"abort_all": True})
        last = (await asks[2]).json()
    assert again.status_code == 400
    assert "Duplicate request ID detected: prog-2" in again.json()["message"]
    for answer in (first, tenth):
        choice = answer.json()["choices"][0]
        assert (answer.status_code, choice["finish_reason"]) == (200, "abort")
        assert answer.json()["usage"]["completion_tokens"] < 5_000
    assert last["choices"][0]["finish_reason"] == "abort"


async def test_a_streaming_client_that_leaves_frees_its_request_at_once() -> None:
    async with emulated(speed=1.0) as client:
        body = chat("hi", max_tokens=5_000, ignore_eos=True, stream=True)
        async with client.stream("POST", CHAT, json=body) as answer:
            await anext(answer.aiter_lines())
            await until_running(client, 1)
        await until_running(client, 0)


async def test_a_waiting_client_that_leaves_is_noticed_at_the_next_poll() -> None:
    # A pool and a length that would keep the request running beyond this test's time.
    async with emulated(speed=10.0, capacity_tokens=400_000) as client:
        body = chat("hi", max_tokens=200_000, ignore_eos=True)
        task = asyncio.create_task(client.post(CHAT, json=body))
        await until_running(client, 1)
        task.cancel()
        await until_running(client, 0)
    assert task.cancelled()


async def test_a_paused_worker_is_not_ready_stands_still_and_goes_on() -> None:
    async with emulated(speed=200.0) as client:
        pause = await client.post("/pause_generation", json={"mode": "in_place"})
        ready = await client.get("/ready")
        health = await client.get("/health")
        before = await loads(client)
        held = asyncio.create_task(client.post(CHAT, json=chat("hi", max_tokens=3)))
        frozen = await loads(client)
        await client.get("/health")
        assert not held.done()
        go_on = await client.post("/continue_generation", json={})
        answer = await held
        after = await loads(client)
        back = await client.get("/ready")
        odd = await client.post("/pause_generation", json={"mode": "gently"})
    assert pause.json() == {"message": "Generation paused successfully.", "status": "ok"}
    assert (ready.status_code, health.status_code, back.status_code) == (503, 503, 200)
    assert frozen == before, "a paused worker's loads keep their old numbers and instant"
    assert go_on.json()["status"] == "ok"
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert after[0]["timestamp"] > before[0]["timestamp"]
    assert odd.status_code == 400


async def test_an_aborting_pause_ends_what_is_in_flight() -> None:
    async with emulated(speed=1.0) as client:
        body = chat("hi", max_tokens=5_000, ignore_eos=True)
        task = asyncio.create_task(client.post(CHAT, json=body))
        await until_running(client, 1)
        await client.post("/pause_generation", json={})
        answer = (await task).json()
    assert answer["choices"][0]["finish_reason"] == "abort"


async def test_loads_tell_use_and_queue_and_flush_wants_quiet() -> None:
    async with emulated(speed=1.0, capacity_tokens=2048, max_queued=1) as client:
        body = chat("x" * 4_000, max_tokens=900, ignore_eos=True)
        first = asyncio.create_task(client.post(CHAT, json=body))
        await until_running(client, 1)
        second = asyncio.create_task(client.post(CHAT, json=body))
        await until_running(client, 1, 1)
        refused = await client.post(CHAT, json=body)
        streamed = await client.post(CHAT, json={**body, "stream": True})
        busy = (await loads(client))[0]
        queued = await metric(client, "sglang:num_queue_reqs")
        flushed = await client.post("/flush_cache")
        await client.post("/abort_request", json={"abort_all": True})
        await asyncio.gather(first, second)
        idle = (await loads(client))[0]
        again = await client.post("/flush_cache")
        empty = await metric(client, "sglang:kv_evictable_tokens")
    assert refused.status_code == 503
    assert refused.json() == {
        "object": "error",
        "message": "The request queue is full.",
        "type": "503",
        "param": None,
        "code": 503,
    }
    recorded = Path(__file__).parent / "captures" / "emulator" / "err_queue_full_stream.body"
    assert (streamed.status_code, streamed.text) == (200, recorded.read_text())
    assert busy["num_used_tokens"] > 1_000
    assert busy["num_total_tokens"] > busy["num_used_tokens"]
    assert busy["queues"]["waiting"] == queued == 1
    assert (flushed.status_code, again.status_code) == (400, 200)
    assert idle["num_used_tokens"] == 0, "cache between turns is not in use"
    assert empty == 0


async def test_ranks_are_served_in_turn_unless_one_is_named() -> None:
    async with emulated(dp_size=2) as client:
        for _ in range(4):
            await client.post(CHAT, json=chat("hi", max_tokens=1))
        await client.post(CHAT, json=chat("hi", max_tokens=1, routed_dp_rank=1))
        headers = {"X-Data-Parallel-Rank": "1"}
        await client.post(CHAT, json=chat("hi", max_tokens=1, routed_dp_rank=0), headers=headers)
        beyond = await client.post(CHAT, json=chat("hi", routed_dp_rank=2))
        info = (await client.get("/server_info")).json()
        ranks = await loads(client)
        one = (await client.get("/v1/loads?dp_rank=1")).json()["loads"]
        none = (await client.get("/v1/loads?dp_rank=9")).json()["loads"]
        odd = await client.get("/v1/loads?include=nope")
        page = (await client.get("/metrics")).text
    decoded = [
        float(value)
        for value in re.findall(r"realtime_tokens_total{.*mode=\"decode\".*} (\S+)", page)
    ]
    assert decoded == [2, 4]
    assert beyond.status_code == 400
    assert (info["dp_size"], len(info["internal_states"]), len(ranks)) == (2, 2, 2)
    assert [item["dp_rank"] for item in one] == [1]
    assert none == []
    assert odd.status_code == 500, "as the real one, whatever one may think of it"
    assert len(re.findall(r'^sglang:num_running_reqs{.*dp_rank="[01]".*}', page, re.M)) == 2


AUTH = {
    "/v1/models": ("user",),
    "/server_info": ("user",),
    "/v1/loads": ("user",),
    "/flush_cache": ("admin",),
    "/metrics": ("none", "user", "admin"),
    "/ready": ("none", "user", "admin"),
}


async def test_each_key_opens_what_it_opens_on_a_real_worker() -> None:
    async with emulated(api_key="user", admin_api_key="admin") as client:
        for path, keys in AUTH.items():
            for key in ("none", "user", "admin"):
                headers = {} if key == "none" else {"Authorization": f"Bearer {key}"}
                answer = await client.get(path, headers=headers)
                assert (path, key, answer.status_code) == (path, key, 200 if key in keys else 401)
                if answer.status_code == 401:
                    assert answer.json() == {"error": "Unauthorized"}


async def test_a_script_answers_by_the_last_message_and_runs_out(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(
        json.dumps(
            {"match": "fix.*bug", "tool_calls": [{"name": "bash", "arguments": {"c": "ls"}}]}
        )
        + "\n\n"
        + json.dumps({"match": "a\\.py", "content": "All done.", "times": 1})
        + "\n"
    )
    async with emulated(script=script) as client:
        call = (await client.post(CHAT, json=chat("please fix the bug"))).json()["choices"][0]
        streamed = events((await client.post(CHAT, json=chat("fix a bug", stream=True))).text)
        messages = [
            {"role": "user", "content": "please fix the bug"},
            call["message"],
            {"role": "tool", "content": "a.py\nb.py", "tool_call_id": "x"},
        ]
        done = (await client.post(CHAT, json={"messages": messages})).json()
        drawn = (await client.post(CHAT, json={"messages": messages})).json()
    function = call["message"]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("bash", {"c": "ls"})
    assert (call["finish_reason"], call["message"]["content"]) == ("tool_calls", None)
    deltas = [one["choices"][0]["delta"] for one in streamed[:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert "".join(one["function"]["arguments"] or "" for one in calls) == '{"c": "ls"}'
    assert streamed[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert done["choices"][0]["message"]["content"] == "All done."
    assert done["choices"][0]["finish_reason"] == "stop"
    # The tool call that came back is where it was: its turn is found in the cache.
    assert drawn["choices"][0]["message"]["content"] != "All done."


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("{", "line 1"), ('{"match": "("}', "line 1"), ('{"contents": "x"}', "unknown field")],
)
async def test_a_script_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, line: str, complaint: str
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(line + "\n")
    with pytest.raises(ConfigError, match=complaint):
        async with running(EmulatorOptions(port=0, script=script)):
            pass


async def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="capacity_tokens"):
        async with running(EmulatorOptions(port=0, capacity_tokens=8)):
            pass
    with pytest.raises(ConfigError, match="no model"):
        async with running(EmulatorOptions(port=0, preset="gpt-9")):
            pass
    with pytest.raises(ValidationError):
        EmulatorOptions(speed=0)
    async with running(EmulatorOptions(port=0)) as urls:
        port = int(urls[0].rsplit(":", 1)[1])
        with pytest.raises(ConfigError, match=str(port)):
            async with running(EmulatorOptions(port=port)):
                pass


async def test_several_workers_share_a_process_and_nothing_else() -> None:
    options = EmulatorOptions(port=0, workers=3, speed=1000.0)
    async with running(options) as urls, httpx.AsyncClient() as client:
        assert len(set(urls)) == 3
        for url in urls:
            answer = await client.post(url + CHAT, json=chat("hello " * 100, max_tokens=2))
            assert cached(answer) == 0
        again = await client.post(urls[1] + CHAT, json=chat("hello " * 100, max_tokens=2))
        assert cached(again) > 0
