"""What ends while others are at work: the router, a worker, a client."""

import json
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.processes import Process, console_script, free_port
from e2e.stack import MODEL, Worker, emulated_worker, eventually, served_router

# About 2,000 tokens at 30 a second and more: a stream that is still going when the test acts.
SLOW = ("--speed", "1", "--coalesce-s", "0.02")
LONG: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a long story."}],
    "stream": True,
    "max_tokens": 2000,
    "ignore_eos": True,
}


def test_sigterm_finishes_streams_and_takes_no_new_ones(tmp_path: Path) -> None:
    short = {**LONG, "max_tokens": 60}
    with (
        emulated_worker(tmp_path, *SLOW) as worker,
        served_router(tmp_path, [worker.url]) as router,
        httpx.stream("POST", f"{router.url}/v1/chat/completions", json=short) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        router.process.signal(signal.SIGTERM)
        eventually(lambda: refuses(router.port), "a new connection was still accepted")
        rest = list(lines)

        assert rest[-2:] == ["data: [DONE]", ""]
        assert router.process.wait(20) == 0


def test_a_worker_killed_in_mid_stream_ends_the_stream_with_an_error_event(
    tmp_path: Path,
) -> None:
    with (
        emulated_worker(tmp_path, *SLOW) as dying,
        emulated_worker(tmp_path, *SLOW) as staying,
        served_router(tmp_path, [dying.url, staying.url]) as router,
    ):
        chat = f"{router.url}/v1/chat/completions"
        with httpx.stream("POST", chat, json={**LONG, "program_id": "p"}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            victim, other = (dying, staying) if dying.requests() else (staying, dying)
            victim.process.signal(signal.SIGKILL)
            rest = [line for line in lines if line.startswith("data: ")]

        assert "data: [DONE]" not in rest
        error = json.loads(rest[-1].removeprefix("data: "))["error"]
        assert error["message"]
        assert "127.0.0.1" not in json.dumps(error)
        # The program goes on elsewhere, at once.
        answer = httpx.post(
            chat,
            json={**LONG, "program_id": "p", "stream": False, "max_tokens": 3},
            timeout=30,
        )
        assert answer.status_code == 200
        assert other.requests() == 1


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_a_client_that_leaves_stops_the_generation(tmp_path: Path, stream: bool) -> None:
    with (
        emulated_worker(tmp_path, *SLOW) as worker,
        served_router(tmp_path, [worker.url]) as router,
    ):
        payload = json.dumps({**LONG, "stream": stream}).encode()
        with socket.create_connection(("127.0.0.1", router.port), timeout=20) as client:
            head = (
                "POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
            )
            client.sendall(head.encode() + payload)
            eventually(lambda: running(worker) == 1, "the request never began")
        eventually(lambda: running(worker) == 0, "the engine went on for nobody")


def refuses(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return False
    except ConnectionRefusedError:
        return True


def running(worker: Worker) -> int:
    loads = httpx.get(f"{worker.url}/v1/loads").json()["loads"]
    return int(sum(load["num_running_reqs"] for load in loads))


def test_the_router_serves_https_with_the_flags_of_sglang_router(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=router"
    openssl = f"openssl req -x509 {kind} -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*openssl.split(), "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    port, trusting = free_port(), ssl.create_default_context(cafile=str(cert))
    story = [{"role": "user", "content": "word " * 100_000}]  # many TLS records each way
    with emulated_worker(tmp_path) as worker:
        command = [console_script("thunder-router"), "serve", "--port", str(port)]
        command += ["--worker-urls", worker.url]
        command += ["--tls-cert-path", str(cert), "--tls-key-path", str(key)]
        with (
            Process(command, log=tmp_path / "router.log"),
            httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting) as client,
        ):
            eventually(lambda: answers(client), "it never was ready")
            body = {**LONG, "messages": story, "max_tokens": 200}
            with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                lines = [line for line in stream.iter_lines() if line]
            with pytest.raises(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/liveness")

    assert lines[-1] == "data: [DONE]"


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readiness").status_code == 200
    except httpx.ConnectError:
        return False
