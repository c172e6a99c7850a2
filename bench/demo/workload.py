"""The agent runs of the demo, drawn from a seed: same seed, same runs, whoever schedules them.

The shape is that of OpenHands on SWE-bench tasks: a long shared system prompt, a task of its own,
then steps of a short answer, a tool that takes a moment, and what the tool said. Sizes are tokens,
times are seconds of the emulated engine's own, virtual, time.

Source: the `openhands_swe` fit that thunder-sim's workloads use; ln(m, s) below is a log-normal
draw with median m and log-deviation s.
"""

import math
import random
from dataclasses import dataclass

__all__ = ["SHARED_TOKENS", "Run", "Step", "draw_run"]

SHARED_TOKENS = 5500
"""System prompt and tool schemas, the same for all runs."""
MAX_STEPS = 50


@dataclass(frozen=True)
class Step:
    """One turn: what the model says, then what the tool does with it."""

    output_tokens: int
    tool: str
    tool_s: float
    observation_tokens: int


@dataclass(frozen=True)
class Run:
    """One agent run from its task to its end."""

    name: str
    task_tokens: int
    steps: tuple[Step, ...]
    first_step: int
    """Where it stands when the demo begins: earlier steps are in its history already."""


def draw_run(seed: int, slot: int, number: int) -> Run:
    """The `number`th run of a slot.

    A slot's first run begins somewhere in its middle, so that the demo starts in the steady state
    instead of waiting for it.
    """
    draw = random.Random(f"{seed}/{slot}/{number}")
    count = min(MAX_STEPS, max(6, round(_lognormal(draw, 40, 0.35))))
    steps = tuple(_step(draw) for _ in range(count))
    return Run(
        name=f"agent-{slot:03d}-{number}",
        task_tokens=min(4000, int(_lognormal(draw, 900, 0.5))),
        steps=steps,
        first_step=draw.randrange(count) if number == 0 else 0,
    )


def _step(draw: random.Random) -> Step:
    tool, tool_s = _tool(draw)
    return Step(
        output_tokens=max(20, min(4000, int(_lognormal(draw, 200, 0.85)))),
        tool=tool,
        tool_s=tool_s,
        observation_tokens=max(10, min(6000, int(_lognormal(draw, 220, 1.2)))),
    )


def _tool(draw: random.Random) -> tuple[str, float]:
    kind = draw.random()
    if kind < 0.40:
        return "edit", _lognormal(draw, 0.07, 0.6)
    if kind < 0.85:
        return "bash", min(30.0, _lognormal(draw, 0.6, 1.0))
    return "test", min(120.0, _lognormal(draw, 3.5, 1.1))


def _lognormal(draw: random.Random, median: float, deviation: float) -> float:
    return median * math.exp(draw.gauss(0, deviation))
