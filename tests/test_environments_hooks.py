"""Hooks: what they are told, when they are tried again, and that they are not forgotten."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from environment_harness import Harness, settled, until
from thunder_router.environment_settings import HookSettings
from thunder_router.environments import processes
from thunder_router.environments.hooks import Hooks
from thunder_router.environments.records import Kind, Origin, Owner, Resource, State


class Listener:
    """An API server that answers as it is told to."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.heard: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def hear(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text() or "{}")
        key = request.headers["Idempotency-Key"]
        self.heard.append((request.method, request.raw_path, body, key))
        return web.Response(status=self.answers.pop(0) if self.answers else 204)


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", listener.hear)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield listener
    await runner.cleanup()


def harness_with(folder: Path, **hook: object) -> Harness:
    settings = {"name": "envd", "on": ["release", "crash"], **hook}
    return Harness(folder, hooks=(HookSettings.model_validate(settings),))


async def test_a_release_is_told_once_it_happens_with_the_programs_id_in_the_url(
    tmp_path: Path, listener: Listener
) -> None:
    url = listener.url + "/envs/{program_id}?why={moment}"
    harness = harness_with(tmp_path, url=url, method="DELETE", match="^p:")
    async with harness.router() as environments:
        environments.request("p:1")
        environments.request("other")
        environments.released("p:1")
        environments.released("other")
        await until(environments, lambda: not environments.resources())
    ((method, path, body, key),) = listener.heard
    assert (method, path) == ("DELETE", "/envs/p%3A1?why=release")
    assert body == {"program_id": "p:1", "generation": "1", "moment": "release"}
    assert key.startswith("envd:release:p:1:1:")


async def test_a_hook_that_is_not_heard_is_tried_again_with_the_same_key(
    tmp_path: Path, listener: Listener
) -> None:
    listener.answers = [503, 429, 500]
    harness = harness_with(tmp_path, url=listener.url)
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        for _ in range(4):
            await settled(environments)
            await harness.turn(environments, 61)
        assert environments.resources() == []
    assert len(listener.heard) == 4
    assert len({key for *_, key in listener.heard}) == 1


@pytest.mark.parametrize(("answers", "tries"), [([400], 1), ([500] * 9, 3)])
async def test_a_hook_is_given_up_when_refused_or_out_of_retries(
    tmp_path: Path, listener: Listener, answers: list[int], tries: int
) -> None:
    listener.answers = answers
    harness = harness_with(tmp_path, url=listener.url, retries=2)
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        for _ in range(5):
            await settled(environments)
            await harness.turn(environments, 61)
        assert environments.resources() == []
        assert environments.status().tally["hooks_failed"] == 1
    assert len(listener.heard) == tries


async def test_a_hook_survives_a_restart(tmp_path: Path, listener: Listener) -> None:
    listener.answers = [503]
    harness = harness_with(tmp_path, url=listener.url)
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        await until(environments, lambda: len(listener.heard) == 1)
        await settled(environments)
    harness.clock.now_ms += 61_000
    async with harness.router() as environments:
        await until(environments, lambda: not environments.resources())
    assert len({key for *_, key in listener.heard}) == 1
    assert len(listener.heard) == 2


@pytest.mark.parametrize("engine_up", [True, False])
async def test_a_program_that_falls_silent_is_a_crash_with_or_without_an_engine(
    tmp_path: Path, listener: Listener, engine_up: bool
) -> None:
    harness = harness_with(tmp_path, url=listener.url)
    harness.engine.up = engine_up
    async with harness.router() as environments:
        environments.request("p1")
        await harness.turn(environments, 3601)
        await until(environments, lambda: len(listener.heard) == 1)
        await settled(environments)
    assert listener.heard[0][2]["moment"] == "crash"


async def test_a_command_hook_gets_the_moment_in_its_environment_and_input(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    program = (
        "import os, sys; "
        f"open({str(out)!r}, 'w').write(os.environ['THUNDER_PROGRAM_ID'] + ' ' + sys.stdin.read())"
    )
    harness = harness_with(tmp_path, command=[sys.executable, "-c", program])
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        await until(environments, lambda: not environments.resources())
    name, _, said = out.read_text().partition(" ")
    assert name == "p1"
    assert json.loads(said)["moment"] == "release"


async def test_pausing_and_restoring_are_moments_too(tmp_path: Path, listener: Listener) -> None:
    harness = harness_with(tmp_path, url=listener.url, on=["pause", "restore"])
    async with harness.router() as environments:
        environments.request("p1")
        environments.paused("p1")
        environments.restored("p1")
        environments.restored("p1")
        await until(environments, lambda: len(listener.heard) == 2)
        await settled(environments)
    assert {body["moment"] for _, _, body, _ in listener.heard} == {"pause", "restore"}


async def test_a_command_that_is_broken_off_is_ended_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    note = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {note}.part; mv {note}.part {note}; wait"
    hook = HookSettings(name="h", on=("release",), command=("sh", "-c", script), timeout_s=60)
    run = Resource(Owner("p1", 1), Kind.HOOK, "h:release:p1", Origin.CREATED, State.RELEASING, 0)
    running = asyncio.create_task(Hooks((hook,)).run(run))
    async with asyncio.timeout(30):
        while not note.exists():  # noqa: ASYNC110 - a file, in another process's hands
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while processes.identify(int(note.read_text())) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
