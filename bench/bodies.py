"""The request bodies of a measurement, written to a folder once.

Three shapes stand for what agents send: a small chat request (about 200 bytes), one turn of a
coding agent (about 100 KB: system prompt, tool schemas, tool calls and tool results), and whole
conversations that grow turn by turn to about 100 KB. The text is the standard library's own
source, so that JSON escapes and newlines are as frequent as in life; the choice of pieces is
seeded, so two runs on one Python send the same bytes.
"""

import json
import os
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Bodies", "write_bodies"]

SESSIONS = 48
TURNS = 10
AGENT_BYTES = 100_000
UNIQUE_MARK = "You are a coding agent. "
"""Where the load script splices a number in to make every prompt a different one."""

Message = dict[str, Any]


@dataclass(frozen=True)
class Bodies:
    """Where the bodies lie."""

    folder: Path
    small: Path
    small_stream: Path
    agent: Path
    conversation: Path
    """A folder of SESSIONS * TURNS numbered files, in the order in which to send them."""
    conversation_files: int


@cache
def _source_text() -> str:
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:120]
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


class _Author:
    """Writes plausible messages from real source text."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def piece(self, characters: int) -> str:
        text = _source_text()
        start = self._random.randrange(len(text) - characters)
        return text[start : start + characters]

    def system(self) -> Message:
        return {"role": "system", "content": UNIQUE_MARK + self.piece(6000)}

    def tools(self) -> list[Message]:
        return [
            {
                "type": "function",
                "function": {
                    "name": f"tool_{number}",
                    "description": self.piece(300),
                    "parameters": {
                        "type": "object",
                        "properties": {
                            f"p{field}": {"type": "string", "description": self.piece(80)}
                            for field in range(4)
                        },
                        "required": ["p0"],
                    },
                },
            }
            for number in range(8)
        ]

    def turn(self, number: int, result_characters: int) -> list[Message]:
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {
                "name": f"tool_{number % 8}",
                "arguments": json.dumps({"p0": self.piece(150)}),
            },
        }
        return [
            {"role": "assistant", "content": self.piece(200), "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"call_{number}",
                "content": self.piece(result_characters),
            },
        ]


def _encode(body: Message) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _agent_request(messages: list[Message], tools: list[Message], **extra: Any) -> bytes:
    return _encode(
        {
            "model": "mock-model",
            "messages": messages,
            "tools": tools,
            "temperature": 1.0,
            "top_p": 0.95,
            "max_tokens": 4096,
            **extra,
        }
    )


def write_bodies(folder: Path, *, seed: int = 7) -> Bodies:
    """Writes every body under `folder` and says where each is."""
    author = _Author(seed)
    conversation = folder / "conversation"
    conversation.mkdir(parents=True, exist_ok=True)
    bodies = Bodies(
        folder=folder,
        small=folder / "small.json",
        small_stream=folder / "small_stream.json",
        agent=folder / "agent.json",
        conversation=conversation,
        conversation_files=SESSIONS * TURNS,
    )

    small = {
        "model": "mock-model",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Hello, what is the capital of France?"},
        ],
        "max_tokens": 64,
        "temperature": 0.7,
    }
    bodies.small.write_bytes(_encode(small))
    stream = {**small, "stream": True, "stream_options": {"include_usage": True}}
    bodies.small_stream.write_bytes(_encode(stream))

    system, tools = author.system(), author.tools()
    messages = [system, {"role": "user", "content": author.piece(1500)}]
    turn = 0
    while len(_agent_request(messages, tools)) < AGENT_BYTES:
        messages += author.turn(turn, 4000)
        turn += 1
    bodies.agent.write_bytes(_agent_request(messages, tools))

    sessions = [
        [system, {"role": "user", "content": f"task {number} " + author.piece(1500)}]
        for number in range(SESSIONS)
    ]
    for turn in range(TURNS):
        for number, session in enumerate(sessions):
            session += author.turn(turn, 7000)
            body = _agent_request(session, tools, program_id=f"program-{number}")
            (conversation / f"{turn * SESSIONS + number:04d}.json").write_bytes(body)
    return bodies
