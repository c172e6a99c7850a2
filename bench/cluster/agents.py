"""The programs of a day, in a closed loop over HTTP, and what their clients see.

They are the simulator's own (`AgentProgram`), so that every router meets the same ones under the
same seed. What the emulated worker is told of an answer travels in `metadata`, which gateways pass
on where they drop fields that OpenAI does not have.
"""

import asyncio
import json
import random
from array import array
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from thunder_router.emulator.programs import AgentProgram, AgentTurn, chat_request
from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["BYTES_PER_TOKEN", "Agents", "Seen"]

BYTES_PER_TOKEN = 4.0
"""As real text has: ThunderAgent estimates tokens from characters, and begins with 5."""
RAMP_S = 10.0
"""Engine seconds over which the first programs arrive; the simulator's too."""
RETRY_S = 1.0
"""Engine seconds that a client waits after an error."""
MINUTE_S = 60.0
TOO_MANY = 429


def _seconds() -> "array[float]":
    return array("d")


@dataclass
class Seen:
    """The measured part of a day. Times are engine seconds."""

    steps: int = 0
    programs: int = 0
    failed: int = 0
    """Requests that ended without an answer, to be asked again."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    """Prompt tokens that a perfect cache would have found, and this one did not."""
    answered: list[int] = field(default_factory=list)
    """Turns answered in each minute."""
    turns_s: "array[float]" = field(default_factory=_seconds)
    """From asking to the answer."""
    engine_s: "array[float]" = field(default_factory=_seconds)
    """The part of it that an engine had the request."""
    holds_s: "array[float]" = field(default_factory=_seconds)
    """The rest: the router's queue, the relay, the wire."""
    lags_s: "array[float]" = field(default_factory=_seconds)
    """How late the client heard of its tools' ends."""


class Agents:
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

    async def until(self, engine_s: float) -> None:
        """Waits for that moment of the day."""
        await asyncio.sleep((engine_s - self.now_s()) / self._speed)

    async def play(self) -> Seen:
        """Plays the day to its end.

        A request that nobody has answered by then counts as held for its age, less the longest time
        that an engine had any.
        """
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
            end = self.until(self._day.warmup_s + self._day.measured_s)
            async with asyncio.TaskGroup() as group:
                slots = [
                    group.create_task(self._slot(client, slot))
                    for slot in range(self._day.programs)
                ]
                await end
                over_s = self.now_s()
                for slot in slots:
                    slot.cancel()
        longest_s = max(self.seen.engine_s, default=0.0)
        ages_s = (over_s - asked_s for asked_s in self._asked_s.values())
        self.seen.holds_s.extend(max(0.0, age_s - longest_s) for age_s in ages_s)
        return self.seen

    async def _slot(self, client: aiohttp.ClientSession, slot: int) -> None:
        """One program after another, without end."""
        ramp = random.Random(f"{self._seed}/{slot}")
        await self.until(ramp.uniform(0, RAMP_S))
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
            name = f"agent-{slot}-{ordinal}"
            await self._program(client, slot, name, program)
            if self._counts:
                self.seen.programs += 1
            if self._releases:
                url = f"{self._url}/programs/release"
                async with client.post(url, json={"program_id": name}) as released:
                    await released.read()
            ordinal += 1

    async def _program(
        self, client: aiohttp.ClientSession, slot: int, name: str, program: AgentProgram
    ) -> None:
        while (turn := program.turn()) is not None:
            body = chat_request(turn, BYTES_PER_TOKEN)
            stated = json.dumps(body.pop("emulate") | {"timings": True})
            body |= {"model": self._day.model, "program_id": name, "metadata": {"emulate": stated}}
            self._asked_s[slot] = self.now_s()
            answer = await self._ask(client, body)
            turn_s = self.now_s() - self._asked_s.pop(slot)
            if self._counts:
                self._count(turn, answer, turn_s)
            if turn.tool is not None:
                due = self._loop.time() + turn.tool_us / 1e6 / self._speed
                await asyncio.sleep(due - self._loop.time())
                self.seen.lags_s.append((self._loop.time() - due) * self._speed)

    async def _ask(self, client: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
        """The answer, however often it takes.

        Raises:
            RuntimeError: the request is said to be wrong, which it never is.
        """
        while True:
            try:
                async with client.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                    if answer.status == 200:
                        found: dict[str, Any] = await answer.json()
                        return found
                    said = await answer.text()
                    if 400 <= answer.status < 500 and answer.status != TOO_MANY:
                        raise RuntimeError(f"{answer.status}: {said[:500]}")
            except aiohttp.ClientError:
                pass
            if self._counts:
                self.seen.failed += 1
            await asyncio.sleep(RETRY_S / self._speed)

    def _measured_s(self) -> float:
        """Engine seconds since the warm-up; negative before."""
        return self.now_s() - self._day.warmup_s

    @property
    def _counts(self) -> bool:
        """Whether the day is in its measured part."""
        return 0 <= self._measured_s() < self._day.measured_s

    def _count(self, turn: AgentTurn, answer: dict[str, Any], turn_s: float) -> None:
        seen, usage = self.seen, answer["usage"]
        cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
        engine_s = answer["emulated"]["engine_s"]
        seen.steps += 1
        minute = int(self._measured_s() / MINUTE_S)
        seen.answered += [0] * (minute + 1 - len(seen.answered))
        seen.answered[minute] += 1
        seen.prompt_tokens += usage["prompt_tokens"]
        seen.cached_tokens += cached
        seen.recomputed_tokens += max(0, turn.reusable_tokens - cached)
        seen.turns_s.append(turn_s)
        seen.engine_s.append(engine_s)
        seen.holds_s.append(max(0.0, turn_s - engine_s))
