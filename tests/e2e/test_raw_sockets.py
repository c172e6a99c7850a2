"""HTTP/1.1 as few clients write it: pipelined, chunked, expecting, halved, byte by byte."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Literal

import pytest

from e2e.stack import MODEL, Router

ANSWER = "The capital of France is Paris."
CHAT = "/v1/chat/completions"


def body(text: str = "What is the capital of France?") -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": MODEL, "messages": [message]}).encode()


def head(*lines: str, method: str = "POST", path: str = CHAT) -> bytes:
    first = (f"{method} {path} HTTP/1.1", "Host: router", "Content-Type: application/json")
    return "\r\n".join([*first, *lines, "", ""]).encode()


def whole(payload: bytes, *lines: str) -> bytes:
    return head(*lines, f"Content-Length: {len(payload)}") + payload


@contextmanager
def connection(router: Router) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", router.port), timeout=20) as client:
        yield client


def read(client: socket.socket, method: str = "POST") -> tuple[int, bytes]:
    """Status and body of the next answer; only whole answers are read, byte by byte if need be."""
    response = HTTPResponse(_Unbuffered(client), method=method)  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read()


class _Unbuffered:
    """Lets `HTTPResponse` read no further than its own answer, so that the next is still there."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client

    def makefile(self, mode: Literal["rb"]) -> object:
        return self._client.makefile(mode, buffering=0)


def content(answer: bytes) -> str:
    text = json.loads(answer)["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def is_closed(client: socket.socket) -> bool:
    """Whether the router ends the connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_pipelined_requests_are_answered_in_their_order(router: Router) -> None:
    with connection(router) as client:
        client.sendall(whole(body()) + whole(body("list the files")) + whole(body()))
        first, second, third = read(client), read(client), read(client)

    assert [status for status, _ in (first, second, third)] == [200, 200, 200]
    assert content(first[1]) == content(third[1]) == ANSWER
    assert json.loads(second[1])["choices"][0]["finish_reason"] == "tool_calls"


def test_a_client_that_expects_100_continue_gets_it_before_it_sends(router: Router) -> None:
    payload = body()
    with connection(router) as client:
        client.sendall(head("Expect: 100-continue", f"Content-Length: {len(payload)}"))
        interim = client.recv(1024)
        client.sendall(payload)
        status, answer = read(client)

    assert interim.startswith(b"HTTP/1.1 100 Continue\r\n")
    assert status == 200
    assert content(answer) == ANSWER


def test_a_chunked_request_is_taken_in_any_split(router: Router) -> None:
    payload = body()
    chunks = [payload[:7], payload[7:8], payload[8:]]
    coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    with connection(router) as client:
        client.sendall(head("Transfer-Encoding: chunked"))
        for byte in coded:
            client.sendall(bytes([byte]))
        status, answer = read(client)

    assert status == 200
    assert content(answer) == ANSWER


def test_a_connection_stays_usable_after_a_bad_body(router: Router) -> None:
    with connection(router) as client:
        client.sendall(whole(b"{nonsense"))
        status, answer = read(client)
        assert status == 400
        assert json.loads(answer)["error"]["message"]
        client.sendall(whole(body()))
        status, answer = read(client)

    assert status == 200
    assert content(answer) == ANSWER


def test_half_a_request_disturbs_nobody(router: Router) -> None:
    payload = body()
    with connection(router) as client:
        client.sendall(head(f"Content-Length: {len(payload)}") + payload[: len(payload) // 2])
    with connection(router) as client:
        client.sendall(whole(payload))
        assert read(client)[0] == 200


def test_connection_close_is_honoured(router: Router) -> None:
    with connection(router) as client:
        client.sendall(whole(body(), "Connection: close"))
        status, answer = read(client)
        assert is_closed(client)

    assert status == 200
    assert content(answer) == ANSWER


@pytest.mark.parametrize(
    "bad",
    [
        b"NONSENSE\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        b"Content-Length: 3\r\n\r\n{}",
    ],
    ids=["no request line", "no length", "two lengths"],
)
def test_what_is_not_http_is_a_400_and_the_end(router: Router, bad: bytes) -> None:
    with connection(router) as client:
        client.sendall(bad)
        status, _ = read(client)
        assert is_closed(client)

    assert status == 400


def test_ten_thousand_headers_are_refused(router: Router) -> None:
    lines = [f"X-Number-{number}: {number:0100d}" for number in range(10_000)]
    with connection(router) as client:
        try:
            client.sendall(whole(body(), *lines))
            status, _ = read(client)
        except ConnectionError:
            status = 0  # Cut while it was still sending: as good an answer.

    assert status in {0, 400, 431}
