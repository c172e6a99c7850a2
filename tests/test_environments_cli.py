"""`thunder-router env` and `docker-proxy`, as an operator types them."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from environment_harness import Harness, owns
from thunder_router.api import environments as api
from thunder_router.api import errors
from thunder_router.api.guard import Guard
from thunder_router.cli import main
from thunder_router.environments import Environments, labels
from thunder_router.environments.records import Kind


class Served:
    """The API on a real socket, for a client that blocks."""

    def __init__(self, environments: Environments, guard: Guard) -> None:
        app = FastAPI()
        errors.install(app)
        app.include_router(api.routes(environments, guard, lambda _: None))
        config = uvicorn.Config(app, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def __aenter__(self) -> "Served":
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.should_exit = True
        await self._serving
        self._socket.close()

    async def env(self, *arguments: str) -> int:
        return await asyncio.to_thread(main, ["env", "--router", self.url, *arguments])


async def test_ls_shows_what_is_owned_and_gc_what_would_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = Harness(tmp_path)
    async with (
        harness.router() as environments,
        Served(environments, Guard(None, None)) as served,
    ):
        environments.request("p1")
        harness.engine.put(Kind.VOLUME, "vol-1", {labels.PROGRAM: "p1"})
        await owns(environments, "p1", 1)
        assert await served.env("ls") == 0
        shown = capsys.readouterr().out
        assert "vol-1" in shown
        assert "engine=ok programs=1" in shown
        assert await served.env("ls", "--json") == 0
        assert '"ref": "vol-1"' in capsys.readouterr().out
        assert await served.env("gc", "--dry-run") == 0
        assert "images=0 leaving=0" in capsys.readouterr().out


async def test_ls_fails_while_the_engine_is_down_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = Harness(tmp_path)
    harness.engine.up = False
    async with (
        harness.router() as environments,
        Served(environments, Guard(None, None)) as served,
    ):
        assert await served.env("ls") == 1
        assert "engine=unavailable" in capsys.readouterr().out


async def test_a_wrong_key_or_no_router_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guard = Guard(None, SecretStr("admin"))
    async with Harness(tmp_path).router() as environments, Served(environments, guard) as served:
        assert await served.env("--api-key", "wrong", "ls") == 2
        assert "answers 401" in capsys.readouterr().err
        assert await served.env("--api-key", "admin", "ls") == 0
    assert await asyncio.to_thread(main, ["env", "--router", "http://127.0.0.1:1", "ls"]) == 2
    assert capsys.readouterr().err == (
        "thunder-router env: no router at http://127.0.0.1:1: Connection refused\n"
    )


async def test_docker_proxy_says_its_address_and_ends_on_sigterm(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from thunder_router.cli import main; raise SystemExit(main())"),
        *("docker-proxy", "--program", "p1", "--listen", str(tmp_path / "p.sock")),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == f"DOCKER_HOST=unix://{tmp_path}/p.sock\n".encode()
    assert (tmp_path / "p.sock").is_socket()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert not (tmp_path / "p.sock").exists()


def test_docker_proxy_for_default_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["docker-proxy", "--program", "default", "--listen", str(tmp_path / "p.sock")]
    assert main(command) == 2
    assert "cannot own anything" in capsys.readouterr().err
