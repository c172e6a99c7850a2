"""Anthropic's `/v1/messages`, in the simple form that SGLang serves."""

from collections.abc import Mapping
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import BadRequestError, Prompt
from thunder_router.emulator.dialects.base import Dialect, body_tokens, sse
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.text import canonical_messages, content_text, last_text

__all__ = ["Messages"]

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class Messages(Dialect):
    """An Anthropic message."""

    @staticmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """System and messages as one text."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError("messages: Field required", "Bad Request")
        limit = body_tokens(body, "max_tokens")
        if limit is None:
            raise BadRequestError("max_tokens: Field required", "Bad Request")
        system = content_text(body.get("system"))
        whole = [{"role": "system", "content": system}, *messages] if system else messages
        return Prompt(
            text=canonical_messages(whole, body.get("tools")),
            bytes_per_token=options.bytes_per_token,
            last_message=last_text(messages),
            max_tokens=limit,
        )

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""
        return self._message(
            [{"type": "text", "text": self.text(end)}], self._reason(end), self._usage(end)
        )

    def first(self) -> bytes:
        """The message without content, and its first block."""
        usage = {"input_tokens": self.ask.prompt_tokens, "output_tokens": 0}
        start = {"type": "message_start", "message": self._message([], None, usage)}
        block = {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        }
        return sse(start, "message_start") + sse(block, "content_block_start")

    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """A piece of text."""
        del decoded, cached
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        return sse(event, "content_block_delta")

    def last(self, end: Finished) -> bytes:
        """The end of the block and of the message."""
        change = {
            "type": "message_delta",
            "delta": {"stop_reason": self._reason(end)},
            "usage": self._usage(end),
        }
        return (
            sse({"type": "content_block_stop", "index": 0}, "content_block_stop")
            + sse(change, "message_delta")
            + sse({"type": "message_stop"}, "message_stop")
        )

    @classmethod
    def error(cls, status: int, message: str, kind: str) -> dict[str, Any]:
        """The body of an error."""
        del kind
        name = "invalid_request_error" if status == 400 else "overloaded_error"
        return {"type": "error", "error": {"type": name, "message": message}}

    @classmethod
    def error_event(cls, status: int, message: str) -> bytes:
        """An error in a stream that began with 200."""
        return sse(cls.error(status, message, ""), "error")

    def _message(
        self, content: list[Any], reason: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self.ask.rid}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.ask.model,
            "stop_reason": reason,
            "usage": usage,
        }

    def _reason(self, end: Finished) -> str:
        return "end_turn" if end.aborted else _REASONS.get(self.ask.finish_reason, "end_turn")

    def _usage(self, end: Finished) -> dict[str, Any]:
        cached = end.cached_device + end.cached_host
        usage = {
            "input_tokens": end.prompt_tokens - cached,
            "output_tokens": end.completion_tokens,
        }
        if cached:
            usage["cache_read_input_tokens"] = cached
        return usage
