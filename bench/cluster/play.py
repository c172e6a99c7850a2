"""The programs of a day, in a closed loop over HTTP, and what their clients see.

They are the simulator's own (`AgentProgram`), so that every router meets the same ones under the
same seed. Requests state nothing that a router might drop: an answer's length is asked for as an
exact number of tokens, and its wording is repeated in the next turn as it came.
"""

import asyncio
from array import array
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from thunder_router.emulator.programs import AgentProgram, AgentTurn, exact_request
from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["BYTES_PER_TOKEN", "Play", "Seen"]

BYTES_PER_TOKEN = 1.0
_Answer = dict[str, Any]
_RETRY_S = 1.0
"""Engine seconds that a client waits after an error."""


@dataclass
class Seen:
    """Sums over the measured part of a day. Times are engine seconds."""

    steps: int = 0
    programs: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    """Prompt tokens that a perfect cache would have found, and this one did not."""
    turns_s: "array[float]" = field(default_factory=lambda: array("d"))
    """From asking to the answer, holding included; the unanswered at the end count as they are."""
    lags_s: "array[float]" = field(default_factory=lambda: array("d"))
    """How late the client heard of its tools' ends."""


class Play:
    """One day against one router.

    Args:
        day: What is played.
        seed: Which programs.
        speed: Engine seconds in a real one.
        url: The router's.
        releases: It wants to know when a program has ended.
    """

    def __init__(
        self, day: SimulationOptions, seed: int, speed: float, url: str, *, releases: bool
    ) -> None:
        self.seen = Seen()
        self._day = day
        self._seed = seed
        self._speed = speed
        self._url = url
        self._releases = releases and not day.never_release
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._asked_s: dict[int, float] = {}

    def now_s(self) -> float:
        """Engine seconds since the beginning."""
        return (self._loop.time() - self._began) * self._speed

    async def run(self) -> Seen:
        """Plays the day to its end."""
        end_s = self._day.warmup_s + self._day.measured_s
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
            slots = [
                asyncio.create_task(self._slot(client, slot)) for slot in range(self._day.programs)
            ]
            done, _ = await asyncio.wait(
                slots, timeout=end_s / self._speed, return_when=asyncio.FIRST_EXCEPTION
            )
            over_s = self.now_s()
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            for failed in done:
                failed.result()
        for asked_s in self._asked_s.values():
            self.seen.turns_s.append(over_s - asked_s)
        return self.seen

    async def _slot(self, client: aiohttp.ClientSession, slot: int) -> None:
        """One program after another, without end."""
        ordinal = 0
        while True:
            program = AgentProgram(
                workload=self._day.workload,
                seed=self._seed,
                slot=slot,
                ordinal=ordinal,
                tool_scale=self._day.tool_scale,
                midway=ordinal == 0,
            )
            await self._program(client, slot, f"agent-{slot}-{ordinal}", program)
            if self._measures:
                self.seen.programs += 1
            ordinal += 1

    async def _program(
        self, client: aiohttp.ClientSession, slot: int, name: str, program: AgentProgram
    ) -> None:
        said: dict[int, str] = {}
        while (turn := program.turn()) is not None:
            body = exact_request(turn, BYTES_PER_TOKEN, said)
            body |= {"model": self._day.model, "program_id": name}
            self._asked_s[slot] = self.now_s()
            answer = await self._ask(client, body)
            asked_s = self._asked_s.pop(slot)
            said[turn.answer[0]] = answer["choices"][0]["message"]["content"]
            if self._measures:
                self._count(turn, answer["usage"], self.now_s() - asked_s)
            if turn.tool is not None:
                due = self._loop.time() + turn.tool_us / 1e6 / self._speed
                await asyncio.sleep(due - self._loop.time())
                self.seen.lags_s.append((self._loop.time() - due) * self._speed)
        if self._releases:
            url = f"{self._url}/programs/release"
            async with client.post(url, json={"program_id": name}) as released:
                await released.read()

    async def _ask(self, client: aiohttp.ClientSession, body: dict[str, object]) -> _Answer:
        """The answer, however often it takes."""
        while True:
            try:
                async with client.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                    if answer.status == 200:
                        found: _Answer = await answer.json()
                        return found
                    await answer.read()
            except aiohttp.ClientError:
                pass
            self.seen.failures += 1
            await asyncio.sleep(_RETRY_S / self._speed)

    @property
    def _measures(self) -> bool:
        return self.now_s() >= self._day.warmup_s

    def _count(self, turn: AgentTurn, usage: _Answer, turn_s: float) -> None:
        seen = self.seen
        details = usage["prompt_tokens_details"] or {}
        cached = details.get("cached_tokens") or 0
        seen.steps += 1
        seen.turns_s.append(turn_s)
        seen.prompt_tokens += usage["prompt_tokens"]
        seen.cached_tokens += cached
        seen.recomputed_tokens += max(0, turn.reusable_tokens - cached)
