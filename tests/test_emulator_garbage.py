"""Whatever comes in, the emulated worker answers, and goes on answering."""

import json
import random
from typing import Any

import pytest

from emulated import chat, emulated

WORDS = ("", "user", "assistant", "text", "\ud800", "\x00", "é" * 40, "a" * 3000)
FIELDS = (
    *("model", "messages", "prompt", "input", "text", "input_ids", "stream", "max_tokens", "n"),
    *("sampling_params", "stream_options", "tools", "rid", "session_id", "priority", "role"),
    *("content", "tool_calls", "function", "name", "arguments", "emulate", "prompt_tokens"),
    *("output_tokens", "max_new_tokens", "temperature", "routed_dp_rank", "system", "capacity"),
)
NUMBERS = (0, 1, -1, 3, 2**31, 2**63, 2**80, 0.5, float("inf"), float("nan"))


def junk(draw: random.Random, depth: int = 0) -> Any:
    """A JSON value out of pieces that mean something somewhere."""
    kind = draw.randrange(4 if depth > 4 else 7)
    if kind == 0:
        return draw.choice(WORDS)
    if kind == 1:
        return draw.choice(NUMBERS)
    if kind == 2:
        return draw.choice((None, True, False))
    if kind == 3:
        return [junk(draw, depth + 1) for _ in range(draw.randrange(4))] if depth < 5 else []
    return {draw.choice(FIELDS): junk(draw, depth + 1) for _ in range(draw.randrange(6))}


def body(draw: random.Random) -> dict[str, Any]:
    """A sound request with some of its fields replaced."""
    sound = chat("hi", max_tokens=3) | {
        "prompt": "hi",
        "text": "hi",
        "input": "hi",
        "sampling_params": {"max_new_tokens": 3},
    }
    for _ in range(draw.randrange(1, 4)):
        sound[draw.choice(FIELDS)] = junk(draw)
    if draw.random() < 0.3:
        sound["messages"] = [junk(draw, 2) for _ in range(3)]
    return sound


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/completions", "/generate", "/v1/messages", "/v1/responses"],
)
async def test_no_body_is_an_internal_error(path: str) -> None:
    draw = random.Random(path)
    headers = {"content-type": "application/json"}
    seen = set()
    async with emulated(speed=10_000.0) as client:
        for _ in range(80):
            sent = json.dumps(body(draw)).encode()
            answer = await client.post(path, content=sent, headers=headers)
            seen.add(answer.status_code)
            assert answer.status_code in (200, 400), (answer.status_code, sent)
        for sent in (b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"a":' * 50_000):
            answer = await client.post(path, content=sent, headers=headers)
            assert answer.status_code == 400
        sound = await client.post("/v1/chat/completions", json=chat("hi", max_tokens=1))
        loads = (await client.get("/v1/loads")).json()["loads"][0]
    assert seen == {200, 400}, "some of the bodies made sense and some did not"
    assert sound.status_code == 200
    assert (loads["num_running_reqs"], loads["num_waiting_reqs"]) == (0, 0)


async def test_control_routes_survive_any_body() -> None:
    draw = random.Random(1)
    paths = ("/abort_request", "/open_session", "/close_session", "/pause_generation")
    async with emulated() as client:
        for path in paths:
            for _ in range(25):
                answer = await client.post(path, content=json.dumps(junk(draw)))
                assert answer.status_code in (200, 400)
            answer = await client.post(path, content=b"\xff{")
            assert answer.status_code in (200, 400)
        await client.post("/continue_generation")
        answer = await client.post("/v1/chat/completions", json=chat("hi", max_tokens=1))
    assert answer.status_code == 200
