"""Prompts as bytes, and bytes as tokens.

Prefix identity comes from real growing text: a conversation's canonical text begins with that of
the turn before, answer included, so long as the client sends back what it was given. Tokens are
counted at a fixed number of UTF-8 bytes each; token ids weigh four bytes and count exactly.
"""

import json
import math
import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "ANSWER_ROLE",
    "answer_text",
    "canonical_messages",
    "content_text",
    "count_tokens",
    "draw_length",
    "filler",
    "is_unicode",
    "last_text",
    "pack_ids",
    "seeded",
    "utf8",
]

ANSWER_ROLE = b"\n<|assistant|>\n"
"""What a chat template ends a prompt with: the answer follows."""

_WORDS = (
    *("the", "file", "test", "value", "line", "check", "module", "returns", "error", "path"),
    *("build", "index", "node", "state", "queue", "token", "cache", "batch", "result", "so"),
    *("update", "config", "reads", "writes", "first", "last", "then", "next", "because"),
)


def canonical_messages(messages: Sequence[Any], tools: Any = None) -> bytes:
    """A chat prompt as one text: tools, each message under its role, and the cue to answer."""
    parts: list[str] = []
    if tools:
        parts.append("<|tools|>\n" + _compact(tools))
    for message in messages:
        if isinstance(message, Mapping):
            parts.append(f"\n<|{message.get('role', 'user')}|>\n{_message_text(message)}")
        else:
            parts.append("\n<|user|>\n" + str(message))
    return utf8("".join(parts)) + ANSWER_ROLE


def answer_text(content: str | None, calls: Iterable[tuple[str, str]]) -> str:
    """An answer as the next turn's prompt will hold it; `calls` are names and JSON arguments."""
    return (content or "") + "".join(f"\n<|call|>{name}{arguments}" for name, arguments in calls)


def _message_text(message: Mapping[str, Any]) -> str:
    calls = []
    given = message.get("tool_calls")
    for call in given if isinstance(given, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            calls.append((str(function.get("name", "")), str(function.get("arguments", ""))))
    return answer_text(content_text(message.get("content")), calls)


def content_text(content: Any) -> str:
    """The text of a message's content, whichever of the allowed forms it has."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return _compact(content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text")
        if isinstance(text, str):
            return text
        if "content" in part:
            return content_text(part["content"])
        # Media weigh a little text, whatever their size: the model has no vision tower.
        return f"<|media {zlib.crc32(utf8(_compact(part))):08x}|>"
    return _compact(part)


def last_text(messages: Sequence[Any]) -> str:
    """Text of the last message that is not the assistant's: what a script is matched against."""
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") != "assistant":
            return content_text(message.get("content"))
    return ""


def utf8(text: str) -> bytes:
    """Bytes of `text`. JSON may smuggle half a surrogate pair in; it weighs three bytes."""
    return text.encode("utf-8", "surrogatepass")


def is_unicode(text: str) -> bool:
    """Whether `text` is free of lone surrogates, which names may not have."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as bytes, four each."""
    return b"".join((token & 0xFFFFFFFF).to_bytes(4, "little") for token in ids)


def count_tokens(text: bytes, bytes_per_token: float) -> int:
    """Tokens of `text`, at least one."""
    return max(1, math.ceil(len(text) / bytes_per_token))


def seeded(seed: int, prompt: bytes) -> random.Random:
    """A generator that depends on nothing but the worker's seed and the prompt."""
    return random.Random((seed << 32) | zlib.crc32(prompt))


def draw_length(draw: random.Random, median: float) -> int:
    """Tokens of an answer: log-normal. Source: mini-SWE-agent's outputs, log-deviation 0.85."""
    return max(1, min(4000, round(draw.lognormvariate(math.log(median), 0.85))))


def filler(draw: random.Random, length: int) -> str:
    """Plain words, exactly `length` characters."""
    if length <= 0:
        return ""
    text = " ".join(draw.choices(_WORDS, k=length // 4 + 2))
    return text[:length].ljust(length, ".")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
