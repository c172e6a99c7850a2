"""An agent program as these tests play it: a conversation that grows, and what each turn cost."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from bench.sglang_server import MODEL
from router import House

__all__ = ["Agent", "Turn", "body", "eventually", "text"]


@dataclass(frozen=True)
class Turn:
    """What the engine said of one turn, in tokens.

    Attributes:
        cached: Of the prompt, found in a cache: the sum of the tiers.
    """

    prompt: int
    completion: int
    cached: int
    device: int
    host: int


def text(word: str, count: int) -> str:
    """So many different words that no other text begins with."""
    return " ".join(f"{word}{number}" for number in range(count))


def body(messages: list[dict[str, str]], *, tokens: int = 4, **fields: Any) -> dict[str, Any]:
    """A chat request for exactly so many tokens of answer."""
    wanted = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return {"model": MODEL, "messages": messages, **wanted, **fields}


class Agent:
    """One program. Its name is the beginning of all it says, so programs share no KV."""

    def __init__(self, house: House, name: str, words: int = 100) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self._client = house.client
        self._messages = [{"role": "user", "content": text(name, words)}]

    async def turn(self, words: int = 10, *, tokens: int = 4) -> Turn:
        """Asks the model, and adds its answer and what a tool said to the conversation."""
        wanted = body(
            self._messages, tokens=tokens, program_id=self.name, return_cached_tokens_details=True
        )
        answer = await self._client.post("/v1/chat/completions", json=wanted)
        assert answer.status_code == 200, answer.text
        said = answer.json()
        usage = said["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        nothing = {"device": 0, "host": 0}
        tiers = said["sglext"]["cached_tokens_details"] if cached else nothing
        turn = Turn(
            usage["prompt_tokens"],
            usage["completion_tokens"],
            cached,
            tiers["device"],
            tiers["host"],
        )
        self.turns.append(turn)
        self._messages += [
            {"role": "assistant", "content": said["choices"][0]["message"]["content"] or ""},
            {"role": "user", "content": text(f"{self.name}-{len(self.turns)}-", words)},
        ]
        return turn

    async def seen(self) -> dict[str, Any]:
        """What the router says of it."""
        return dict((await self._client.get(f"/programs/{self.name}")).raise_for_status().json())

    async def pause(self) -> None:
        await self._post(f"/programs/{self.name}/pause")

    async def restore(self) -> None:
        await self._post(f"/programs/{self.name}/restore")

    async def release(self) -> None:
        await self._post("/programs/release", {"program_id": self.name})

    async def _post(self, path: str, content: object = None) -> httpx.Response:
        return (await self._client.post(path, json=content)).raise_for_status()


async def eventually(holds: Callable[[], bool], what: str, *, within_s: float = 20) -> None:
    """Returns once an engine, in a process of its own, has come so far."""
    try:
        async with asyncio.timeout(within_s):
            while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
