"""SGLang's own `/generate`: text or ids in, text, ids and meta_info out, cumulative streams."""

import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from thunder_router._core import Finished
from thunder_router.emulator.ask import BadRequestError, Prompt
from thunder_router.emulator.dialects.base import DONE, Dialect, body_tokens, sse
from thunder_router.emulator.dialects.chat import cached_details, weight_versions
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.text import pack_ids, utf8

__all__ = ["Generate"]


class Generate(Dialect):
    """A native generation."""

    @staticmethod
    def prompt(body: Mapping[str, Any], options: EmulatorOptions) -> Prompt:
        """`text` or `input_ids`, with the limit in `sampling_params`."""
        parameters = body.get("sampling_params") or {}
        if not isinstance(parameters, Mapping):
            raise BadRequestError("sampling_params must be an object")
        limit = body_tokens(parameters, "max_new_tokens")
        limit = 128 if limit is None else limit
        ids, text = body.get("input_ids"), body.get("text")
        if isinstance(ids, list) and ids and all(isinstance(one, int) for one in ids):
            return Prompt(pack_ids(ids), 4.0, "", limit, ids=True)
        if not isinstance(text, str) or not text:
            raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
        return Prompt(utf8(text), options.bytes_per_token, text, limit)

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer in one piece."""
        return self._answer(self.text(end), end.completion_tokens, self._ended(end))

    def first(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def delta(self, text: str, decoded: int, cached: int) -> bytes:
        """All text so far."""
        del text
        meta = self._meta(decoded, cached, None)
        return sse(self._answer((self.ask.content or "")[: self._sent], decoded, meta))

    def last(self, end: Finished) -> bytes:
        """All text, with the finish reason."""
        return sse(self.whole(end)) + DONE

    @classmethod
    def error(cls, status: int, message: str, kind: str) -> dict[str, Any]:
        """The body of an error."""
        del status, kind
        return {"error": {"message": message}}

    @classmethod
    def error_event(cls, status: int, message: str) -> bytes:
        """An error in a stream that began with 200."""
        error = {
            "message": message,
            "type": HTTPStatus(status).name,
            "code": status,
            "retryable": status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        }
        return b"data: " + json.dumps({"error": error}).encode() + b"\n\n" + DONE

    def _answer(self, text: str, decoded: int, meta: dict[str, Any]) -> dict[str, Any]:
        # Only prompts of ids go on from the answer's ids; elsewhere they are only counted.
        ids = list(self.ask.output_ids[:decoded]) if self.ask.output_ids else [0] * decoded
        return {"text": text, "output_ids": ids, "meta_info": meta}

    def _meta(self, decoded: int, cached: int, reason: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self.ask.rid,
            "finish_reason": reason,
            "prompt_tokens": self.ask.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "queue_time": 0.0,
            "reasoning_tokens": 0,
            "completion_tokens": decoded,
            "cached_tokens": cached,
            "cached_tokens_details": None,
            "dp_rank": self.ask.rank,
        }

    def _ended(self, end: Finished) -> dict[str, Any]:
        kind = self.reason(end)
        reason: dict[str, Any] = {"type": kind}
        if kind == "length":
            reason["length"] = end.completion_tokens
        elif kind == "abort":
            reason |= {"message": "Abort before prefill", "status_code": None, "err_type": None}
        else:
            reason["matched"] = None
        cached = end.cached_device + end.cached_host
        now = time.time()
        meta = self._meta(end.completion_tokens, cached, reason)
        meta |= {
            "num_retractions": end.retractions,
            "queue_time": end.queue_us / 1e6,
            "cached_tokens_details": cached_details(end) if cached else None,
            "weight_versions": weight_versions(end),
            "e2e_latency": now - self.created,
            "request_received_ts": self.created,
            "request_finished_ts": now,
            "response_sent_to_client_ts": now,
        }
        return meta
