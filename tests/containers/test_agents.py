"""The real thing: mini-SWE-agent's batch runner through the router, to its end and killed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from containers.lab import Lab, owned
from e2e.stack import call
from router import House, routing
from thunder_router.emulator import EmulatorOptions, running

# The runner takes seconds to import, tens of them on a busy machine.
pytestmark = pytest.mark.timeout(180)

EXAMPLE = Path(__file__).parents[2] / "examples" / "mini-swe-agent"
INSTANCES = 3


SOLVES = [
    call("echo one > /testbed/turn; echo begun", match="Nothing is wrong"),
    call("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /testbed/turn", match="begun"),
]
NEVER_ENDS = [call("date > /testbed/turn")]


@asynccontextmanager
async def served(
    lab: Lab, folder: Path, script: list[dict[str, Any]], **changes: Any
) -> AsyncIterator[House]:
    """The router, as it is composed, over a worker that answers by the script."""
    lines = folder / "script.jsonl"
    lines.write_text("\n".join(json.dumps(line) for line in script))
    options = EmulatorOptions(port=0, speed=1000.0, capacity_tokens=65_536, script=lines)
    settings = lab.settings(**changes).model_dump(mode="json")
    async with running(options) as urls, routing(urls, environments=settings) as house:
        yield house


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
        ("model.model_name", f"openai/{EmulatorOptions().model}"),
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


async def tally(house: House) -> dict[str, int]:
    """What happened to environments, counted since start."""
    answer = await house.client.get("/thunder/v1/resources")
    counts: dict[str, int] = answer.json()["status"]["tally"]
    return counts


async def test_a_batch_gives_each_instance_a_program_and_leaves_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    async with served(lab, tmp_path, SOLVES) as house:
        async with batch(lab, f"http://127.0.0.1:{house.port}", tmp_path) as process:
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        answers = json.loads((tmp_path / "out" / "preds.json").read_text())
        assert [answer["model_patch"] for answer in answers.values()] == ["one\n"] * INSTANCES
        await owned(house, 0)
        assert (await tally(house))["adopted_adopted"] >= INSTANCES
        assert (await house.client.get("/programs")).json() == {}
        assert await lab.call(sandboxes, lab) == []


async def test_a_batch_that_is_killed_half_way_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    async with served(lab, tmp_path, NEVER_ENDS, owner_grace_s=0.5) as house:
        async with batch(lab, f"http://127.0.0.1:{house.port}", tmp_path) as process:

            async def steps() -> list[int]:
                programs = (await house.client.get("/programs")).json()
                return [program["step_count"] for program in programs.values()]

            async with asyncio.timeout(150):
                while len(found := await steps()) < INSTANCES or min(found) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert len(await lab.call(sandboxes, lab)) == INSTANCES
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            await owned(house, 0)
            assert (await tally(house))["given_up_owner"] == INSTANCES
        assert await lab.call(sandboxes, lab) == []
