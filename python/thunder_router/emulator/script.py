"""Scripted answers: what lets a real agent solve a real task against an emulated worker.

A script has one JSON object a line:

    {"match": "REGEX", "content": "...", "tool_calls": [{"name": "bash", "arguments": {...}}],
     "finish_reason": "stop", "times": 1}

The first line whose regex is found in the last message that is not the assistant's, and whose
`times` are not used up, answers. `match` defaults to everything, `finish_reason` to `tool_calls`
where there are any and `stop` elsewhere. Times are counted over all workers of the process.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thunder_router.errors import ConfigError

__all__ = ["Script", "ScriptedAnswer"]


@dataclass(frozen=True)
class ScriptedAnswer:
    """One answer, as the script has it."""

    content: str | None
    tool_calls: tuple[tuple[str, str], ...]
    """Name and JSON arguments of each."""
    finish_reason: str


@dataclass
class _Line:
    pattern: re.Pattern[str]
    answer: ScriptedAnswer
    left: int | None


@dataclass
class Script:
    """The lines in order."""

    _lines: list[_Line] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Script":
        """Reads a script file.

        Raises:
            ConfigError: it cannot be read, or a line is not as above; the message names it.
        """
        script = cls()
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"script {path}: {error.strerror}") from error
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                script._lines.append(_parse(json.loads(line)))
            except (ValueError, KeyError, TypeError, re.error) as error:
                raise ConfigError(f"script {path}, line {number}: {error}") from error
        return script

    def answer(self, last_message: str) -> ScriptedAnswer | None:
        """The answer to a prompt that ends with this message, if the script has one."""
        for line in self._lines:
            if line.left != 0 and line.pattern.search(last_message):
                if line.left is not None:
                    line.left -= 1
                return line.answer
        return None


def _parse(line: dict[str, Any]) -> _Line:
    unknown = line.keys() - {"match", "content", "tool_calls", "finish_reason", "times"}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}")
    calls = tuple(
        (str(call["name"]), _arguments(call.get("arguments", {})))
        for call in line.get("tool_calls", ())
    )
    answer = ScriptedAnswer(
        content=line.get("content"),
        tool_calls=calls,
        finish_reason=line.get("finish_reason", "tool_calls" if calls else "stop"),
    )
    return _Line(re.compile(line.get("match", ""), re.DOTALL), answer, line.get("times"))


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
