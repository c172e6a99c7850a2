"""The real thing: mini-SWE-agent's batch runner, to its end and killed half-way."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from containers.lab import Lab, until
from thunder_router.api import environments as routes
from thunder_router.api.guard import Guard
from thunder_router.environments import Environments

# The runner takes seconds to import, tens of them on a busy machine.
pytestmark = pytest.mark.timeout(180)

EXAMPLE = Path(__file__).parents[2] / "examples" / "mini-swe-agent"
INSTANCES = 3


class Llm:
    """An OpenAI endpoint that asks for one shell command after the other, and then submits."""

    def __init__(self, environments: Environments, steps: int) -> None:
        self.environments = environments
        self.steps = steps
        self.turns: dict[str, int] = {}
        self.released: list[str] = []
        self.app = FastAPI()
        self.app.include_router(
            routes.routes(environments, Guard(None, None), self.released.append)
        )
        self.app.post("/v1/chat/completions")(self.complete)
        self.app.post("/programs/release")(self.release)

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        program = body["program_id"]
        self.environments.request(program)
        turn = self.turns[program] = self.turns.get(program, 0) + 1
        command = f"echo turn {turn} > /testbed/turn"
        if turn > self.steps:
            command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /testbed/turn"
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": f"call{turn}", "type": "function", "function": call}],
        }
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "local-model",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    async def release(self, body: dict[str, Any]) -> dict[str, Any]:
        self.released.append(body["program_id"])
        self.environments.released(body["program_id"])
        return {"program_id": body["program_id"], "released": True}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        config = uvicorn.Config(self.app, host="127.0.0.1", port=0, log_level="error")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True
            await serving


@asynccontextmanager
async def batch(lab: Lab, url: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`mini-extra swebench` over three instances of our own, as the example says."""
    data = folder / "data"
    data.mkdir()
    lines = [
        json.dumps(
            {
                "instance_id": f"task-{number}",
                "problem_statement": "Nothing is wrong.",
                "image_name": lab.images["base"].tag,
            }
        )
        for number in range(INSTANCES)
    ]
    (data / "test.jsonl").write_text("\n".join(lines))
    settings = [
        ("model.model_kwargs.api_base", f"{url}/v1"),
        ("environment.run_args", json.dumps(["--rm", "--pull", "never", "--network", "none"])),
        ("environment.cwd", "/testbed"),
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minisweagent.run.benchmarks.swebench"),
        *("--subset", str(data), "--split", "test", "-w", str(INSTANCES)),
        *("-o", str(folder / "out"), "-c", "swebench.yaml", "-c", str(EXAMPLE / "thunder.yaml")),
        *(part for name, value in settings for part in ("-c", f"{name}={value}")),
        env=os.environ
        | {
            "PYTHONPATH": str(EXAMPLE),
            "THUNDER_ROUTER": url,
            "THUNDER_RUN_ID": f"msa-{lab.name}",
            "DOCKER_HOST": lab.host,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "hf"),
            "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "config"),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


def sandboxes(lab: Lab) -> list[str]:
    """Containers of this run, in any state."""
    listed = lab.client.containers.list(all=True, ignore_removed=True)
    return [c.name for c in listed if f"msa-{lab.name}" in c.labels.get("thunder.program_id", "")]


async def test_a_batch_gives_each_instance_a_program_and_leaves_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    async with lab.router() as environments:
        llm = Llm(environments, steps=2)
        async with llm.served() as url, batch(lab, url, tmp_path) as process:
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        assert list(llm.turns.values()) == [3] * INSTANCES, out.decode()
        assert sorted(llm.released) == sorted(llm.turns)
        await until(environments, lambda: not environments.resources())
        assert environments.status().tally["adopted_adopted"] >= INSTANCES
        assert await lab.call(sandboxes, lab) == []


async def test_a_batch_that_is_killed_half_way_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    async with lab.router(lab.settings(owner_grace_s=0.5)) as environments:
        llm = Llm(environments, steps=10_000)
        async with llm.served() as url, batch(lab, url, tmp_path) as process:
            await until(
                environments,
                lambda: len(llm.turns) == INSTANCES and min(llm.turns.values()) > 2,
                timeout_s=150,
            )
            assert len(await lab.call(sandboxes, lab)) == INSTANCES
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            assert llm.released == []
            await until(environments, lambda: not environments.resources())
            assert environments.status().tally["given_up_owner"] == INSTANCES
        assert await lab.call(sandboxes, lab) == []
