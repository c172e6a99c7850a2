"""`httpx` with the OpenAI and the Anthropic shape: headers, statuses and bytes as they are."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from e2e.stack import MODEL, Router, Worker

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture
def client(router: Router) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=router.url, timeout=30) as client:
        yield client


def events(text: str) -> list[tuple[str | None, Any]]:
    """Name and JSON of each SSE event."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields.get("event"), json.loads(fields["data"])))
    return found


def test_an_anthropic_message_comes_whole(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/messages",
        json={"model": MODEL, "max_tokens": 100, "messages": QUESTION},
        headers={"x-api-key": "unused", "anthropic-version": "2023-06-01"},
    )

    assert answer.status_code == 200
    body = answer.json()
    assert body["type"] == "message"
    assert "".join(part["text"] for part in body["content"]) == ANSWER
    assert body["usage"]["output_tokens"] > 0


def test_an_anthropic_stream_keeps_its_event_names(client: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 100, "messages": QUESTION, "stream": True}
    answer = client.post("/v1/messages", json=body)

    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = events(answer.text)
    names = [name for name, _ in seen]
    assert (names[0], names[-1]) == ("message_start", "message_stop")
    assert all(name == data["type"] for name, data in seen)
    text = "".join(
        data["delta"].get("text", "") for name, data in seen if name == "content_block_delta"
    )
    assert text == ANSWER


def test_an_anthropic_error_has_anthropic_s_shape(client: httpx.Client) -> None:
    answer = client.post("/v1/messages", content=b"[]")

    assert answer.status_code == 400
    body = answer.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"


def test_a_claude_code_session_stays_on_one_worker(
    client: httpx.Client, workers: list[Worker]
) -> None:
    before = [worker.requests() for worker in workers]
    for _ in range(4):
        answer = client.post(
            "/v1/messages",
            json={"model": MODEL, "max_tokens": 5, "messages": QUESTION},
            headers={"x-claude-code-session-id": "a-session"},
        )
        assert answer.status_code == 200
    served = [worker.requests() - count for worker, count in zip(workers, before, strict=True)]
    assert sorted(served) == [0, 4]


def test_generate_takes_token_ids(client: httpx.Client) -> None:
    answer = client.post(
        "/generate",
        json={"input_ids": list(range(1000, 1064)), "sampling_params": {"max_new_tokens": 4}},
    )

    assert answer.status_code == 200
    assert answer.json()["meta_info"]["prompt_tokens"] == 64
    assert answer.json()["meta_info"]["completion_tokens"] == 4


def test_a_path_nobody_has_is_a_404(client: httpx.Client) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.post("/v1/nowhere", json={}).status_code == 404


def test_one_connection_carries_many_requests(client: httpx.Client) -> None:
    for _ in range(20):
        body = {"model": MODEL, "messages": QUESTION}
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == ANSWER


def test_an_unknown_field_and_odd_spacing_are_no_obstacle(client: httpx.Client) -> None:
    body = (
        b'  {"messages" :[ {"role":"user","content":"What is the \\u0063apital of France?"} ],\n'
        b'"unknown_future_field": {"a": [1, 2.50, -0e1]},\t"model":"emulated-model" }  '
    )
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/chat/completions", content=body, headers=headers)

    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
