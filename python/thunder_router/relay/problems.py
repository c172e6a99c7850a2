"""Why a request is refused before anyone looked at what it says."""

from typing import Final

from thunder_router.answers import Problem, explain
from thunder_router.errors import BodyTooLargeError, UnauthorizedError

__all__ = [
    "CUT_SHORT",
    "HEAD_TOO_LARGE",
    "MALFORMED",
    "NOT_FOUND",
    "TOO_SLOW",
    "UNAUTHORIZED",
    "too_large",
]

MALFORMED: Final = Problem(400, "The request is not HTTP/1.1.", "malformed_request")
CUT_SHORT: Final = Problem(400, "The request ended before its length.", "incomplete_request")
HEAD_TOO_LARGE: Final = Problem(431, "The request's headers are too large.", "headers_too_large")
TOO_SLOW: Final = Problem(408, "The request did not come in time.", "request_timeout")
NOT_FOUND: Final = Problem(404, "There is nothing at this path.", "not_found")
UNAUTHORIZED: Final = explain(UnauthorizedError("The API key is missing or wrong."))


def too_large(limit: int) -> Problem:
    """The body is longer than `limit` bytes."""
    return explain(BodyTooLargeError(f"The body is longer than {limit} bytes."))
