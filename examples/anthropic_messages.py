"""Anthropic's messages over plain HTTP: what any client of that API sends.

    pip install httpx
    python examples/anthropic_messages.py

SGLang serves `/v1/messages` itself from 0.5.9 on. The router hands the bytes on, so every field
that the worker understands works. The program is named by a header: nothing in the body changes.
"""

import json
import os
import uuid
from typing import Any

import httpx

ROUTER = os.environ.get("THUNDER_ROUTER", "http://127.0.0.1:30000")


def main() -> None:
    """One program: a turn answered whole, a turn streamed, and its end."""
    program = f"letter-{uuid.uuid4().hex[:8]}"
    headers = {
        "x-api-key": "unused",
        "anthropic-version": "2023-06-01",
        "X-Thunder-Program-Id": program,
    }
    with httpx.Client(base_url=ROUTER, headers=headers, timeout=600) as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        messages: list[Any] = [{"role": "user", "content": "Write the first line of a letter."}]
        ask: dict[str, Any] = {"model": model, "max_tokens": 200, "messages": messages}

        answer = client.post("/v1/messages", json=ask).raise_for_status().json()
        text = "".join(part["text"] for part in answer["content"] if part["type"] == "text")
        print("whole:", text)

        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": "And the second."},
        ]
        print("streamed: ", end="")
        with client.stream("POST", "/v1/messages", json=ask | {"stream": True}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if event["type"] == "content_block_delta":
                        print(event["delta"].get("text", ""), end="")
                    if event["type"] == "error":  # a worker that was lost in mid-answer
                        raise RuntimeError(event["error"]["message"])
        print()

        # Without this the program is forgotten after scheduling.idle_timeout_s.
        client.post("/programs/release", json={"program_id": program}).raise_for_status()


if __name__ == "__main__":
    main()
