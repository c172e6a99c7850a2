"""`/v1/chat/completions`."""

from collections.abc import Mapping
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import BadRequestError, Prompt
from thunder_router.emulator.dialects.base import DONE, Dialect, body_tokens, openai_usage, sse
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.text import canonical_messages, last_text

__all__ = ["Chat"]


class Chat(Dialect):
    """A chat completion."""

    object_name = "chat.completion"

    @staticmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """Messages and tools as one text."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError(
                "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), "
                "'msg': 'Field required'}",
                "Bad Request",
            )
        return Prompt(
            text=canonical_messages(messages, body.get("tools")),
            bytes_per_token=options.bytes_per_token,
            last_message=last_text(messages),
            max_tokens=body_tokens(body, "max_completion_tokens", "max_tokens"),
        )

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.text(end) if self.ask.content is not None else None,
            "reasoning_content": None,
        }
        if self.ask.tool_calls and not end.aborted:
            message["tool_calls"] = self._tool_calls()
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.reason(end),
            "matched_stop": None,
        }
        if self.ask.return_meta_info:
            choice["meta_info"] = meta_info(self.ask.rid, end)
        return closed(self, "chat.completion", choice, end)

    def first(self) -> bytes:
        """The role chunk."""
        delta = {"reasoning_content": None, "role": "assistant", "content": ""}
        return sse(self._chunk(self._choice(delta)))

    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """A chunk of content."""
        chunk = self._chunk(self._choice({"reasoning_content": None, "content": text}))
        if self.ask.continuous_usage:
            chunk["usage"] = self._usage(self.ask.prompt_tokens, decoded, cached)
        return sse(chunk)

    def last(self, end: Finished) -> bytes:
        """Tool calls, the finish reason, and what else was asked for."""
        parts = []
        if self.ask.tool_calls and not end.aborted:
            for call in self._tool_calls():
                name = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
                rest = {**call, "id": None}
                rest["function"] = {"name": None, "arguments": call["function"]["arguments"]}
                for part in (name, rest):
                    delta = {"reasoning_content": None, "tool_calls": [part]}
                    parts.append(sse(self._chunk(self._choice(delta))))
        finish = self._choice({"reasoning_content": None}, self.reason(end))
        parts.append(sse(self._chunk(finish)))
        cached = end.cached_device + end.cached_host
        if self.ask.cached_details:
            details = self._chunk()
            details |= {"usage": None, "sglext": {"cached_tokens_details": cached_details(end)}}
            parts.append(sse(details))
        if self.ask.include_usage:
            usage = self._usage(end.prompt_tokens, end.completion_tokens, cached)
            parts.append(sse(self._chunk() | {"usage": usage}))
        return b"".join([*parts, DONE])

    def _usage(self, prompt: int, completion: int, cached: int) -> dict[str, Any]:
        return openai_usage(prompt, completion, cached, cache_report=self.cache_report)

    def _choice(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": None,
        }

    def _chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.ask.rid,
            "object": "chat.completion.chunk",
            "created": int(self.created),
            "model": self.ask.model,
            "choices": list(choices),
        }

    def _tool_calls(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.ask.rid[:20]}{index:04d}",
                "index": index,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(self.ask.tool_calls)
        ]


def closed(
    dialect: Dialect, object_name: str, choice: dict[str, Any], end: Finished
) -> dict[str, Any]:
    """A finished OpenAI answer around its one choice."""
    cached = end.cached_device + end.cached_host
    answer: dict[str, Any] = {
        "id": dialect.ask.rid,
        "object": object_name,
        "created": int(dialect.created),
        "model": dialect.ask.model,
        "choices": [choice],
        "usage": openai_usage(
            end.prompt_tokens, end.completion_tokens, cached, cache_report=dialect.cache_report
        ),
        "metadata": {"weight_version": "default", "weight_versions": weight_versions(end)},
    }
    if dialect.ask.cached_details and cached:
        answer["sglext"] = {"cached_tokens_details": cached_details(end)}
    return answer


def cached_details(end: Finished) -> dict[str, int]:
    """Where the cached tokens were."""
    return {"device": end.cached_device, "host": end.cached_host}


def weight_versions(end: Finished) -> list[dict[str, Any]]:
    """Which weights made which tokens: always the same here."""
    return [{"version": "default", "start": 0, "end": end.completion_tokens}]


def meta_info(rid: str, end: Finished) -> dict[str, Any]:
    """The part of `/generate`'s meta_info that a chat may ask for."""
    cached = end.cached_device + end.cached_host
    return {
        "id": rid,
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "cached_tokens": cached,
        "cached_tokens_details": cached_details(end) if cached else None,
        "num_retractions": end.retractions,
        "queue_time": end.queue_us / 1e6,
        "weight_version": "default",
        "dp_rank": None,
    }
