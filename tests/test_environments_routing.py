"""The composed router where no container engine answers: routing goes on, health says so."""

from pathlib import Path
from typing import Any

from emulated import chat
from router import routing
from thunder_router.emulator import EmulatorOptions, running

FAST: dict[str, Any] = {"port": 0, "speed": 1000.0, "capacity_tokens": 65_536}


async def test_without_an_engine_routing_goes_on_and_health_says_unavailable(
    tmp_path: Path,
) -> None:
    environments = {
        "enabled": True,
        "journal": str(tmp_path / "journal.db"),
        "docker": {"host": f"unix://{tmp_path}/none.sock"},
    }
    async with (
        running(EmulatorOptions(**FAST)) as urls,
        routing(urls, environments=environments) as house,
    ):
        for _ in range(3):
            body = chat("hello", max_tokens=4, program_id="p1", docker_ids=["c1"])
            answer = await house.client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
        health = (await house.client.get("/health")).json()
        assert health["environments"]["environments"] == "unavailable"
        assert health["environments"]["programs"] == 1
        metrics = (await house.client.get("/metrics")).text
        assert "thunder_environment_engine_up 0.0" in metrics
        release = {"program_id": "p1"}
        assert (await house.client.post("/programs/release", json=release)).json()["released"]
        listed = await house.client.get("/thunder/v1/resources")
        assert listed.json()["resources"] == []


async def test_switched_off_there_is_nothing_of_it() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        assert "environments" not in (await house.client.get("/health")).json()
        assert (await house.client.get("/thunder/v1/resources")).status_code == 404
