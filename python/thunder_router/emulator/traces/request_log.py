"""Calls from a log of requests and answers: JSON lines, one call each.

Theory of operation. Logs differ in where they put things, not in what they hold. The request is
the object under `request`, `body` or `input`, or the line itself; the answer is under `response` or
`output`. Either may wrap its body (`{"body": …}`), as OpenAI's batch files do. Times are seconds or
milliseconds since 1970, or ISO 8601. Tokens are the answer's `usage`, or stand in the line. The
program is named as the router names it, by the body and the `headers` of the line; a line without
such a name is asked for the log's own: a program, a session, a trace.

Source: OpenAI's batch output, LiteLLM's `StandardLoggingPayload` and spend logs, Langfuse's
observations (API and blob export).
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from thunder_router._core import scan_request
from thunder_router.emulator.traces.calls import Call
from thunder_router.errors import ConfigError, ThunderError
from thunder_router.identity import clean, name

__all__ = ["calls"]

Object = Mapping[str, Any]

_REQUEST: Final = ("request", "body", "input")
_RESPONSE: Final = ("response", "output")
_START: Final = ("startTime", "start_time", "timestamp", "created_at")
_END: Final = ("endTime", "end_time", "completed_at")
_SECONDS: Final = ("duration_s", "latency_s", "latency")
_MILLIS: Final = ("duration_ms", "latency_ms")
_USAGE: Final = ("usage", "usageDetails", "usage_details")
_PROMPT: Final = ("prompt_tokens", "promptTokens")
_INPUT: Final = ("input_tokens", "inputUsage", "input")
_READ: Final = ("cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
_WRITTEN: Final = ("cache_creation_input_tokens", "input_cache_creation")
"""Counted beside `_INPUT` by Anthropic's usage and by Langfuse, within it by all others."""
_OUTPUT: Final = (
    "completion_tokens",
    "output_tokens",
    "completionTokens",
    "outputUsage",
    "output",
)
_NAMES: Final = (
    "program_id",
    "session_id",
    "sessionId",
    "litellm_session_id",
    "trace_id",
    "traceId",
)
_TEXT: Final = ("tools", "system", "instructions", "messages", "prompt", "input")
_MILLIS_ABOVE: Final = 1e11
"""Seconds since 1970 would be the year 5138: such a number is milliseconds."""


def calls(path: Path) -> Iterator[Call]:
    """Every answered request of a log.

    Those that failed are left out, and observations that are no call of a model.

    Raises:
        ConfigError: a line is no JSON object, or lacks its time or its tokens; the message names
            the line.
    """
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ConfigError("not a JSON object")
                if _is_call(line):
                    yield _call(line)
            except json.JSONDecodeError as error:
                raise ConfigError(f"{path}:{number}: not JSON: {error.msg}") from error
            except ThunderError as error:
                raise ConfigError(f"{path}:{number}: {error}") from error


def _is_call(line: Object) -> bool:
    """Answered, by a model."""
    if str(line.get("type", "GENERATION")).upper() not in ("GENERATION", "REQUEST"):
        return False
    if line.get("error") or line.get("status") in ("failure", "error", "failed"):
        return False
    if str(line.get("level", "")).upper() == "ERROR":
        return False
    response = line.get("response")
    status = response.get("status_code", 200) if isinstance(response, dict) else 200
    return not (isinstance(status, int) and status >= 400)


def _call(line: Object) -> Call:
    request, response = _body(line, _REQUEST) or line, _body(line, _RESPONSE) or {}
    asked_s = _first_time(line, _START)
    if asked_s is None and response.get("created") is not None:
        asked_s = _seconds("created", response["created"])
    if asked_s is None:
        raise ConfigError(f"no time at which it asked ({', '.join(_START)})")
    places = [response.get(key) for key in _USAGE] + [line.get(key) for key in _USAGE] + [line]
    usages = [usage for place in places if (usage := _object(place)) is not None]
    usage = next((one for one in usages if _prompt_tokens(one) is not None), line)
    prompt, output = _prompt_tokens(usage), _count(usage, _OUTPUT)
    if prompt is None or output is None:
        raise ConfigError("no usage: how many tokens prompt and answer had is not said")
    return Call(
        program=_program(line, request),
        asked_s=asked_s,
        ended_s=max(asked_s, _ended(line, response, asked_s)),
        prompt_tokens=max(1, prompt),
        output_tokens=max(1, output),
        cached_tokens=_cached(usage),
        pieces=_pieces(request),
    )


def _parsed(value: Any) -> Any:
    """What a log holds as a JSON string, as what it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _object(value: Any) -> Object | None:
    value = _parsed(value)
    return value if isinstance(value, dict) else None


def _body(line: Object, keys: tuple[str, ...]) -> Object | None:
    for key in keys:
        found = _object(line.get(key))
        if found is not None:
            return _object(found.get("body")) or found
        messages = _parsed(line.get(key))
        if key == "input" and isinstance(messages, list):
            return {"messages": messages}
    return None


def _first_time(line: Object, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        if line.get(key) is not None:
            return _seconds(key, line[key])
    return None


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return value / 1000 if value > _MILLIS_ABOVE else float(value)
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    raise ConfigError(f"{key} = {value!r} is no time")


def _ended(line: Object, response: Object, asked_s: float) -> float:
    """When the answer was whole: as said, or after its duration, or when it was made."""
    ended_s = _first_time(line, _END)
    if ended_s is not None:
        return ended_s
    for keys, scale in ((_SECONDS, 1), (_MILLIS, 1000)):
        for key in keys:
            value = line.get(key)
            if isinstance(value, (int, float)):
                return asked_s + value / scale
    created = response.get("created")
    return asked_s if created is None else _seconds("created", created)


def _prompt_tokens(usage: Object) -> int | None:
    """All of the prompt's, those found in a cache included."""
    whole = _count(usage, _PROMPT)
    part = _count(usage, _INPUT)
    if whole is not None or part is None:
        return whole
    return part + (_count(usage, _READ) or 0) + (_count(usage, _WRITTEN) or 0)


def _count(usage: Object, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = usage.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _cached(usage: Object) -> int | None:
    for key in ("prompt_tokens_details", "input_tokens_details"):
        details = _object(usage.get(key))
        if details is not None:
            return _count(details, ("cached_tokens",))
    return _count(usage, _READ)


def _program(line: Object, request: Object) -> str | None:
    """Its name by the router's rules, or else by the log's."""
    headers = _object(line.get("headers")) or {}
    facts = scan_request(json.dumps(request).encode(), "chat")
    said = [(key.lower().encode(), str(value).encode()) for key, value in headers.items()]
    program = name(facts.identity, said).program
    if program is not None:
        return program
    metadata = _object(line.get("metadata")) or {}
    for where in (line, metadata):
        for key in _NAMES:
            value = where.get(key)
            if isinstance(value, str) and (known := clean(value)) is not None:
                return known
    return None


def _pieces(request: Object) -> tuple[str, ...]:
    pieces: list[str] = []
    for key in _TEXT:
        value = request.get(key)
        if isinstance(value, list) and key != "tools":
            pieces.extend(json.dumps(each, sort_keys=True) for each in value)
        elif value is not None:
            pieces.append(json.dumps(value, sort_keys=True))
    return tuple(pieces)
