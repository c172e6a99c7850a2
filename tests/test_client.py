"""The helper for agents: names in every form, and a release at the end whatever happens."""

import asyncio
import importlib.util
import logging
from typing import Any

import openai
import pytest

from router import routing
from thunder_router.client import Program
from thunder_router.emulator import EmulatorOptions, running

FAST: dict[str, Any] = {"port": 0, "speed": 1000.0}


def test_a_program_is_named_in_every_form() -> None:
    program = Program("http://router:1/v1/", name="p", docker_ids=["c1"])
    assert (program.router, program.base_url) == ("http://router:1", "http://router:1/v1")
    assert program.headers == {"X-Thunder-Program-Id": "p"}
    assert program.body == {"program_id": "p", "docker_ids": ["c1"]}
    assert program.litellm == {"extra_body": program.body, "extra_headers": program.headers}
    assert Program("http://r", name="q").body == {"program_id": "q"}


def test_names_are_unique_unless_given() -> None:
    assert Program("http://r").name != Program("http://r").name


@pytest.mark.parametrize("url", ["", "router:1", "ftp://r", "http://"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="router URL"):
        Program(url)


def test_a_router_that_cannot_be_reached_costs_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), Program("http://127.0.0.1:9", name="p", timeout_s=1):
        pass
    assert "release_failed program=p" in caplog.text


async def test_leaving_by_an_exception_or_a_cancel_releases_too() -> None:
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls) as house:
        router = f"http://127.0.0.1:{house.port}"

        async def agent(name: str, ending: str) -> None:
            async with Program(router, name=name) as program:
                client = openai.AsyncOpenAI(
                    base_url=program.base_url, api_key="x", default_headers=program.headers
                )
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=2
                )
                await client.close()
                if ending == "error":
                    raise ZeroDivisionError
                await asyncio.Event().wait()

        with pytest.raises(ZeroDivisionError):
            await agent("fails", "error")
        stuck = asyncio.create_task(agent("cancelled", "cancel"))
        [pool] = house.router.driver.pools
        await house.until(lambda: pool.counts["admit"] == 2)
        await house.quiet()
        stuck.cancel()
        await asyncio.wait([stuck])
        await house.until(lambda: pool.look()[0].counts()["programs"] == 0)


@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_litellm_sends_the_name_and_the_release_takes_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    keys: dict[str, Any] = {"api_key": "k"}
    async with running(EmulatorOptions(**FAST)) as urls, routing(urls, **keys) as house:
        program = Program(f"http://127.0.0.1:{house.port}", name="lite", api_key="k")
        async with program:
            await litellm.acompletion(
                model="openai/m",
                api_base=program.base_url,
                api_key="k",
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=2,
                **program.litellm,
            )
            headers = {"Authorization": "Bearer k"}
            shown = (await house.client.get("/programs", headers=headers)).json()
            assert list(shown) == ["lite"]
        assert (await house.quiet())["programs"] == 0
        assert await program.arelease() is False
