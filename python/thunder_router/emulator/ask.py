"""One inference request, whichever route it came by: what the engine and the answer need of it."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.script import Script
from thunder_router.emulator.text import (
    answer_text,
    count_tokens,
    draw_length,
    filler,
    is_unicode,
    pack_ids,
    seeded,
    utf8,
)

__all__ = ["Ask", "BadRequestError", "Prompt", "plan"]


class BadRequestError(Exception):
    """The body cannot be served; `message` is for the client.

    `kind` is SGLang's: `Bad Request` where the body is not what the route takes, `BadRequestError`
    where a value in it makes no sense.
    """

    def __init__(self, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


@dataclass(frozen=True)
class Prompt:
    """What a route makes of its body, before any answer is thought of."""

    text: bytes
    bytes_per_token: float
    last_message: str
    """What a script is matched against."""
    max_tokens: int | None
    ids: bool = False
    """It came as token ids, and the next one will hold the answer's ids."""


@dataclass(frozen=True)
class Ask:
    """A request with its answer, ready for the engine."""

    rid: str
    model: str
    stream: bool
    prompt: bytes
    prompt_tokens: int
    bytes_per_token: float
    answer: bytes
    """The answer as the next turn's prompt will hold it."""
    content: str | None
    output_ids: tuple[int, ...]
    tool_calls: tuple[tuple[str, str], ...]
    finish_reason: str
    output_tokens: int
    max_tokens: int
    priority: int
    session: str | None
    rank: int | None
    include_usage: bool
    continuous_usage: bool
    cached_details: bool
    return_meta_info: bool
    timings: bool
    """Its answer is to say how long the engine had it."""


def plan(
    body: Mapping[str, Any],
    prompt: Prompt,
    options: EmulatorOptions,
    script: Script,
    headers: Mapping[bytes, bytes],
) -> Ask:
    """Decides the answer: scripted, stated, or drawn from the seed.

    The body may state `emulate.prompt_tokens`, `emulate.output_tokens`, `emulate.content` and
    `emulate.timings`; where a gateway on the way drops what it does not know, the same object as
    JSON text in `metadata.emulate`, which is a field of OpenAI's.

    Raises:
        BadRequestError: a field has a wrong type or an impossible value, or the prompt is longer
            than the model's context.
    """
    stated = _stated(body)
    tokens = _count(stated, "prompt_tokens") or count_tokens(prompt.text, prompt.bytes_per_token)
    _check_sampling(body)
    max_tokens = _limit(prompt.max_tokens, tokens, options.context_length)
    wording = stated.get("content")
    if wording is not None and not isinstance(wording, str):
        raise BadRequestError("emulate.content must be a string", "Bad Request")
    scripted = script.answer(prompt.last_message)
    draw = seeded(options.seed, prompt.text)
    finish_reason = "stop"
    content: str | None
    calls: tuple[tuple[str, str], ...] = ()
    if scripted is not None:
        content, calls = scripted.content, scripted.tool_calls
        finish_reason = scripted.finish_reason
        weight = len(content or "") + sum(len(name) + len(text) for name, text in calls)
        output = max(1, round(weight / options.bytes_per_token))
        max_tokens = max(max_tokens, output)
    else:
        output = _count(stated, "output_tokens") or 0
        if output:
            if tokens + output > options.context_length:
                raise BadRequestError("emulate.output_tokens is beyond the context length")
            max_tokens = max(max_tokens, output)
        elif _sampling(body).get("ignore_eos"):
            output = max_tokens
        else:
            output = min(max_tokens, draw_length(draw, options.median_output_tokens))
        if output >= max_tokens:
            finish_reason = "length"
        if wording is None:
            wording = filler(draw, max(1, round(output * prompt.bytes_per_token)))
        content = wording
    stream_options = body.get("stream_options") or {}
    if not isinstance(stream_options, Mapping):
        raise BadRequestError("stream_options must be an object", "Bad Request")
    output_ids = tuple(draw.choices(range(1000, 150_000), k=output)) if prompt.ids else ()
    continuous = bool(stream_options.get("continuous_usage_stats"))
    return Ask(
        rid=_text(body, "rid") or uuid.uuid4().hex,
        model=_text(body, "model") or options.model,
        stream=bool(body.get("stream")),
        prompt=prompt.text,
        prompt_tokens=tokens,
        bytes_per_token=prompt.bytes_per_token,
        answer=pack_ids(output_ids) if prompt.ids else utf8(answer_text(content, calls)),
        content=content,
        output_ids=output_ids,
        tool_calls=calls,
        finish_reason=finish_reason,
        output_tokens=output,
        max_tokens=max_tokens,
        priority=_integer(body, "priority") or 0,
        session=_text(body, "session_id"),
        rank=_rank(body, headers, options.dp_size),
        include_usage=bool(stream_options.get("include_usage")) or continuous,
        continuous_usage=continuous,
        cached_details=bool(body.get("return_cached_tokens_details")),
        return_meta_info=bool(body.get("return_meta_info")),
        timings=bool(stated.get("timings")),
    )


def _stated(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the body says of its own answer."""
    stated = body.get("emulate")
    metadata = body.get("metadata")
    if stated is None and isinstance(metadata, Mapping) and "emulate" in metadata:
        try:
            stated = json.loads(metadata["emulate"])
        except (TypeError, ValueError):
            raise BadRequestError("metadata.emulate must be JSON text", "Bad Request") from None
    if not isinstance(stated or {}, Mapping):
        raise BadRequestError("emulate must be an object", "Bad Request")
    return stated or {}


def _limit(max_tokens: int | None, prompt_tokens: int, context: int) -> int:
    if prompt_tokens >= context:
        raise BadRequestError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length "
            f"({context} tokens)."
        )
    if max_tokens is None:
        return context - prompt_tokens
    if prompt_tokens + max_tokens > context:
        raise BadRequestError(
            f"Requested token count exceeds the model's maximum context length of {context} "
            f"tokens. You requested a total of {prompt_tokens + max_tokens} tokens: "
            f"{prompt_tokens} tokens from the input messages and {max_tokens} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the "
            "completion to fit within the limit."
        )
    return max(1, max_tokens)


def _check_sampling(body: Mapping[str, Any]) -> None:
    where = _sampling(body)
    temperature = where.get("temperature")
    if isinstance(temperature, (int, float)) and not 0 <= temperature < float("inf"):
        raise BadRequestError(
            f"temperature must be a non-negative finite number, got {float(temperature)}."
        )
    if (where.get("n") or 1) != 1:
        raise BadRequestError("n must be 1: parallel samples are not emulated.")


def _sampling(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where the route keeps its sampling parameters."""
    parameters = body.get("sampling_params")
    return parameters if isinstance(parameters, Mapping) else body


def _rank(body: Mapping[str, Any], headers: Mapping[bytes, bytes], dp_size: int) -> int | None:
    header = headers.get(b"x-data-parallel-rank")
    rank: int | None
    if header is not None:
        try:
            rank = int(header)
        except ValueError:
            raise BadRequestError(f"invalid X-Data-Parallel-Rank {header!r}") from None
    else:
        rank = _integer(body, "routed_dp_rank")
        if rank is None:
            rank = _integer(body, "data_parallel_rank")
    if rank is not None and not 0 <= rank < dp_size:
        raise BadRequestError(f"routed_dp_rank={rank} out of range [0, {dp_size})")
    return rank


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"{name} must be a string", "Bad Request")
    if value and not is_unicode(value):
        raise BadRequestError(f"{name} must be Unicode text", "Bad Request")
    return value or None


def _integer(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadRequestError(f"{name} must be an integer", "Bad Request")
    if value is not None and not -(2**63) <= value < 2**63:
        raise BadRequestError(f"{name} must fit 64 bits", "Bad Request")
    return value


def _count(stated: Mapping[str, Any], name: str) -> int | None:
    value = _integer(stated, name)
    if value is not None and value < 1:
        raise BadRequestError(f"emulate.{name} must be at least 1")
    return value
