"""Model calls of programs, and the turns that they were.

Theory of operation. A turn of a trace is its prompt's tokens, its answer's, how many leading prompt
tokens it shares with the turn before (that answer included), and the seconds until the next turn
asks. Calls say the first two and when; how much is shared follows from the texts where the calls
have any: whole equal pieces first (tools, system prompt, messages), then the equal beginning of the
next. Without texts, a prompt at least as long as the conversation before is taken to continue it,
and of a shorter one, which was rewritten, what the worker found in its cache is shared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Call", "Session", "sessions_of"]

Session = list[tuple[int, int, int, float]]
"""Turns: prompt tokens, output tokens, tokens shared with the turn before, seconds to the next."""


@dataclass(frozen=True, slots=True)
class Call:
    """One answered request.

    Attributes:
        program: Whose turn it was; None: nobody said, so it is a session of its own.
        asked_s: When it asked, seconds since any epoch.
        ended_s: When its answer was whole.
        prompt_tokens: As the answer's usage says.
        output_tokens: The same.
        cached_tokens: Of the prompt, found in a cache; None: not said.
        pieces: The prompt's text in pieces, if there is any: tools, system prompt, each message.
    """

    program: str | None
    asked_s: float
    ended_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    pieces: Sequence[str] = ()


def sessions_of(calls: Iterable[Call]) -> list[Session]:
    """Each program's turns in the order in which they asked; programs by their first."""
    by_program: dict[tuple[str | None, int], list[Call]] = {}
    for number, call in enumerate(sorted(calls, key=lambda call: call.asked_s)):
        alone = number if call.program is None else 0
        by_program.setdefault((call.program, alone), []).append(call)
    return [_session(turns) for turns in by_program.values()]


def _session(calls: Sequence[Call]) -> Session:
    session: Session = []
    for before, call, after in zip([None, *calls[:-1]], calls, [*calls[1:], None], strict=True):
        gap_s = 0.0 if after is None else max(0.0, after.asked_s - call.ended_s)
        shared = 0 if before is None else _shared(before, call)
        session.append((call.prompt_tokens, call.output_tokens, shared, round(gap_s, 3)))
    return session


def _shared(before: Call, call: Call) -> int:
    """Leading prompt tokens that the turn before had too, its answer included."""
    whole = before.prompt_tokens + before.output_tokens
    if before.pieces and call.pieces:
        if list(call.pieces[: len(before.pieces)]) == list(before.pieces):
            return min(whole, call.prompt_tokens)
        return int(call.prompt_tokens * _equal_share(before.pieces, call.pieces))
    if call.prompt_tokens >= whole:
        return whole
    return min(call.cached_tokens or 0, call.prompt_tokens)


def _equal_share(before: Sequence[str], now: Sequence[str]) -> float:
    """Share of the characters of `now` that lead to its first difference from `before`."""
    total = sum(map(len, now))
    equal = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            same = min(len(one), len(other))
            equal += next((at for at, (left, right) in pairs if left != right), same)
            break
        equal += len(one)
    return equal / total if total else 0.0
