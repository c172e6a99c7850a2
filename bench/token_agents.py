"""Agent programs that speak in token ids, so that every size is exact whatever a model says.

Each program starts from a prompt of its own, and every turn adds the model's answer and what a tool
said. How many of them are at work at once may be limited here, by a gate that a program passes once
and keeps to its end: what an operator who knows the best number beforehand would do.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import Any

import httpx

__all__ = ["Tally", "Workload", "run"]

FIRST_ID, LAST_ID = 10, 1000
"""Token ids to draw from: above the special ones, within the vocabulary."""


@dataclass(frozen=True)
class Workload:
    """Sizes in tokens. By default that of SGLANG.md §8.4: from 500 to 1,250 in six turns."""

    programs: int = 12
    turns: int = 6
    first: int = 500
    output: int = 30
    observation: int = 120
    tool_s: float = 0.15


@dataclass
class Tally:
    """What all programs together were given."""

    seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    longest_turn_s: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that the engine found in its cache."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def output_per_s(self) -> float:
        """Output tokens per second."""
        return self.output_tokens / self.seconds


async def run(url: str, load: Workload, *, seed: int, gate: int | None = None) -> Tally:
    """Runs all programs to their ends against the router at `url`.

    Args:
        url: Of the router.
        load: How many programs of which size.
        seed: Of the token ids: the same seed, the same prompts.
        gate: So many programs at once. None: all.

    Raises:
        httpx.HTTPError: a request failed: none may.
    """
    tally = Tally()
    door = contextlib.nullcontext() if gate is None else asyncio.Semaphore(gate)
    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:

        async def program(number: int) -> None:
            async with door:
                await _live(client, load, f"program-{seed}-{number:02d}", tally)

        async with asyncio.TaskGroup() as group:
            for number in range(load.programs):
                group.create_task(program(number))
    tally.seconds = time.perf_counter() - began
    return tally


async def _live(client: httpx.AsyncClient, load: Workload, name: str, tally: Tally) -> None:
    """One program, from its first turn to its release."""
    draw = random.Random(name)
    context = _tokens(draw, load.first)
    for turn in range(load.turns):
        if turn:
            await asyncio.sleep(load.tool_s)
            context += _tokens(draw, load.observation)
        asked = time.perf_counter()
        answer = await client.post("/generate", json=_body(name, context, load.output))
        said = answer.raise_for_status().json()
        tally.longest_turn_s = max(tally.longest_turn_s, time.perf_counter() - asked)
        meta = said["meta_info"]
        tally.prompt_tokens += meta["prompt_tokens"]
        tally.cached_tokens += meta["cached_tokens"]
        tally.output_tokens += meta["completion_tokens"]
        context += said["output_ids"]
    ended = await client.post("/programs/release", json={"program_id": name})
    ended.raise_for_status()


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(FIRST_ID, LAST_ID) for _ in range(count)]


def _body(name: str, context: list[int], output: int) -> dict[str, Any]:
    sampling = {"max_new_tokens": output, "ignore_eos": True, "temperature": 0}
    return {"program_id": name, "input_ids": context, "sampling_params": sampling}
