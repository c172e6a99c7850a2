"""What the dialects share: the life of an answer, usage, and OpenAI-shaped errors.

An answer is worded either whole (`whole`) or in chunks: `first` at the first token, `delta` as more
text is there, `last` at the end. A chunk is bytes ready for the wire.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import Ask, BadRequestError, Prompt
from thunder_router.emulator.options import EmulatorOptions

__all__ = ["DONE", "Dialect", "body_tokens", "dumps", "openai_usage", "sse"]

DONE = b"data: [DONE]\n\n"


class Dialect(ABC):
    """One answer on one route."""

    def __init__(self, ask: Ask, created: float, *, cache_report: bool) -> None:
        self.ask = ask
        self.created = created
        self.cache_report = cache_report
        self._sent = 0

    @staticmethod
    @abstractmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """What the body asks.

        Raises:
            BadRequestError: a field is missing or of a wrong type.
        """

    @abstractmethod
    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""

    @abstractmethod
    def first(self) -> bytes:
        """The chunks that come before any text."""

    @abstractmethod
    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """A chunk with more text."""

    @abstractmethod
    def last(self, end: Finished) -> bytes:
        """The chunks after all text."""

    def text(self, end: Finished) -> str:
        """What was generated until the end, whole or cut short."""
        content = self.ask.content or ""
        if not end.aborted:
            return content
        return content[: len(content) * end.completion_tokens // max(1, self.ask.output_tokens)]

    def more(self, decoded: int) -> str:
        """Text that `decoded` tokens have brought since the last call."""
        content = self.ask.content or ""
        until = len(content) * min(decoded, self.ask.output_tokens) // self.ask.output_tokens
        text, self._sent = content[self._sent : until], max(until, self._sent)
        return text

    def reason(self, end: Finished) -> str:
        """Why it ended, in OpenAI's words."""
        return "abort" if end.aborted else self.ask.finish_reason

    @classmethod
    def error(cls, status: int, message: str, kind: str) -> dict[str, Any]:
        """The body of an error."""
        return {"object": "error", "message": message, "type": kind, "param": None, "code": status}

    @classmethod
    def error_event(cls, status: int, message: str) -> bytes:
        """An error in a stream that began with 200, spaced as SGLang spaces it."""
        name = HTTPStatus(status).name
        body = cls.error(status, message, name)
        return b"data: " + json.dumps({"error": body}).encode() + b"\n\n" + DONE


def dumps(value: Any) -> bytes:
    """Compact JSON, as SGLang's."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def sse(value: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + dumps(value) + b"\n\n"


def openai_usage(
    prompt: int, completion: int, cached: int, *, cache_report: bool
) -> dict[str, Any]:
    """`usage` of the OpenAI routes. Without --enable-cache-report there are no details."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cache_report else None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def body_tokens(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these limits that the body sets.

    Raises:
        BadRequestError: it is not a positive integer.
    """
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequestError(f"{name} must be an integer", "Bad Request")
        if value < 0:
            raise BadRequestError(f"{name} must be at least 0, got {value}.")
        return value
    return None
