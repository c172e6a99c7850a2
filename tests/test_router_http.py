"""The composed router over emulated workers, through real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import openai
import pytest

from emulated import chat
from router import House, routing
from thunder_router.client import Program
from thunder_router.emulator import EmulatorOptions, running

FAST: dict[str, Any] = {"port": 0, "speed": 1000.0, "capacity_tokens": 65_536}


async def say(house: House, program: str | None = None, **fields: Any) -> dict[str, Any]:
    named = {} if program is None else {"program_id": program}
    answer = await house.client.post(
        "/v1/chat/completions", json=chat("hello there", max_tokens=8, **named, **fields)
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_program_runs_is_shown_and_is_released() -> None:
    async with running(EmulatorOptions(**FAST, workers=2)) as urls, routing(urls) as house:
        first = await say(house, "p1")
        await say(house, "p1")
        shown = (await house.client.get("/programs/p1")).json()
        assert (shown["program_id"], shown["step_count"], shown["status"]) == ("p1", 2, "acting")
        usage = first["usage"]
        assert shown["context_len"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert shown["backend"] in urls
        assert shown["model"] == "emulated-model"
        assert list((await house.client.get("/programs")).json()) == ["p1"]
        release = {"program_id": "p1"}
        answer = await house.client.post("/programs/release", json=release)
        assert answer.json() == {"program_id": "p1", "released": True}
        answer = await house.client.post("/programs/release", json=release)
        assert answer.json() == {"program_id": "p1", "released": False}
        assert (await house.client.get("/programs/p1")).status_code == 404
        assert (await house.quiet())["programs"] == 0


async def test_programs_are_filtered_and_paged_in_the_order_of_their_names() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        names = [f"p{n}" for n in range(7)]
        await asyncio.gather(*(say(house, name) for name in reversed(names)))
        found: list[str] = []
        target: str | None = "/programs?limit=3"
        while target is not None:
            page = await house.client.get(target)
            assert page.headers["x-total-count"] == "7"
            found += list(page.json())
            target = page.links.get("next", {}).get("url")
            target = target and f"{target}&limit=3"
        assert found == names
        assert (await house.client.get("/programs?status=reasoning")).json() == {}
        assert len((await house.client.get("/programs?state=active&worker=0")).json()) == 7
        assert (await house.client.get("/programs?limit=0")).status_code == 400


async def test_an_operators_pause_holds_a_program_until_its_restore() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        await say(house, "p")
        assert (await house.client.post("/programs/p/pause")).json()["state"] == "paused"
        turn = asyncio.create_task(say(house, "p"))
        await house.until(lambda: house.router.driver.pools[0].why_held("p") is not None)
        shown = (await house.client.get("/programs/p")).json()
        assert shown["waiting"] == 1
        assert "operator" in shown["held_because"]
        assert not turn.done()
        await house.client.post("/programs/p/restore")
        await turn
        assert (await house.client.post("/programs/ghost/pause")).status_code == 404


async def test_a_weight_sync_holds_requests_from_begin_to_end() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        await house.client.post("/weight_sync/begin")
        turn = asyncio.create_task(say(house, "p"))
        await house.until(lambda: house.router.driver.pools[0].why_held("p") is not None)
        await house.client.post("/weight_sync/end")
        await turn


async def test_health_says_how_everything_is() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        await say(house, "p")
        answer = await house.client.get("/health")
        report = answer.json()
        assert (answer.status_code, report["status"]) == (200, "ok")
        assert report["scheduler"]["policy"] == "adaptive"
        assert report["scheduler"]["programs"] == report["programs_count"] == 1
        [worker] = report["workers"]
        assert (worker["name"], worker["state"]) == (urls[0], "ready")
        assert (await house.client.get("/")).json()["name"] == "thunder-router"
        assert (await house.client.get("/liveness")).status_code == 200


async def test_without_a_worker_the_router_is_alive_but_not_ready() -> None:
    async with routing(["http://127.0.0.1:9"], ready=0) as house:
        assert (await house.client.get("/liveness")).status_code == 200
        assert (await house.client.get("/readiness")).status_code == 503
        assert (await house.client.get("/health")).status_code == 503


async def test_metrics_count_what_happened_and_name_no_program() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        usage = (await say(house, "secret-name"))["usage"]
        await house.quiet()
        text = (await house.client.get("/metrics")).text
        assert 'thunder_requests_total{api="chat",outcome="finished",status="200"} 1.0' in text
        tokens = float(usage["prompt_tokens"])
        assert f'thunder_tokens_total{{kind="prompt"}} {tokens}' in text
        assert 'thunder_decisions_total{kind="admit",model="emulated-model"} 1.0' in text
        assert 'thunder_in_flight{model="emulated-model"} 0.0' in text
        assert 'thunder_request_seconds_count{api="chat"} 1.0' in text
        assert "secret-name" not in text


async def test_keys_open_what_they_should() -> None:
    keys: dict[str, Any] = {"api_key": "client-key", "admin_key": "admin-key"}
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls, **keys) as house:

        async def status(method: str, path: str, key: str | None, header: str = "bearer") -> int:
            headers = {}
            if key is not None and header == "bearer":
                headers["Authorization"] = f"Bearer {key}"
            elif key is not None:
                headers[header] = key
            body = chat("x", max_tokens=1) if path.startswith("/v1") else {"program_id": "p"}
            answer = await house.client.request(
                method, path, headers=headers, json=body if method == "POST" else None
            )
            return answer.status_code

        chats = ("POST", "/v1/chat/completions")
        assert await status(*chats, None) == 401
        assert await status(*chats, "wrong") == 401
        assert await status(*chats, "client-key") == 200
        assert await status(*chats, "client-key", "x-api-key") == 200
        assert await status("POST", "/programs/release", None) == 401
        assert await status("POST", "/programs/release", "client-key") == 200
        assert await status("GET", "/programs", "admin-key") == 200
        assert await status("POST", "/weight_sync/end", "client-key") == 401
        assert await status("POST", "/weight_sync/end", "admin-key") == 200
        assert await status("GET", "/health", None) == 200


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "{}", '{"program_id": null}', '{"program_id": "  "}', '{"program_id": 1.5}'],
)
async def test_a_bad_release_is_the_clients_error(body: str) -> None:
    async with routing([], ready=0) as house:
        headers = {"content-type": "application/json"}
        answer = await house.client.post("/programs/release", content=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


async def test_names_with_slashes_and_other_scripts_can_be_looked_up() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        for name in ("a/b", "名前", "a b?c#d", "50%"):
            await say(house, name)
            [shown] = (await house.client.get("/programs")).json().values()
            assert shown["program_id"] == name
            found = await house.client.get(f"/programs/{quote(name, safe='')}")
            assert found.json()["program_id"] == name
            await house.client.post("/programs/release", json={"program_id": name})


async def test_the_openai_client_works_with_a_program() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        async with Program(f"http://127.0.0.1:{house.port}/v1") as program:
            client = openai.AsyncOpenAI(
                base_url=program.base_url, api_key="unused", default_headers=program.headers
            )
            stream = await client.chat.completions.create(
                model="emulated-model",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=8,
                stream=True,
                extra_body=program.body,
            )
            text = "".join([c.choices[0].delta.content or "" async for c in stream])
            assert text
            shown = (await house.client.get(f"/programs/{program.name}")).json()
            assert shown["step_count"] == 1
        await client.close()
        assert (await house.quiet())["programs"] == 0


async def test_a_final_request_ends_its_program_and_a_mere_farewell_reaches_no_worker() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        await say(house, "p", program_done=True)
        assert (await house.quiet())["programs"] == 0
        await say(house, "q")
        farewell = {"program_id": "q", "program_done": True}
        answer = await house.client.post("/v1/chat/completions", json=farewell)
        assert (answer.status_code, answer.json()) == (200, {"program_id": "q", "released": True})


async def test_a_conflict_of_names_is_a_400_in_the_apis_own_form() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        answer = await house.client.post(
            "/v1/messages",
            json=chat("x", program_id="a", max_tokens=1),
            headers={"x-program-id": "b"},
        )
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
        await house.quiet()


async def test_an_unknown_model_among_several_is_not_answered_by_another() -> None:
    async with (
        running(EmulatorOptions(**FAST, model="glm")) as one,
        running(EmulatorOptions(**FAST, model="minimax")) as two,
        routing([*one, *two]) as house,
    ):
        assert (await say(house, "p", model="glm"))["model"] == "glm"
        assert (await say(house, "p", model="minimax"))["model"] == "minimax"
        answer = await house.client.post("/v1/chat/completions", json=chat("x", model="gpt-9"))
        assert answer.status_code == 404
        assert "gpt-9" in answer.json()["error"]["message"]
        assert json.loads((await house.client.get("/programs/p")).text)["model"] == "glm"


async def test_environments_hear_of_programs_and_health_says_how_they_are(tmp_path: Path) -> None:
    section = {
        "enabled": True,
        "journal": str(tmp_path / "tools.db"),
        "docker": {"host": f"unix://{tmp_path}/no-engine.sock", "ping_interval_s": 0.05},
    }
    async with (
        running(EmulatorOptions(**FAST)) as urls,
        routing(urls, environments=section) as house,
    ):
        await say(house, "p", docker_ids=["0123456789ab"])
        async with asyncio.timeout(10):
            while True:
                found = (await house.client.get("/health")).json()["environments"]
                if found["programs"] == 1:
                    break
                await asyncio.sleep(0.01)
        assert found["environments"] == "unavailable"
        assert "thunder_environment_engine_up 0.0" in (await house.client.get("/metrics")).text
        # A dead engine costs inference nothing.
        await say(house, "p")
    async with routing([], ready=0) as house:
        off = (await house.client.get("/health")).json()["environments"]
        assert off == {"environments": "off"}
