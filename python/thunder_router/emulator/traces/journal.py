"""Calls from the router's journal: what it scheduled is what the simulator can play again."""

from collections.abc import Iterator
from pathlib import Path

from thunder_router.emulator.traces.calls import Call
from thunder_router.scheduling import journal
from thunder_router.scheduling.whatif import turns_of

__all__ = ["calls"]


def calls(path: Path) -> Iterator[Call]:
    """Every answered request of a journal, without texts: it holds none.

    Raises:
        ConfigError: not a journal, or a line of it is broken.
    """
    _, lines = journal.read(path)
    turns, _ = turns_of(lines)
    for turn in turns:
        if turn.end is None or turn.ended_ms is None or turn.end[0] != "finished":
            continue
        usage = turn.end[1]
        prompt = usage["prompt_tokens"]
        if prompt is None:
            prompt = turn.arrival["prompt_tokens"]
        yield Call(
            program=turn.arrival["program"],
            asked_s=turn.arrived_ms / 1000,
            ended_s=turn.ended_ms / 1000,
            prompt_tokens=max(1, prompt),
            output_tokens=max(1, usage["completion_tokens"] or 1),
            cached_tokens=usage["cached_tokens"],
        )
