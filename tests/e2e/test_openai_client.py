"""The `openai` client, unchanged, with nothing but a base URL."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from e2e.stack import MODEL, Router, Worker, emulated_worker, eventually, served_router

BASH: Any = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


def client_of(router: Router) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{router.url}/v1", api_key="unused", max_retries=0, timeout=30)


@pytest.fixture
def client(router: Router) -> openai.OpenAI:
    return client_of(router)


def error_of(error: openai.APIStatusError) -> dict[str, Any]:
    assert isinstance(error.body, dict)
    return error.body


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


QUESTION = user("What is the capital of France?")
ANSWER = "The capital of France is Paris."


def test_an_answer_comes_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION)

    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same_and_has_no_usage_nobody_asked_for(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
    chunks = list(stream)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_with_usage_ends_with_it(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    *_, last = stream

    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 0


def test_a_tool_call_arrives_whole_and_streamed(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "messages": user("Please list the files."), "tools": [BASH]}

    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True))

    (called,) = whole.choices[0].message.tool_calls
    assert called.function.name == "bash"
    assert called.function.arguments == '{"command": "ls -la"}'
    assert whole.choices[0].finish_reason == "tool_calls"
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    assert parts[0].function.name == "bash"
    assert "".join(part.function.arguments or "" for part in parts) == '{"command": "ls -la"}'


def test_text_completions_and_models_are_served(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=5)
    (model,) = client.models.list()

    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 5
    assert model.id == MODEL


def test_the_turns_of_a_program_stay_on_one_worker_and_find_their_cache(
    client: openai.OpenAI, workers: list[Worker]
) -> None:
    before = [worker.requests() for worker in workers]
    messages: list[Any] = user("Write me a story. " * 200)
    cached = []
    for _ in range(4):
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=40, extra_body={"program_id": "story"}
        )
        assert answer.usage is not None
        details = answer.usage.prompt_tokens_details
        cached.append((details.cached_tokens or 0) if details else 0)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        messages.append({"role": "user", "content": "Go on."})

    served = [worker.requests() - count for worker, count in zip(workers, before, strict=True)]
    assert sorted(served) == [0, 4]
    assert cached[0] < cached[1] < cached[2] < cached[3]


def test_a_worker_s_own_error_keeps_its_status_and_its_message(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=-1)
    assert caught.value.status_code == 400


def test_a_body_that_is_no_object_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=["no", "object"], cast_to=object)
    assert error_of(caught.value)["type"]
    assert error_of(caught.value)["message"]


def test_no_worker_is_a_503_that_names_no_url(tmp_path: Path) -> None:
    with (
        emulated_worker(tmp_path) as worker,
        served_router(
            tmp_path, [worker.url], WORKERS__DOWN_AFTER_S="0.2", SCHEDULING__NO_WORKER_LIMIT_S="0.2"
        ) as router,
    ):
        worker.process.stop()
        eventually(lambda: not router.get("/workers")["workers"][0]["is_healthy"], "still up")
        client = client_of(router).with_options(timeout=5)
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model=MODEL, messages=QUESTION)

    assert caught.value.status_code == 503
    assert "127.0.0.1" not in caught.value.response.text
    assert error_of(caught.value)["message"]


def test_a_full_queue_is_a_rate_limit_with_a_time_to_retry(tmp_path: Path) -> None:
    # Room for one program, which prefills for minutes; one more may wait; the third is refused.
    slow = ("--capacity-tokens", "4096", "--speed", "0.001", "--bytes-per-token", "4")
    with (
        emulated_worker(tmp_path, *slow) as worker,
        served_router(tmp_path, [worker.url], SCHEDULING__QUEUE_LIMIT="1") as router,
        ThreadPoolExecutor(2) as others,
    ):
        client = client_of(router)

        def ask(program: str) -> object:
            body = {"program_id": program}
            text = user("word " * 2500)
            return client.chat.completions.create(model=MODEL, messages=text, extra_body=body)

        busy = [others.submit(ask, "first")]
        eventually(lambda: router.get("/programs")["first"]["in_flight"] == 1, "not admitted")
        busy.append(others.submit(ask, "second"))
        eventually(lambda: router.get("/programs")["second"]["waiting"] == 1, "not held")
        with pytest.raises(openai.RateLimitError) as caught:
            ask("third")
        worker.process.signal(signal.SIGKILL)
        router.process.signal(signal.SIGKILL)
        assert all(request.exception(30) for request in busy)

    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert error_of(caught.value)["type"]
