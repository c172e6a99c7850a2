"""Agent programs as chat requests: what a load generator sends to play a day over HTTP.

The programs are those of the simulator. Each piece of a prompt becomes a message whose text is made
of its identity, long enough for its tokens at the workers' bytes per token, so that real routers
see real growing text; the answer's wording is stated, so that it comes back as it will be repeated.
"""

from collections.abc import Mapping
from typing import Any

from thunder_router._core import AgentProgram, AgentTurn
from thunder_router.emulator.text import ANSWER_ROLE

__all__ = ["AgentProgram", "AgentTurn", "chat_request", "exact_request"]


def chat_request(turn: AgentTurn, bytes_per_token: float) -> dict[str, Any]:
    """The body of a turn, without a model, a program's name or a wish to stream."""
    piece, tokens = turn.answer
    content = _text(piece, tokens, bytes_per_token, len(ANSWER_ROLE))
    return {
        "messages": _messages(turn, bytes_per_token, {}),
        "max_tokens": max(4096, tokens),
        "emulate": {
            "prompt_tokens": sum(tokens for _, tokens in turn.prompt),
            "output_tokens": tokens,
            "content": content,
        },
    }


def exact_request(
    turn: AgentTurn, bytes_per_token: float, said: Mapping[int, str]
) -> dict[str, Any]:
    """The same for routers that drop the fields that they do not know: nothing is stated.

    Args:
        turn: The turn.
        bytes_per_token: Of the workers.
        said: What was answered, by the identity of the answer, to be repeated word for word.
    """
    return {
        "messages": _messages(turn, bytes_per_token, said),
        "max_tokens": turn.answer[1],
        "ignore_eos": True,
    }


def _messages(
    turn: AgentTurn, bytes_per_token: float, said: Mapping[int, str]
) -> list[dict[str, str]]:
    roles = ["system", *("user", "assistant") * (len(turn.prompt) // 2 + 1)]
    return [
        {
            "role": role,
            "content": said.get(piece)
            or _text(piece, tokens, bytes_per_token, len(f"\n<|{role}|>\n")),
        }
        for role, (piece, tokens) in zip(roles, turn.prompt, strict=False)
    ]


def _text(piece: int, tokens: int, bytes_per_token: float, frame: int) -> str:
    """Text of a piece, so long that with its frame it weighs its tokens."""
    length = max(8, round(tokens * bytes_per_token) - frame)
    word = f"{piece:016x} "
    return (word * (length // len(word) + 1))[:length]
