"""The worker routes as clients see them: sglang-router's forms, the fleet as one, control calls."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fake_worker import Ear, FakeWorker, Network, TurnedClock
from thunder_router.api import control, fleet, workers
from thunder_router.config import WorkerSettings
from thunder_router.workers.registry import Registry

A, B = "http://a:30000", "http://b:30000"


class House:
    """Two workers, one registry, and its routes."""

    def __init__(
        self, client: httpx.AsyncClient, registry: Registry, clock: TurnedClock, ear: Ear
    ) -> None:
        self.client = client
        self.registry = registry
        self.clock = clock
        self.ear = ear
        self.fakes: dict[str, FakeWorker] = {}

    async def say(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        answer = await self.client.request(method, path, **more)
        try:
            return answer.status_code, answer.json()
        except json.JSONDecodeError:
            return answer.status_code, answer.text


@asynccontextmanager
async def house(*urls: str, **settings: Any) -> AsyncIterator[House]:
    clock, network, ear = TurnedClock(), Network(), Ear()
    fakes = {url: network.place(url, FakeWorker(clock)) for url in (A, B)}
    async with Registry(WorkerSettings(urls=urls, **settings), ear, network, clock) as registry:
        app = FastAPI()
        for room in (workers, fleet, control):
            app.include_router(room.routes(registry))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
            await clock.advance()
            home = House(client, registry, clock, ear)
            home.fakes = fakes
            yield home


# --- /workers ----------------------------------------------------------------------------------


async def test_adding_a_worker_is_accepted_at_once_and_shows_when_it_serves() -> None:
    async with house() as h:
        status, said = await h.say("POST", "/workers", json={"url": A})
        assert (status, said["status"], said["worker_id"], said["url"]) == (202, "accepted", "0", A)
        assert said["location"] == "/workers/0"
        _, before = await h.say("GET", "/workers/0")
        assert before["is_healthy"] is False
        await h.clock.advance(1)
        _, after = await h.say("GET", "/workers")
        (worker,) = after["workers"]
        assert after["total"] == 1
        assert after["stats"] == {"prefill_count": 0, "decode_count": 0, "regular_count": 1}
        assert (worker["id"], worker["url"], worker["model_id"]) == ("0", A, "tiny-qwen3")
        assert worker["is_healthy"] is True
        rank = worker["report"]["ranks"][0]
        assert rank["device_tokens"]["value"] == 4096
        assert rank["device_tokens"]["source"] == "/v1/loads"
        assert rank["evictable_tokens"]["stale"] is True
        assert rank["host_used_tokens"] is None


async def test_a_worker_spec_of_sglang_router_is_understood() -> None:
    async with house() as h:
        spec = {
            "url": A, "model_id": "m", "priority": 7, "cost": 2.0, "worker_type": "regular",
            "labels": {"rack": "b4"}, "api_key": "sk-1", "disable_health_check": True,
        }  # fmt: skip
        assert (await h.say("POST", "/workers", json=spec))[0] == 202
        _, worker = await h.say("GET", "/workers/0")
        assert worker["metadata"] == {"rack": "b4"}
        assert h.registry.get(0).entry.model == "m"


@pytest.mark.parametrize(
    ("body", "status", "piece"),
    [
        ("{}", 422, "url"),
        ('{"url": "ftp://x"}', 422, "url"),
        ('{"url": "http://u:sk-secret@x"}', 400, "credentials"),
        ('{"url": "http://x", "worker_type": "prefill"}', 400, "regular"),
        ('{"url": "http://x", "capacity_tokens": -1}', 422, "capacity_tokens"),
        ('{"url": "http://x", "api_key": ["sk-secret"]}', 422, "api_key"),
        ('{"url": "http://x", "nonsense": 1}', 422, "nonsense"),
        ("[]", 400, "object"),
        ("{", 400, "JSON"),
    ],
)
async def test_a_bad_spec_is_refused_with_the_field_and_never_with_its_value(
    body: str, status: int, piece: str
) -> None:
    async with house() as h:
        found, said = await h.say("POST", "/workers", content=body)
        assert found == status
        assert piece in said["error"]
        assert "secret" not in json.dumps(said)
        assert len(h.registry) == 0


async def test_a_worker_is_named_by_its_number_or_its_url() -> None:
    async with house(A) as h:
        assert (await h.say("GET", "/workers/0"))[1]["url"] == A
        assert (await h.say("GET", "/workers/http%3A%2F%2Fa%3A30000"))[1]["id"] == "0"
        assert (await h.say("GET", "/workers/7"))[0] == 404
        assert (await h.say("GET", "/workers/" + B))[1]["code"] == "WORKER_NOT_FOUND"
        assert (await h.say("GET", "/workers/nonsense"))[0] == 400


async def test_new_settings_replace_some_and_keep_the_others() -> None:
    async with house() as h:
        await h.say("POST", "/workers", json={"url": A, "labels": {"a": "b"}})
        await h.clock.advance(1)
        status, _ = await h.say("PUT", "/workers/0", json={"capacity_tokens": 2000})
        await h.clock.advance(1)
        assert status == 202
        assert h.registry.get(0).entry.labels == {"a": "b"}
        assert h.ear.ranks[0, 0]["device_tokens"] == 2000


async def test_deleting_a_worker_drains_it_and_then_it_is_gone() -> None:
    async with house(A) as h:
        h.fakes[A].running = 1
        await h.clock.advance(1)
        assert (await h.say("DELETE", "/workers/0"))[0] == 202
        assert (await h.say("GET", "/workers/0"))[1]["state"] == "draining"
        h.fakes[A].running = 0
        await h.clock.advance(2)
        assert (await h.say("GET", "/workers"))[1]["workers"] == []


async def test_the_older_names_add_list_and_remove() -> None:
    async with house() as h:
        assert (await h.say("POST", f"/add_worker?url={A}"))[0] == 200
        assert (await h.say("POST", "/add_worker?url=nonsense"))[0] == 422
        assert (await h.say("GET", "/list_workers"))[1] == {"urls": [A]}
        await h.clock.advance(1)
        assert (await h.say("POST", f"/remove_worker?url={A}/"))[0] == 200
        assert (await h.say("POST", f"/remove_worker?url={B}"))[0] == 404
        await h.clock.advance(2)
        assert (await h.say("GET", "/list_workers"))[1] == {"urls": []}


# --- the fleet as one --------------------------------------------------------------------------


async def test_models_are_the_union_with_their_longest_context() -> None:
    async with house(A, B) as h:
        _, said = await h.say("GET", "/v1/models")
        assert [(m["id"], m["object"], m["max_model_len"]) for m in said["data"]] == [
            ("tiny-qwen3", "model", 32768)
        ]
        assert (await h.say("GET", "/v1/models/tiny-qwen3"))[1]["max_model_len"] == 32768
        assert (await h.say("GET", "/v1/models/other/model"))[0] == 404


async def test_server_info_says_what_one_request_must_fit_into_and_what_there_is_in_all() -> None:
    async with house(A, B) as h:
        for path in ("/server_info", "/get_server_info"):
            _, said = await h.say("GET", path)
            assert said["max_total_num_tokens"] == 4096
            assert said["total_kv_tokens"] == 8192
            assert len(said["internal_states"]) == 2


async def test_model_info_comes_from_a_worker_and_says_only_named_fields() -> None:
    async with house(A) as h:
        for path in ("/model_info", "/get_model_info"):
            _, said = await h.say("GET", path)
            assert said["model_path"] == "/models/tiny-qwen3"
            assert "embedding" not in said


async def test_loads_are_told_in_every_dialect() -> None:
    async with house(A, B) as h:
        h.fakes[A].running, h.fakes[A].waiting = 3, 2
        await h.clock.advance(1)
        _, said = await h.say("GET", "/v1/loads")
        assert [row["num_running_reqs"] for row in said["loads"]] == [3, 0]
        _, said = await h.say("GET", "/get_load")
        assert [row["num_reqs"] for row in said] == [5, 0]
        _, said = await h.say("GET", "/get_loads")
        assert said == {"workers": [{"worker": A, "load": 5}, {"worker": B, "load": 0}]}


async def test_health_generate_is_a_503_until_a_worker_is_ready() -> None:
    async with house("http://nobody") as h:
        assert (await h.say("GET", "/health_generate"))[0] == 503
        await h.say("POST", "/workers", json={"url": A})
        await h.clock.advance(1)
        assert (await h.say("GET", "/health_generate"))[0] == 200


# --- control -----------------------------------------------------------------------------------


async def test_a_flush_reaches_every_worker_and_the_scheduler() -> None:
    async with house(A, B) as h:
        h.ear.take()
        status, said = await h.say("POST", "/flush_cache")
        assert status == 200
        assert (said["status"], said["workers_flushed"], said["total_workers"]) == ("success", 2, 2)
        assert h.ear.take() == [("flushed", 0), ("flushed", 1)]


async def test_a_flush_that_a_busy_worker_refuses_is_told_for_that_worker() -> None:
    async with house(A, B) as h:
        h.ear.take()
        h.fakes[B].statuses["/flush_cache"] = (400, b"busy")
        status, said = await h.say("POST", "/flush_cache")
        assert status == 502
        assert said["status"] == "partial_success"
        assert said["workers"]["0"]["ok"] is True
        assert said["workers"]["1"] == {"url": B, "ok": False, "status": 400, "answer": "busy"}
        assert h.ear.take() == [("flushed", 0)]


async def test_a_refusal_on_which_all_workers_agree_keeps_its_status() -> None:
    async with house(A, B) as h:
        assert (await h.say("POST", "/start_profile"))[0] == 404


async def test_generation_pauses_and_continues_everywhere_and_nobody_is_admitted_between() -> None:
    async with house(A, B) as h:
        h.ear.take()
        body = {"mode": "retract"}
        assert (await h.say("POST", "/pause_generation", json=body))[0] == 200
        assert json.loads(h.fakes[B].asked[-1].body or b"") == body
        await h.clock.advance(5)
        assert h.ear.take() == [("sync begins",), ("unready", 0), ("unready", 1)]
        assert (await h.say("POST", "/continue_generation", json={}))[0] == 200
        await h.clock.advance()
        assert h.ear.take() == [("sync ends",), ("up", 0, 0), ("up", 1, 0)]


async def test_memory_that_comes_back_in_parts_is_back_with_its_last_part() -> None:
    async with house(A) as h:
        h.ear.take()
        await h.say("POST", "/release_memory_occupation", json={})
        assert h.ear.take() == [("sync begins",)]
        await h.say("POST", "/resume_memory_occupation", json={"tags": ["weights"]})
        assert h.ear.take() == []
        await h.say("POST", "/resume_memory_occupation", json={"tags": ["kv_cache"]})
        assert h.ear.take() == [("sync ends",)]


async def test_a_pause_that_nobody_took_does_not_hold_up_admission() -> None:
    async with house(A) as h:
        h.ear.take()
        h.fakes[A].statuses["/pause_generation"] = (400, b"no")
        assert (await h.say("POST", "/pause_generation"))[0] == 400
        assert h.ear.take() == [("sync begins",), ("sync ends",)]


async def test_new_weights_must_reach_absent_workers_too() -> None:
    async with house(A, B) as h:
        h.ear.take()
        h.fakes[B].refusing = True
        status, said = await h.say("POST", "/update_weights_from_disk", json={"model_path": "/m"})
        assert status == 502
        assert said["success"] is False
        assert said["workers"]["1"]["status"] is None
        assert ("flushed", 0) in h.ear.take()


async def test_an_abort_is_sent_to_every_worker_as_it_came() -> None:
    async with house(A, B) as h:
        assert (await h.say("POST", "/abort_request", json={"abort_all": True}))[0] == 200
        for fake in h.fakes.values():
            assert fake.asked[-1].path == "/abort_request"
            assert fake.asked[-1].body == b'{"abort_all":true}'


async def test_control_calls_carry_the_admin_key_and_questions_the_other() -> None:
    async with house(A, api_key="sk-user", admin_api_key="sk-admin") as h:
        h.fakes[A].key, h.fakes[A].admin_key = "sk-user", "sk-admin"
        await h.clock.advance(2)
        assert (await h.say("POST", "/flush_cache"))[0] == 200
        assert {asked.key for asked in h.fakes[A].asked if asked.method == "GET"} == {"sk-user"}
        assert h.fakes[A].asked[-1].key == "sk-admin"


async def test_without_workers_a_control_call_is_a_503() -> None:
    async with house() as h:
        assert (await h.say("POST", "/flush_cache"))[0] == 503


# --- keys --------------------------------------------------------------------------------------


async def test_no_answer_and_no_log_ever_holds_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    said: list[str] = []
    async with house(api_key="sk-user", admin_api_key="sk-admin") as h:
        fake = h.fakes[A]
        fake.capture = "sglang-0.5.23-full"
        fake.key, fake.admin_key = "sk-user", "sk-admin"
        fake.statuses["/flush_cache"] = (200, b'{"echo": "Bearer sk-admin sk-user"}')
        h.fakes[B].statuses["/v1/models"] = (401, b"sk-user")
        own = {"url": B, "api_key": "sk-own", "admin_api_key": "sk-own-admin"}
        for body in ({"url": A}, own, own | {"api_key": 5}, own | {"url": "http://sk-own@b"}):
            answer = await h.client.post("/workers", json=body)
            said.append(answer.text + str(answer.headers))
        await h.clock.advance(10)
        gets = [
            "/workers", "/workers/0", "/workers/1", "/list_workers", "/v1/models", "/model_info",
            "/get_model_info", "/server_info", "/get_server_info", "/v1/loads", "/get_load",
            "/get_loads", "/health_generate", "/hicache/storage-backend",
        ]  # fmt: skip
        for path in gets:
            said.append((await h.client.get(path)).text)
        for path in ("/flush_cache", "/pause_generation", "/abort_request"):
            said.append((await h.client.post(path)).text)
        said.append((await h.client.put("/workers/1", json={"api_key": "sk-other"})).text)
        said.append((await h.client.delete("/workers/1")).text)
        h.registry.faulted(0, "status")
        said += [
            repr(watch.door) + repr(watch.endpoint) + repr(watch.entry) for watch in h.registry
        ]
    whole = "\n".join(said) + caplog.text
    assert "tiny-qwen3" in whole
    assert "worker=0" in caplog.text
    assert "sk-" not in whole
