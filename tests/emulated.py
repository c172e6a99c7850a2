"""What the emulator's tests share: a running worker, its client, and how to read its streams."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from thunder_router.emulator import EmulatorOptions, running


@asynccontextmanager
async def emulated(**options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of one emulated worker that is a thousand times faster than real."""
    settings = {"port": 0, "speed": 1000.0, "capacity_tokens": 65_536} | options
    async with (
        running(EmulatorOptions(**settings)) as urls,
        httpx.AsyncClient(base_url=urls[0], timeout=30) as client,
    ):
        yield client


def events(text: str) -> list[Any]:
    """The data of each server-sent event; `[DONE]` as it is."""
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def chat(content: str, **fields: Any) -> dict[str, Any]:
    """A chat request with one user message."""
    return {"messages": [{"role": "user", "content": content}], **fields}


def shape(value: Any) -> Any:
    """The fields of a JSON value, without what they hold."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "value"
