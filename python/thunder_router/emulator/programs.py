"""Agent programs as chat requests: what a load generator sends to play a day over HTTP.

The programs are those of the simulator. Each piece of a prompt becomes a message whose text is made
of its identity, long enough for its tokens at the workers' bytes per token, so that real routers
see real growing text; the answer's wording is stated, so that it comes back as it will be repeated.
"""

from typing import Any

from thunder_router._core import AgentProgram, AgentTurn
from thunder_router.emulator.text import ANSWER_ROLE

__all__ = ["AgentProgram", "AgentTurn", "chat_request"]


def chat_request(turn: AgentTurn, bytes_per_token: float) -> dict[str, Any]:
    """The body of a turn, without a model, a program's name or a wish to stream."""
    roles = ["system", *("user", "assistant") * (len(turn.prompt) // 2 + 1)]
    messages = [
        {"role": role, "content": _text(piece, tokens, bytes_per_token, len(f"\n<|{role}|>\n"))}
        for role, (piece, tokens) in zip(roles, turn.prompt, strict=False)
    ]
    piece, tokens = turn.answer
    content = _text(piece, tokens, bytes_per_token, len(ANSWER_ROLE))
    return {
        "messages": messages,
        "max_tokens": max(4096, tokens),
        "emulate": {
            "prompt_tokens": sum(tokens for _, tokens in turn.prompt),
            "output_tokens": tokens,
            "content": content,
        },
    }


def _text(piece: int, tokens: int, bytes_per_token: float, frame: int) -> str:
    """Text of a piece, so long that with its frame it weighs its tokens."""
    length = max(8, round(tokens * bytes_per_token) - frame)
    word = f"{piece:016x} "
    return (word * (length // len(word) + 1))[:length]
