"""The openai client: agents whose turns the router sees as one program each.

    pip install openai thunder-router
    python examples/openai_client.py

Two ways to say which program a request belongs to: by hand in the body, or with `Program`, which
also ends it. Either way the router cuts its own fields out before a worker sees the request.
"""

import json
import os
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from thunder_router.client import Program

ROUTER = os.environ.get("THUNDER_ROUTER", "http://127.0.0.1:30000")
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "list_files",
            "description": "Names of the files in a folder.",
            "parameters": {
                "type": "object",
                "properties": {"folder": {"type": "string"}},
                "required": ["folder"],
            },
        },
    }
]


def by_hand(model: str) -> str | None:
    """Two turns of a program that is named in each body and released at the end."""
    client = OpenAI(base_url=f"{ROUTER}/v1", api_key="unused")
    program = {"program_id": "capital-of-france"}
    messages: list[Any] = []
    text = None
    for question in ("What is the capital of France?", "Are you sure?"):
        messages.append({"role": "user", "content": question})
        answer = client.chat.completions.create(model=model, messages=messages, extra_body=program)
        text = answer.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
    # Its KV cache and its place are free at once, not only after a time-out.
    httpx.post(f"{ROUTER}/programs/release", json=program).raise_for_status()
    return text


def with_tools(model: str, task: str) -> str | None:
    """An agent's loop: the model asks for a tool until it needs no more."""
    with Program(ROUTER) as program:  # a unique name, released when the block is left
        client = OpenAI(
            base_url=program.base_url, api_key="unused", default_headers=program.headers
        )
        messages: list[Any] = [{"role": "user", "content": task}]
        for _ in range(10):
            answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
            said = answer.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                return said.content
            for call in said.tool_calls:
                if call.type != "function":  # the one kind that this agent offers
                    continue
                folder = json.loads(call.function.arguments)["folder"]
                names = sorted(path.name for path in Path(folder).iterdir())
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": "\n".join(names)}
                )
    return None


if __name__ == "__main__":
    served = OpenAI(base_url=f"{ROUTER}/v1", api_key="unused").models.list().data[0].id
    print("by hand:", by_hand(served))
    print("with tools:", with_tools(served, f"Which files are in {Path(__file__).parent}?"))
