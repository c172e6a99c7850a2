"""The emulated worker answers in the shapes that a real SGLang 0.5.23 answered in."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emulated import chat, emulated, events, shape

CAPTURES = Path(__file__).parent / "captures"


def captured(name: str) -> Any:
    return json.loads((CAPTURES / "emulator" / f"{name}.body").read_text())


def captured_events(name: str) -> list[Any]:
    return events((CAPTURES / "emulator" / f"{name}.body").read_text())


REQUESTS = {
    "chat_nonstream": ("/v1/chat/completions", chat("hi", max_tokens=12)),
    "completions": ("/v1/completions", {"prompt": "hi there", "max_tokens": 8}),
    "generate": ("/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 8}}),
    "responses": ("/v1/responses", {"input": "hi", "max_output_tokens": 8}),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_whole_answer_has_the_fields_of_the_real_one(name: str) -> None:
    path, body = REQUESTS[name]
    real = captured(name)
    if name == "generate":
        # Process-internal instants that only a tokenizer process has.
        for field in (
            "forward_entry_time",
            "prefill_finished_time",
            "first_token_latency",
            "api_server_dispatch_finish_ts",
            "decode_throughput",
        ):
            del real["meta_info"][field]
    async with emulated() as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200
    assert shape(answer.json()) == shape(real)


async def test_a_cached_answer_names_the_tiers_and_anthropic_counts_them_apart() -> None:
    body = chat("long " * 200, max_tokens=4, return_cached_tokens_details=True)
    async with emulated() as client:
        await client.post("/v1/chat/completions", json=body)
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        messages = {"messages": body["messages"], "max_tokens": 8}
        anthropic = (await client.post("/v1/messages", json=messages)).json()
    assert shape(answer) == shape(captured("chat_nonstream_again"))
    prompt = answer["usage"]["prompt_tokens"]
    assert answer["sglext"]["cached_tokens_details"] == {"device": prompt - 1, "host": 0}
    assert shape(anthropic) == shape(captured("messages_anthropic"))
    usage = anthropic["usage"]
    assert usage["cache_read_input_tokens"] + usage["input_tokens"] == prompt


STREAMS = {
    "chat_stream": ("/v1/chat/completions", chat("hi", max_tokens=6)),
    "chat_stream_usage": (
        "/v1/chat/completions",
        chat("hi", max_tokens=6, stream_options={"include_usage": True}),
    ),
    "chat_stream_cont_usage": (
        "/v1/chat/completions",
        chat(
            "hi",
            max_tokens=4,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        ),
    ),
    "chat_stream_cached_details": (
        "/v1/chat/completions",
        chat(
            "hi",
            max_tokens=4,
            stream_options={"include_usage": True},
            return_cached_tokens_details=True,
        ),
    ),
}


def distinct(shapes: list[Any]) -> list[Any]:
    """Runs of equal shapes count once: how many deltas there are is nobody's promise."""
    return [one for index, one in enumerate(shapes) if index == 0 or one != shapes[index - 1]]


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_has_the_chunks_of_the_real_one_in_order(name: str) -> None:
    path, body = STREAMS[name]
    async with emulated(coalesce_s=0) as client:
        answer = await client.post(path, json={**body, "stream": True})
    ours, real = events(answer.text), captured_events(name)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert ours[-1] == real[-1] == "[DONE]"
    for chunks in (ours, real):
        for chunk in chunks[:-1]:
            for choice in chunk["choices"]:
                # The real one of this capture thinks aloud; ours does not.
                choice["delta"].setdefault("reasoning_content", None)
                if set(choice["delta"]) == {"reasoning_content"} and not choice["finish_reason"]:
                    choice["delta"]["content"] = ""
            if (chunk.get("usage") or {}).get("completion_tokens_details"):
                chunk["usage"]["completion_tokens_details"] = None
            (chunk.get("sglext") or {"cached_tokens_details": {}})["cached_tokens_details"].pop(
                "storage", None
            )
            (chunk.get("sglext") or {"cached_tokens_details": {}})["cached_tokens_details"].pop(
                "storage_backend", None
            )
    assert distinct(shape(ours)) == distinct(shape(real))
    assert distinct([shape(one) for one in ours]) == distinct([shape(one) for one in real])


async def test_a_generate_stream_is_cumulative_and_ends_with_done() -> None:
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}, "stream": True}
    async with emulated(coalesce_s=0) as client:
        chunks = events((await client.post("/generate", json=body)).text)
    assert chunks[-1] == "[DONE]"
    texts = [chunk["text"] for chunk in chunks[:-1]]
    assert all(later.startswith(sooner) for sooner, later in pairwise(texts))
    assert [len(chunk["output_ids"]) for chunk in chunks[:-1]][-1] == 4
    real = captured_events("generate_stream")
    assert shape(chunks[-2]).keys() == shape(real[-2]).keys()
    assert chunks[-2]["meta_info"]["finish_reason"] == {"type": "length", "length": 4}


def only_known(ours: Any, real: Any, extra: set[str]) -> None:
    unknown = ours.keys() - real.keys() - extra
    assert not unknown, f"fields no real worker has: {unknown}"


async def test_the_worker_describes_itself_in_fields_that_the_real_one_has() -> None:
    real = CAPTURES / "workers" / "sglang-0.5.23-hicache-write_through"
    async with emulated(hicache_ratio=2.0, capacity_tokens=4096) as client:
        info = (await client.get("/server_info")).json()
        model = (await client.get("/model_info")).json()
        models = (await client.get("/v1/models")).json()
        loads = (await client.get("/v1/loads")).json()
        core = (await client.get("/v1/loads?include=core")).json()
        metrics = (await client.get("/metrics")).text
    real_info = json.loads((real / "server_info.body").read_text())
    only_known(info, real_info, {"emulated"})
    only_known(info["internal_states"][0], real_info["internal_states"][0], set())
    only_known(model, json.loads((real / "model_info.body").read_text()), {"emulated"})
    assert shape(models) == shape(json.loads((real / "v1_models.body").read_text()))
    assert shape(loads) == shape(captured("v1_loads"))
    assert shape(core) == shape(json.loads((real / "v1_loads_core.body").read_text()))
    known = (CAPTURES / "emulator" / "metrics_types.txt").read_text().splitlines()
    ours = {line for line in metrics.splitlines() if line.startswith("# TYPE")}
    # The CPU engine never retracted, so this one is known from SGLang's source alone.
    assert ours - set(known) == {"# TYPE sglang:num_retracted_requests_total counter"}
    assert info["max_total_num_tokens"] == 4096
    assert info["max_req_input_len"] == 4090
    assert "sglang:hicache_host_total_tokens{" in metrics
    assert " 8193.0" in metrics, "host capacity as SGLang computes it for page 1, ratio 2"


async def test_it_says_everywhere_that_it_is_emulated() -> None:
    async with emulated() as client:
        answer = await client.post("/v1/chat/completions", json=chat("hi", max_tokens=1))
        info = (await client.get("/server_info")).json()
        card = (await client.get("/v1/models")).json()["data"][0]
    assert "emulator" in answer.headers["x-emulated"]
    assert info["emulated"]["preset"] == "glm-4.6"
    assert info["version"].endswith("+emulated")
    assert card["owned_by"] == "sglang-emulated"


async def test_errors_are_worded_and_shaped_as_the_real_ones() -> None:
    async with emulated(capacity_tokens=4096, context_length=32768) as client:

        async def post(path: str, body: Any) -> tuple[int, Any]:
            answer = await client.post(path, json=body)
            return answer.status_code, answer.json()

        chats = "/v1/chat/completions"
        status, over = await post(chats, chat("x" * 72_000))
        assert (status, over["message"].split("(")[2:]) == (
            400,
            captured("err_over_kv")["message"].split("(")[2:],
        )
        assert shape(over) == shape(captured("err_over_kv"))
        assert over["type"] == "BadRequestError"
        status, long = await post(chats, chat("x" * 200_000, stream=True))
        assert (status, long["type"]) == (400, captured("err_too_long")["type"])
        assert "is longer than the model's context length (32768 tokens)" in long["message"]
        status, many = await post(chats, chat("x", max_tokens=100_000))
        assert (status, many["message"][:75]) == (400, captured("err_max_tokens")["message"][:75])
        assert await post(chats, chat("x", temperature=-1)) == (400, captured("err_temp"))
        generate = {"text": "x", "sampling_params": {"max_new_tokens": -3}}
        assert await post("/generate", generate) == (400, captured("err_generate"))
        status, missing = await post(chats, {})
        assert (status, missing["type"]) == (400, "Bad Request")
        assert (await client.get("/nope")).json() == captured("err_404")
        wrong = await client.get(chats)
        assert (wrong.status_code, wrong.json(), wrong.headers["allow"]) == (
            405,
            captured("err_405"),
            "POST",
        )
        assert (await client.get("/v1/models/nope")).json() == captured("v1_models_404")
        broken = await client.post(
            chats, content=b"{", headers={"content-type": "application/json"}
        )
        assert (broken.status_code, shape(broken.json())) == (400, shape(captured("err_badjson")))
        typed = await client.post(chats, content=b"{}", headers={"content-type": "text/plain"})
        assert typed.status_code == 400


async def test_a_stream_that_cannot_start_answers_200_and_then_an_error_event() -> None:
    async with emulated(capacity_tokens=4096) as client:
        answer = await client.post("/v1/chat/completions", json=chat("x" * 72_000, stream=True))
        anthropic = await client.post(
            "/v1/messages",
            json={
                "messages": [{"role": "user", "content": "x" * 72_000}],
                "max_tokens": 5,
                "stream": True,
            },
        )
        native = await client.post("/generate", json={"text": "x" * 72_000, "stream": True})
    real = captured_events("err_over_kv_stream")
    ours = events(answer.text)
    assert answer.status_code == 200
    assert shape(ours[0]) == shape(real[0])
    assert (ours[0]["error"]["type"], ours[0]["error"]["code"]) == ("BAD_REQUEST", 400)
    assert ours[1:] == real[1:] == ["[DONE]"]
    assert events(anthropic.text)[0]["error"]["type"] == "invalid_request_error"
    assert events(native.text)[0]["error"]["retryable"] is False
