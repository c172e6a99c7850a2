"""The composed router, an emulated worker, and a real engine: what clients see of it all."""

import asyncio
import os
from typing import Any

import pytest

from containers.lab import Lab, owned, resources
from containers.private_engine import PrivateEngine
from emulated import chat
from router import House, routing
from thunder_router.emulator import EmulatorOptions, running

HANG_S = float(os.environ.get("THUNDER_DOCKER_HANG_S", "0"))
"""`make test-docker` hangs the engine for 30 s; here until the router has noticed."""

FAST: dict[str, Any] = {"port": 0, "speed": 1000.0, "capacity_tokens": 65_536}


async def asks(house: House, program: str, **fields: Any) -> None:
    body = chat("hello", max_tokens=4, program_id=program, **fields)
    answer = await house.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text


async def test_a_program_names_its_containers_in_requests_and_release_takes_them(lab: Lab) -> None:
    program = lab.program(1)
    settings = lab.settings().model_dump(mode="json")
    async with (
        running(EmulatorOptions(**FAST)) as urls,
        routing(urls, environments=settings) as house,
    ):
        box = await lab.call(lab.agent_runs, program, number="named", stamp=False)
        await lab.call(lab.agent_runs, program, number="labelled")
        await asks(house, program, docker_ids=[box.id])
        assert {r["origin"] for r in await owned(house, 2)} == {"adopted", "registered"}
        answer = await house.client.post("/programs/release", json={"program_id": program})
        assert answer.json()["released"]
        await owned(house, 0)
        assert (await house.client.get("/health")).json()["environments"]["environments"] == "ok"


async def test_default_and_no_program_own_nothing(lab: Lab) -> None:
    settings = lab.settings().model_dump(mode="json")
    async with (
        running(EmulatorOptions(**FAST)) as urls,
        routing(urls, environments=settings) as house,
    ):
        box = await lab.call(lab.agent_runs, "default")
        await asks(house, "default", docker_ids=[box.id])
        body = chat("hello", max_tokens=4, docker_ids=[box.id])
        assert (await house.client.post("/v1/chat/completions", json=body)).status_code == 200
        await house.client.post("/programs/release", json={"program_id": "default"})
        assert await resources(house) == []
        await lab.call(box.reload)
        assert box.status == "running"
        await lab.call(box.remove, force=True)


@pytest.mark.timeout(120)
async def test_a_hung_engine_does_not_hold_up_a_single_request(
    private_lab: Lab, private_engine: PrivateEngine
) -> None:
    lab = private_lab
    program = lab.program(1)
    settings = lab.settings().model_dump(mode="json")
    async with (
        running(EmulatorOptions(**FAST)) as urls,
        routing(urls, environments=settings) as house,
    ):
        await lab.call(lab.agent_runs, program)
        await asks(house, program)
        await owned(house, 1)
        private_engine.hang()
        try:
            for number in range(50):
                await asks(house, lab.program(f"q{number}"), docker_ids=["c1"])
            await house.client.post("/programs/release", json={"program_id": program})

            async def state() -> str:
                health = (await house.client.get("/health")).json()
                return str(health["environments"]["environments"])

            hangs_until = asyncio.get_running_loop().time() + HANG_S
            async with asyncio.timeout(20 + HANG_S):
                while (
                    await state() != "unavailable"
                    or asyncio.get_running_loop().time() < hangs_until
                ):
                    await asks(house, lab.program("while-it-hangs"))
        finally:
            private_engine.wake()
        await owned(house, 0)
