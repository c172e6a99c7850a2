"""`/v1/completions`."""

from collections.abc import Mapping
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import BadRequestError, Prompt
from thunder_router.emulator.dialects.base import DONE, Dialect, body_tokens, openai_usage, sse
from thunder_router.emulator.dialects.chat import cached_details, closed
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.text import pack_ids, utf8

__all__ = ["Completions"]


class Completions(Dialect):
    """A text completion."""

    @staticmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """A text or a list of token ids."""
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        # SGLang's default for this route is OpenAI's: 16 tokens.
        limit = body_tokens(body, "max_tokens")
        limit = 16 if limit is None else limit
        if isinstance(prompt, list) and prompt and all(isinstance(one, int) for one in prompt):
            return Prompt(pack_ids(prompt), 4.0, "", limit)
        if not isinstance(prompt, str) or not prompt:
            raise BadRequestError("prompt must be a text or a list of token ids", "Bad Request")
        return Prompt(utf8(prompt), options.bytes_per_token, prompt, limit)

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""
        return closed(self, "text_completion", self._choice(self.text(end), self.reason(end)), end)

    def first(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """A chunk of text."""
        chunk = self._chunk(self._choice(text))
        if self.ask.continuous_usage:
            chunk["usage"] = self._usage(self.ask.prompt_tokens, decoded, cached)
        return sse(chunk)

    def last(self, end: Finished) -> bytes:
        """The finish reason, and what else was asked for."""
        parts = [sse(self._chunk(self._choice("", self.reason(end))))]
        if self.ask.cached_details:
            details = {"usage": None, "sglext": {"cached_tokens_details": cached_details(end)}}
            parts.append(sse(self._chunk() | details))
        if self.ask.include_usage:
            cached = end.cached_device + end.cached_host
            usage = self._usage(end.prompt_tokens, end.completion_tokens, cached)
            parts.append(sse(self._chunk() | {"usage": usage}))
        return b"".join([*parts, DONE])

    def _usage(self, prompt: int, completion: int, cached: int) -> dict[str, Any]:
        return openai_usage(prompt, completion, cached, cache_report=self.cache_report)

    def _choice(self, text: str, reason: str | None = None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": None,
        }

    def _chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.ask.rid,
            "object": "text_completion",
            "created": int(self.created),
            "choices": list(choices),
            "model": self.ask.model,
        }
