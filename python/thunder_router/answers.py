"""Errors as clients see them: the one table from exceptions to HTTP statuses and bodies.

A leaf, because two rooms answer clients: the relay on the inference routes, `api` on the others.
Every API has its own form of an error, in a body and in a stream that has already begun; a message
never names a worker, a path or a line of ours.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from thunder_router import errors

__all__ = ["Problem", "body", "event", "explain"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a client does not get what it asked for.

    Attributes:
        status: The HTTP status, also where the head of the answer is out already.
        message: For people; one sentence.
        code: For programs; stable.
        retry_after_s: Seconds after which a retry has a chance, or None.
    """

    status: int
    message: str
    code: str
    retry_after_s: float | None = None


# The first row that fits counts, so a class stands above its parent.
_TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.UnauthorizedError, 401, "invalid_api_key"),
    (errors.BodyTooLargeError, 413, "body_too_large"),
    (errors.OversizeError, 413, "context_too_large"),
    (errors.UnknownModelError, 404, "model_not_found"),
    (errors.IdentityConflictError, 400, "identity_conflict"),
    (errors.InvalidBodyError, 400, "invalid_body"),
    (errors.RequestError, 400, "invalid_request"),
    (errors.RejectedError, 429, "queue_full"),
    (errors.NoWorkerError, 503, "no_worker"),
    (errors.ConnectError, 502, "worker_unreachable"),
    (errors.WorkerResetError, 502, "worker_reset"),
    (errors.ProtocolError, 502, "worker_protocol"),
    (errors.WorkerTimeoutError, 504, "worker_timeout"),
    (errors.UpstreamError, 502, "worker_failed"),
)

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# Source: docs.anthropic.com, API, errors.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def explain(error: BaseException) -> Problem:
    """What the client is told about `error`.

    An exception outside the tree, or one that no client can cause, is our own bug: it becomes a
    500 that says nothing about it.
    """
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            retry_after_s = getattr(error, "retry_after_s", None)
            return Problem(status, str(error), code, retry_after_s)
    return Problem(500, "The router failed on this request.", "internal_error")


def body(problem: Problem, dialect: str | None) -> bytes:
    """The JSON body of an error answer. `dialect` None: OpenAI's form."""
    return json.dumps(_whole(problem, dialect)).encode()


def event(problem: Problem, dialect: str | None) -> bytes:
    """The server-sent event that ends a stream whose head is out already."""
    if dialect == "messages":
        return b"event: error\ndata: " + body(problem, dialect) + b"\n\n"
    if dialect == "responses":
        said = {
            "type": "error",
            "code": problem.code,
            "message": problem.message,
            "param": None,
            "sequence_number": 0,
        }
        return b"event: error\ndata: " + json.dumps(said).encode() + b"\n\n"
    return b"data: " + body(problem, dialect) + b"\n\n"


def _whole(problem: Problem, dialect: str | None) -> dict[str, Any]:
    status = problem.status
    if dialect == "messages":
        kind = _ANTHROPIC_TYPES.get(status, _kind(status, "invalid_request_error", "api_error"))
        return {"type": "error", "error": {"type": kind, "message": problem.message}}
    said: dict[str, Any] = {
        "message": problem.message,
        "type": _OPENAI_TYPES.get(status, _kind(status, "invalid_request_error", "server_error")),
        "param": None,
        "code": problem.code,
    }
    if dialect == "generate":
        # SGLang's clients look here before they try again.
        said["retryable"] = status in _RETRYABLE
    return {"error": said}


_RETRYABLE = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}
)


def _kind(status: int, client: str, server: str) -> str:
    return client if status < HTTPStatus.INTERNAL_SERVER_ERROR else server
