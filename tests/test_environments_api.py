"""`/thunder/v1` over the fake engine."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from environment_harness import Harness, owns, settled, until
from thunder_router.api import environments as api
from thunder_router.api import errors
from thunder_router.api.guard import Guard
from thunder_router.environment_settings import PreparationSettings
from thunder_router.environments import Environments, labels
from thunder_router.environments.engine import Layer
from thunder_router.environments.records import Kind
from thunder_router.scheduling import events

IMAGE = "swe/django:1"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.engine.images_there[IMAGE] = (Layer("sha256:django", 1000),)
    return harness


class Served:
    """A router's environments and a client of their API."""

    def __init__(self, environments: Environments, client: httpx.AsyncClient) -> None:
        self.environments = environments
        self.client = client
        self.released: list[str] = []


@asynccontextmanager
async def served(harness: Harness, guard: Guard | None = None) -> AsyncIterator[Served]:
    app = FastAPI()
    errors.install(app)
    transport = httpx.ASGITransport(app)
    async with (
        harness.router() as environments,
        httpx.AsyncClient(transport=transport, base_url="http://router/thunder/v1") as client,
    ):
        served = Served(environments, client)
        app.include_router(
            api.routes(environments, guard or Guard(None, None), served.released.append)
        )
        yield served


async def test_a_program_claims_its_environment_and_gives_it_back(harness: Harness) -> None:
    async with served(harness) as it:
        body = {"id": "p1", "environment": {"image": IMAGE, "ports": [80]}, "lease_s": 60}
        assert (await it.client.post("/programs", json=body)).status_code == 202
        answer = await it.client.get("/programs/p1/environment", params={"wait": "ready"})
        assert answer.status_code == 200
        shown = answer.json()
        assert shown["environment"]["state"] == "ready"
        assert shown["environment"]["ports"] == [[80, 40_080]]
        assert [r["origin"] for r in shown["resources"]] == ["created"]
        answer = await it.client.delete("/programs/p1", params={"wait": 10})
        assert (answer.status_code, answer.json()["resources"]) == (200, [])
        assert it.released == ["p1"]
    assert harness.engine.objects == {}


async def test_waiting_ends_with_its_time_and_says_that_it_is_not_settled(harness: Harness) -> None:
    async with served(harness) as it:
        await it.client.post("/programs", json={"id": "p1", "environment": {"image": IMAGE}})
        await settled(it.environments)
        harness.engine.gate = asyncio.Event()
        query = {"wait": "ready", "timeout_s": "0.05"}
        answer = await it.client.get("/programs/p1/environment", params=query)
        assert (answer.status_code, answer.json()["environment"]["state"]) == (202, "pulling")
        harness.engine.gate.set()


async def test_one_who_stands_before_its_environment_does_not_queue_behind_those_ahead(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings(ahead=0))
    harness.engine.images_there[IMAGE] = (Layer("sha256:django", 1000),)
    async with served(harness) as it:
        await it.client.post("/programs", json={"id": "p1", "environment": {"image": IMAGE}})
        it.environments.prepare("p1", 0)
        await settled(it.environments)
        assert it.environments.environment("p1").state == "planned"
        answer = await it.client.get("/programs/p1/environment", params={"wait": "ready"})
        assert answer.json()["environment"]["state"] == "ready"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "default"}, 400),
        ({"id": "no spaces"}, 400),
        ({"id": "p1", "environment": {"image": "other/x:1"}}, 403),
        ({"id": "p1", "environment": {"image": IMAGE, "privileged": True}}, 400),
        ({"id": "p1", "environment": {"image": IMAGE, "network": "host"}}, 400),
        ({"id": "p1", "owner_pid": 1}, 400),
        ({"id": "p1", "lease_s": -1}, 400),
    ],
)
async def test_what_safety_forbids_is_refused(
    harness: Harness, body: dict[str, object], status: int
) -> None:
    async with served(harness) as it:
        answer = await it.client.post("/programs", json=body)
        assert answer.status_code == status
        assert "message" in answer.json()["error"]
        await settled(it.environments)
        assert it.environments.status().programs == 0


async def test_an_owner_is_a_process_of_this_machine(harness: Harness) -> None:
    async with served(harness) as it:
        body = {"id": "p1", "owner_pid": os.getpid()}
        assert (await it.client.post("/programs", json=body)).status_code == 202
        await settled(it.environments)
        harness.engine.put(Kind.CONTAINER, "box", {labels.PROGRAM: "p1"})
        await owns(it.environments, "p1", 1)
        await harness.turn(it.environments, 3000)
        assert len(it.environments.owned("p1")) == 1


async def test_objects_are_registered_and_listed(harness: Harness) -> None:
    engine = harness.engine
    box, volume = engine.put(Kind.CONTAINER, "box"), engine.put(Kind.VOLUME, "vol")
    async with served(harness) as it:
        for kind, ref in (("container", box), ("volume", volume)):
            body = {"kind": kind, "ref": ref}
            answer = await it.client.post("/programs/p1/resources", json=body)
            assert answer.status_code == 202
        bad = await it.client.post("/programs/p1/resources", json={"ref": "../x"})
        assert bad.status_code == 400
        await owns(it.environments, "p1", 2)
        listed = (await it.client.get("/resources")).json()
        assert {r["ref"] for r in listed["resources"]} == {box, volume}
        assert listed["status"]["environments"] == "ok"
        assert listed["status"]["resources"] == {"container/ready": 1, "volume/ready": 1}


async def test_gc_says_what_it_would_do_and_then_does_it(harness: Harness) -> None:
    async with served(harness) as it:
        answer = await it.client.post("/prefetch", json={"images": [IMAGE, "other/x:1"]})
        assert answer.json() == {"accepted": [IMAGE], "refused": ["other/x:1"]}
        await until(it.environments, lambda: IMAGE in harness.engine.images_here)
        await harness.turn(it.environments, 3601)
        dry = (await it.client.post("/gc", json={"dry_run": True})).json()
        assert (dry["dry_run"], dry["images"]) == (True, [IMAGE])
        assert [image["ours"] for image in (await it.client.get("/images")).json()] == [True]
        await it.client.post("/gc", json={})
        await until(it.environments, lambda: not harness.engine.images_here)


async def test_what_clears_up_needs_the_admin_key(harness: Harness) -> None:
    guard = Guard(SecretStr("client"), SecretStr("admin"))
    async with served(harness, guard) as it:
        for key, status in (("wrong", 401), ("client", 401), ("admin", 200)):
            headers = {"Authorization": f"Bearer {key}"}
            answer = await it.client.post("/gc", json={}, headers=headers)
            assert answer.status_code == status
        headers = {"Authorization": "Bearer client"}
        answer = await it.client.get("/programs/p1/environment", headers=headers)
        assert answer.status_code == 200


async def test_the_schedulers_events_reach_the_environments(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        told = api.follow(environments, waiting=lambda program: program == "p1")
        box = engine.put(Kind.CONTAINER, "box")
        told(events.Seen("p1", (box,), "10.0.0.9"))
        await owns(environments, "p1", 1)
        for event in (
            events.Prepared("p1", 100),
            events.Paused("p1", 0, 0),
            events.Restored("p1", 0, 0),
            events.Expired("p2"),
        ):
            told(event)
        told(events.Released("p1", None, None))
        await owns(environments, "p1", 0)
    assert engine.objects == {}


async def test_a_scrape_is_told_of_resources_and_the_engine(harness: Harness) -> None:
    async with harness.router() as environments:
        environments.request("p1")
        harness.engine.put(Kind.CONTAINER, "box", {labels.PROGRAM: "p1"})
        await owns(environments, "p1", 1)
        read = {gauge.name: list(gauge.read()) for gauge in api.gauges(environments)}
        (resources,) = read["environment_resources"]
        assert (resources.labels, resources.value) == (("container", "ready"), 1)
        assert [sample.value for sample in read["environment_engine_up"]] == [1]
        for gauge in api.gauges(environments):
            assert all(len(sample.labels) == len(gauge.labels) for sample in gauge.read())


async def test_a_process_is_given_by_its_pid_and_everything_else_by_its_name(
    tmp_path: Path,
) -> None:
    async with served(Harness(tmp_path, processes=True)) as it:
        child = await asyncio.create_subprocess_exec("sleep", "300")
        route = "/programs/p1/resources"
        for body in ({"kind": "process"}, {"pid": child.pid}, {"kind": "process", "ref": "x"}):
            assert (await it.client.post(route, json=body)).status_code in (400, 422)
        answer = await it.client.post(route, json={"kind": "process", "pid": os.getpid()})
        assert answer.status_code == 403
        answer = await it.client.post(route, json={"kind": "process", "pid": child.pid})
        assert answer.status_code == 202
        answer = await it.client.delete("/programs/p1", params={"wait": 10})
        assert (answer.status_code, answer.json()["resources"]) == (200, [])
        assert await child.wait() == -15
