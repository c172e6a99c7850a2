"""One agent program: a conversation that grows over HTTP, with pauses while its tools run.

It is a plain client of the OpenAI chat route. The router learns which program a request belongs to
from one header, and that the program has ended from one call.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from bench.demo.tally import Tally
from bench.demo.workload import SHARED_TOKENS, Run, draw_run

__all__ = ["Agent", "Clock", "Phase"]

Phase = Literal["starting", "model", "tool"]


@dataclass(frozen=True)
class Clock:
    """Real seconds to virtual ones, counted from one moment."""

    speed: float
    began: float = field(default_factory=time.monotonic)

    def now_s(self) -> float:
        """Virtual seconds since the beginning."""
        return (time.monotonic() - self.began) * self.speed

    async def sleep(self, virtual_s: float) -> None:
        """Waits that long in virtual time."""
        await asyncio.sleep(virtual_s / self.speed)


class Agent:
    """A slot that runs one program after another until it is cancelled."""

    def __init__(self, slot: int, seed: int, client: httpx.AsyncClient, clock: Clock) -> None:
        self.tally = Tally()
        self.phase: Phase = "starting"
        self.since_s = 0.0
        self.run = draw_run(seed, slot, 0)
        self.step = self.run.first_step
        self._slot = slot
        self._seed = seed
        self._client = client
        self._clock = clock

    async def work(self) -> None:
        """Runs programs without end."""
        number = 0
        while True:
            await self._work_on(self.run)
            self.tally.programs_finished += 1
            number += 1
            self.run = draw_run(self._seed, self._slot, number)

    async def _work_on(self, run: Run) -> None:
        messages = _history(run)
        known_tokens = 0
        for index in range(run.first_step, len(run.steps)):
            self.step = index
            step = run.steps[index]
            answer = await self._ask(run, messages, step.output_tokens)
            usage = answer["usage"]
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            self.tally.step_ended(
                waited_s=self._clock.now_s() - self.since_s,
                prompt_tokens=usage["prompt_tokens"],
                cached_tokens=cached,
                known_tokens=known_tokens,
            )
            known_tokens = usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(answer["choices"][0]["message"])
            self._enter("tool")
            await self._clock.sleep(step.tool_s)
            messages.append({"role": "user", "content": _text(run.name, step.observation_tokens)})
        await self._client.post("/programs/release", json={"program_id": run.name})

    async def _ask(self, run: Run, messages: list[Any], output_tokens: int) -> Any:
        self._enter("model")
        body = {
            "model": "emulated-model",
            "messages": messages,
            "emulate": {"output_tokens": output_tokens},
        }
        headers = {"X-Thunder-Program-Id": run.name}
        answer = await self._client.post("/v1/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since_s = self._clock.now_s()


def _history(run: Run) -> list[dict[str, str]]:
    """What a program has behind it when the demo begins: one byte stands for one token."""
    messages = [
        {"role": "system", "content": _text("You are a coding agent.", SHARED_TOKENS)},
        {"role": "user", "content": _text(run.name, run.task_tokens)},
    ]
    for step in run.steps[: run.first_step]:
        messages.append({"role": "assistant", "content": _text("done", step.output_tokens)})
        messages.append({"role": "user", "content": _text(run.name, step.observation_tokens)})
    return messages


def _text(word: str, length: int) -> str:
    return (f"{word} " * (length // (len(word) + 1) + 1))[:length]
