"""OpenAI's `/v1/responses`, in the simple form: text in, one message out."""

from collections.abc import Mapping
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import BadRequestError, Prompt
from thunder_router.emulator.dialects.base import Dialect, body_tokens, sse
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.text import canonical_messages, content_text, last_text

__all__ = ["Responses"]


class Responses(Dialect):
    """A response."""

    @staticmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """Instructions and input as one text."""
        given = body.get("input")
        if isinstance(given, str) and given:
            messages: list[Any] = [{"role": "user", "content": given}]
        elif isinstance(given, list) and given:
            messages = given
        else:
            raise BadRequestError("input: Field required", "Bad Request")
        instructions = content_text(body.get("instructions"))
        if instructions:
            messages = [{"role": "system", "content": instructions}, *messages]
        return Prompt(
            text=canonical_messages(messages, body.get("tools")),
            bytes_per_token=options.bytes_per_token,
            last_message=last_text(messages),
            max_tokens=body_tokens(body, "max_output_tokens"),
        )

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""
        cut = end.aborted or self.ask.finish_reason == "length"
        usage = {
            "input_tokens": end.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": end.cached_device + end.cached_host,
                "cache_write_tokens": 0,
            },
            "output_tokens": end.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": end.prompt_tokens + end.completion_tokens,
        }
        return self._response(
            [self._message(self.text(end), "completed")],
            "incomplete" if cut else "completed",
            usage,
            {"reason": "max_output_tokens"} if cut else None,
        )

    def first(self) -> bytes:
        """The response and its message, both still empty."""
        created = self._response([], "in_progress", None, None)
        part: dict[str, Any] = {
            "type": "output_text",
            "text": "",
            "annotations": [],
            "logprobs": None,
        }
        place = {"output_index": 0, "item_id": self._item_id(), "content_index": 0}
        return b"".join(
            [
                _event("response.created", response=created),
                _event("response.in_progress", response=created),
                _event(
                    "response.output_item.added",
                    output_index=0,
                    item=self._message(None, "in_progress"),
                ),
                _event("response.content_part.added", part=part, **place),
            ]
        )

    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """A piece of text."""
        del decoded, cached
        return _event(
            "response.output_text.delta",
            output_index=0,
            item_id=self._item_id(),
            content_index=0,
            delta=text,
        )

    def last(self, end: Finished) -> bytes:
        """Everything once more, whole."""
        answer = self.whole(end)
        item = answer["output"][0]
        place = {"output_index": 0, "item_id": self._item_id(), "content_index": 0}
        return b"".join(
            [
                _event("response.output_text.done", text=self.text(end), **place),
                _event("response.content_part.done", part=item["content"][0], **place),
                _event("response.output_item.done", output_index=0, item=item),
                _event(f"response.{answer['status']}", response=answer),
            ]
        )

    def _item_id(self) -> str:
        return f"msg_{self.ask.rid}"

    def _message(self, text: str | None, status: str) -> dict[str, Any]:
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text"}
        part["logprobs"] = None
        return {
            "id": self._item_id(),
            "content": [] if text is None else [part],
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": "final_answer",
        }

    def _response(
        self, output: list[Any], status: str, usage: dict[str, Any] | None, why: Any
    ) -> dict[str, Any]:
        return {
            "id": f"resp_{self.ask.rid}",
            "object": "response",
            "created_at": int(self.created),
            "model": self.ask.model,
            "output": output,
            "status": status,
            "usage": usage,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": why,
            "instructions": None,
            "max_output_tokens": self.ask.max_tokens,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": True,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "top_p": None,
            "truncation": "disabled",
            "user": None,
            "metadata": {},
        }


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)
