"""Errors as clients see them: statuses and bodies of each API."""

import json

import pytest

from thunder_router import answers, errors


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidBodyError("m"), 400, "invalid_body"),
        (errors.UnknownModelError("m"), 404, "model_not_found"),
        (errors.IdentityConflictError("m"), 400, "identity_conflict"),
        (errors.UnauthorizedError("m"), 401, "invalid_api_key"),
        (errors.BodyTooLargeError("m"), 413, "body_too_large"),
        (errors.OversizeError("m"), 413, "context_too_large"),
        (errors.RejectedError("m", retry_after_s=2), 429, "queue_full"),
        (errors.ConnectError("m"), 502, "worker_unreachable"),
        (errors.WorkerResetError("m"), 502, "worker_reset"),
        (errors.ProtocolError("m"), 502, "worker_protocol"),
        (errors.NoWorkerError("m"), 503, "no_worker"),
        (errors.WorkerTimeoutError("m"), 504, "worker_timeout"),
    ],
)
def test_every_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    problem = answers.explain(error)
    assert (problem.status, problem.code, problem.message) == (status, code, "m")


@pytest.mark.parametrize("error", [RuntimeError("secret"), errors.UnknownProgramError("secret")])
def test_our_own_bug_is_a_500_that_says_nothing(error: Exception) -> None:
    problem = answers.explain(error)
    assert (problem.status, problem.code) == (500, "internal_error")
    assert "secret" not in problem.message


def test_a_rejection_keeps_its_time_to_retry() -> None:
    assert answers.explain(errors.RejectedError("m", retry_after_s=2.5)).retry_after_s == 2.5


@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", None])
def test_an_error_body_is_openai_shaped(dialect: str | None) -> None:
    said = json.loads(answers.body(answers.Problem(429, "full", "queue_full"), dialect))
    assert said == {
        "error": {
            "message": "full",
            "type": "rate_limit_error",
            "param": None,
            "code": "queue_full",
        }
    }


def test_an_error_body_of_the_messages_api_is_anthropic_shaped() -> None:
    said = json.loads(answers.body(answers.Problem(413, "long", "body_too_large"), "messages"))
    assert said == {"type": "error", "error": {"type": "request_too_large", "message": "long"}}


def test_an_error_of_generate_says_whether_to_retry() -> None:
    busy = json.loads(answers.body(answers.Problem(503, "m", "no_worker"), "generate"))
    wrong = json.loads(answers.body(answers.Problem(400, "m", "invalid_body"), "generate"))
    assert (busy["error"]["retryable"], wrong["error"]["retryable"]) == (True, False)


@pytest.mark.parametrize(
    ("dialect", "start"),
    [
        ("chat", b'data: {"error": {'),
        ("completions", b'data: {"error": {'),
        ("generate", b'data: {"error": {'),
        ("responses", b'event: error\ndata: {"type": "error", "code": "worker_reset"'),
        ("messages", b'event: error\ndata: {"type": "error", "error": {"type": "api_error"'),
    ],
)
def test_an_error_event_has_the_form_of_its_api(dialect: str, start: bytes) -> None:
    event = answers.event(answers.Problem(502, 'it "broke"\nhere', "worker_reset"), dialect)
    assert event.startswith(start)
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n\n") == 1
