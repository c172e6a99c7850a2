"""The command line: flags, messages, exit codes, and the router as a process."""

import argparse
import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulated import chat
from thunder_router.cli import logs, main, serve
from thunder_router.config import Settings
from thunder_router.emulator import EmulatorOptions, running
from thunder_router.errors import ConfigError


def settings_of(*argv: str) -> tuple[Settings, list[str]]:
    parser = argparse.ArgumentParser()
    serve.add(parser.add_subparsers())
    return serve.read_settings(parser.parse_args(["serve", *argv]))


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("thunder-router 0.")


def test_our_flags_become_settings() -> None:
    settings, warnings = settings_of(
        *("--worker-urls", "http://a:1", "http://b:2", "--host", "0.0.0.0", "--port", "8"),
        *("--policy", "paper", "--admin-key", "secret", "--log-level", "debug"),
    )
    assert settings.workers.urls == ("http://a:1", "http://b:2")
    assert (settings.host, settings.port, settings.log_level) == ("0.0.0.0", 8, "debug")
    assert settings.scheduling.policy == "paper"
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "secret"
    assert warnings == []


def test_flags_win_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.toml"
    file.write_text("port = 1\n[scheduling]\npolicy = 'off'\nqueue_limit = 7\n")
    monkeypatch.setenv("THUNDER_SCHEDULING__POLICY", "paper")
    settings, _ = settings_of("--config", str(file), "--port", "3")
    assert (settings.port, settings.scheduling.policy) == (3, "paper")
    assert settings.scheduling.queue_limit == 7


def test_an_sglang_router_command_line_is_understood() -> None:
    settings, warnings = settings_of(
        *("--worker-urls", "http://a:1", "--policy", "cache_aware", "--api-key", "k"),
        *("--log-level", "warn", "--max-payload-size", "1000", "--cb-failure-threshold", "9"),
        *("--queue-size", "5", "--queue-timeout-secs", "7", "--dp-aware"),
        *("--cache-threshold", "0.5", "--retry-max-retries", "3", "--disable-circuit-breaker"),
        *("--request-id-headers", "x-a", "x-b"),
    )
    assert settings.scheduling.policy == "adaptive"
    assert (settings.scheduling.queue_limit, settings.scheduling.hold_limit_s) == (5, 7.0)
    assert (settings.relay.max_body_bytes, settings.workers.breaker_failures) == (1000, 9)
    assert settings.log_level == "warning"
    assert settings.api_key == settings.workers.api_key
    unserved, translated = warnings
    assert translated == "policy_translated given=cache_aware used=adaptive"
    assert unserved == (
        "flags_without_effect flags=--disable-circuit-breaker,--cache-threshold,"
        "--request-id-headers,--retry-max-retries"
    )


@pytest.mark.parametrize(
    "flag",
    ["--pd-disaggregation", "--mini-lb", "--jwt-issuer x", "--decode http://d", "--prefill a 1"],
)
def test_what_must_not_be_served_by_halves_is_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match=flag.split()[0]):
        settings_of(*flag.split())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["serve", "--config", "/no/such/file"], "no such file"),
        (["serve", "--port", "99999"], "port"),
        (["serve", "--worker-urls", "ftp://x"], "http"),
        (["serve", "--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["serve", "--port", "0", "--tls-cert-path", __file__], "tls_cert"),
        (["replay", "/no/such/file"], "no such file"),
        (["emulate", "--speed", "fast"], "--speed"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("argv", [[], ["serve", "--no-such-flag"], ["serve", "--policy", "magic"]])
def test_a_wrong_command_line_is_exit_code_2(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2


@pytest.fixture
def clean_logging() -> Any:
    root = logging.getLogger()
    kept = (root.handlers[:], root.level)
    yield
    root.handlers[:], root.level = kept


@pytest.mark.usefixtures("clean_logging")
def test_logs_are_key_value_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logging.getLogger("a.b").info("event=x n=%d", 5)
    line = capsys.readouterr().err
    assert line.startswith("time=")
    assert line.endswith(" level=info logger=a.b event=x n=5\n")
    logs.configure("info", as_json=True)
    logging.getLogger("a.b").warning('said="é"')
    entry = json.loads(capsys.readouterr().err)
    assert (entry["level"], entry["logger"], entry["message"]) == ("warning", "a.b", 'said="é"')


# --- as a process ------------------------------------------------------------------------------


class Process:
    """`thunder-router serve` as a child, with the port that it chose."""

    def __init__(self, child: subprocess.Popen[bytes], port: int, started_s: float) -> None:
        self.child = child
        self.port = port
        self.started_s = started_s
        self.url = f"http://127.0.0.1:{port}"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(how)
        return self.child.wait(timeout=20)


@asynccontextmanager
async def served(*argv: str) -> AsyncIterator[Process]:
    begun = time.monotonic()
    child = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-m", "thunder_router", "serve", "--port", "0", *argv],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert child.stderr is not None
    try:
        while True:
            line = (await asyncio.to_thread(child.stderr.readline)).decode()
            assert line, "the router ended before it served"
            if "serving url=" in line:
                port = int(line.split("serving url=")[1].split()[0].rsplit(":", 1)[1])
                break
        yield Process(child, port, time.monotonic() - begun)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        child.stderr.close()


async def ask(client: httpx.AsyncClient, url: str, program: str) -> str:
    """One turn; the worker that served it."""
    body = chat("hello", max_tokens=4, program_id=program)
    answer = await client.post(f"{url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    shown = (await client.get(f"{url}/programs/{program}")).json()
    return str(shown["backend"])


async def until_ready(client: httpx.AsyncClient, url: str, workers: int) -> None:
    async with asyncio.timeout(20):
        while True:
            found = (await client.get(f"{url}/health")).json()["workers"]
            if sum(worker["state"] == "ready" for worker in found) == workers:
                return
            await asyncio.sleep(0.01)


async def test_after_kill_9_programs_continue_on_their_workers(tmp_path: Path) -> None:
    snapshot = tmp_path / "programs.json"
    keep = ("--snapshot", str(snapshot), "--journal", str(tmp_path / "j.jsonl"))
    config = tmp_path / "t.toml"
    config.write_text("[journal]\nsnapshot_interval_s = 0.05\n")
    emulated = EmulatorOptions(port=0, speed=1000.0, workers=3)
    async with running(emulated) as urls, httpx.AsyncClient(timeout=20, trust_env=False) as client:
        flags = ("--config", str(config), *keep, "--worker-urls", *urls)
        async with served(*flags) as router:
            await until_ready(client, router.url, 3)
            names = [f"p{n}" for n in range(12)]
            homes = {name: await ask(client, router.url, name) for name in names}
            assert set(homes.values()) == set(urls)
            async with asyncio.timeout(10):
                while len(json.loads(snapshot.read_text())["programs"]) < 12:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert router.stop(signal.SIGKILL) == -signal.SIGKILL
        # The other way round: workers' numbers change, their URLs do not.
        flags = ("--config", str(config), *keep, "--worker-urls", *reversed(urls))
        async with served(*flags) as router:
            await until_ready(client, router.url, 3)
            listed = (await client.get(f"{router.url}/programs")).json()
            assert sorted(listed) == sorted(names)
            assert all(shown["in_flight"] == 0 for shown in listed.values())
            assert {name: await ask(client, router.url, name) for name in names} == homes
            assert router.stop() == 0
    assert main(["replay", str(tmp_path / "j.jsonl")]) == 0


async def test_a_second_router_on_the_same_port_says_so() -> None:
    async with served() as router:
        second = [sys.executable, "-m", "thunder_router", "serve", "--port", str(router.port)]
        ended = await asyncio.to_thread(
            subprocess.run, second, capture_output=True, text=True, timeout=30, check=False
        )
        assert ended.returncode == 2
        assert f"cannot listen on 127.0.0.1 port {router.port}" in ended.stderr
        assert router.stop(signal.SIGINT) in (0, 130)
