"""Workers that refuse, break, stall or babble: what the client and the scheduler get to know."""

import asyncio
import json
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from faulty_worker import FaultyWorker, Script, Seen, Wire, chunk, event, plain, sse_head
from relay_rig import ASKED, BODY, CHAT, STREAM, Reply, Spot, relay
from thunder_router.relay import Endpoint

DELTA = b'{"choices":[{"delta":{"content":"a"}}]}'
STREAM_OF = {
    b"/v1/chat/completions": STREAM,
    b"/v1/completions": b'{"model":"m","stream":true,"prompt":"a"}',
    b"/v1/responses": b'{"model":"m","stream":true,"input":"a"}',
    b"/v1/messages": b'{"model":"m","stream":true,"max_tokens":9,"messages":[]}',
    b"/generate": b'{"text":"a","stream":true}',
}


def says(data: bytes) -> Script:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(data)

    return script


def says_and_resets(data: bytes) -> Script:
    async def script(seen: Seen, wire: Wire) -> None:
        if data:
            await wire.send(data)
        wire.reset()

    return script


async def silent(seen: Seen, wire: Wire) -> None:
    await wire.gone()


def code(reply: Reply) -> object:
    return json.loads(reply.body)["error"]["code"]


def dead_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# --- before anything began ---


async def test_a_worker_that_takes_no_connection_costs_the_client_nothing() -> None:
    async with FaultyWorker() as dead, FaultyWorker() as alive, relay(dead, alive) as rig:
        rig.yard.change(0, port=dead_port())
        assert (await rig.ask()).status == 200
        await rig.desk.ended()
        assert rig.desk.stories == [["bounced", "finished"]]
        assert rig.yard.notes == [(0, "connect"), (1, None)]
    assert (len(dead.seen), len(alive.seen)) == (0, 1)


async def test_when_no_worker_takes_a_connection_the_client_hears_no_address() -> None:
    async with FaultyWorker() as one, FaultyWorker() as two, relay(one, two) as rig:
        ports = dead_port(), dead_port()
        for worker, port in enumerate(ports):
            rig.yard.change(worker, port=port)
        reply = await rig.ask()
        assert (reply.status, code(reply)) == (
            502,
            "worker_unreachable",
        )
        assert not any(str(port).encode() in reply.head + reply.body for port in ports)
        assert b"127.0.0.1" not in reply.body
        await rig.desk.ended()
        assert rig.desk.stories == [["bounced", "failed"]]


async def test_a_full_queue_is_tried_again_elsewhere_once() -> None:
    full = says(plain(b'{"error":{"message":"The request queue is full."}}', b"503 Busy"))
    async with FaultyWorker(full) as busy, FaultyWorker() as free, relay(busy, free) as rig:
        assert (await rig.ask()).status == 200
        await rig.desk.ended()
        assert rig.desk.stories == [["bounced", "finished"]]
    async with FaultyWorker(full) as one, FaultyWorker(full) as two, relay(one, two) as rig:
        reply = await rig.ask()
        assert (reply.status, reply.head.split(b"\r\n")[0]) == (503, b"HTTP/1.1 503 Busy")
        await rig.desk.ended()
        assert rig.desk.stories == [["bounced", "failed"]]


async def test_a_stream_that_begins_with_a_full_queue_is_tried_again_elsewhere() -> None:
    refusal = b'{"error":{"message":"The request queue is full.","type":"x","code":503}}'
    good = says(sse_head() + event(DELTA) + event(b"[DONE]") + b"0\r\n\r\n")
    full = says(sse_head() + event(refusal) + event(b"[DONE]") + b"0\r\n\r\n")
    async with FaultyWorker(full) as busy, FaultyWorker(good) as free, relay(busy, free) as rig:
        reply = await rig.ask(STREAM)
        assert (reply.status, reply.body) == (200, b"data: " + DELTA + b"\n\ndata: [DONE]\n\n")
        await rig.desk.ended()
        assert rig.desk.stories == [["bounced", "finished"]]


async def test_a_stream_that_begins_with_an_error_has_that_errors_status() -> None:
    refusal = b'{"error":{"object":"error","message":"too long","type":"BAD_REQUEST","code":400}}'

    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head())
        for byte in event(refusal):
            await wire.send(bytes([byte]))
        await wire.send(event(b"[DONE]") + b"0\r\n\r\n")

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask(STREAM)
        assert (reply.status, json.loads(reply.body)["error"]["message"]) == (400, "too long")
        assert reply.header(b"content-type") == b"application/json"
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]


async def test_an_idle_connection_that_ends_as_it_is_used_costs_the_client_nothing() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        if worker.connections == 1 and len(worker.seen) == 2:
            wire.reset()  # as if the request had crossed the close
        else:
            await wire.send(plain())

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        assert [(await client.ask()).status for _ in range(3)] == [200, 200, 200]
        await rig.desk.ended()
        assert rig.desk.stories == [["finished"]] * 3
        assert {fault for _, fault in rig.yard.notes} == {None}


async def test_idle_connections_that_the_worker_closed_are_not_used() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        for _ in range(3):
            assert (await client.ask()).status == 200
            worker.close_idle()
    assert len(worker.seen) >= 3


# --- after it began ---


async def test_a_reset_before_the_first_byte_is_a_502_and_not_tried_again() -> None:
    crashing = FaultyWorker(says_and_resets(b""))
    async with crashing as one, FaultyWorker() as two, relay(one, two) as rig:
        reply = await rig.ask()
        assert (reply.status, code(reply)) == (502, "worker_reset")
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]
        assert rig.yard.notes == [(0, "reset")]
    assert two.seen == []


@pytest.mark.parametrize("target", list(STREAM_OF))
async def test_a_reset_within_a_stream_is_an_error_event_and_no_done(target: bytes) -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(DELTA))
        await told.wait()
        wire.reset()

    told = asyncio.Event()
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(STREAM_OF[target], target)
        await client.head()
        assert await client.chunk() == b"data: " + DELTA + b"\n\n"
        told.set()
        last = await client.chunk()
        assert await client.chunk() == b""
        assert await client.end() == b"\r\n"
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]
    assert b"[DONE]" not in last
    fields = dict(line.split(b": ", 1) for line in last.strip().split(b"\n"))
    said = json.loads(fields[b"data"])
    if target in (b"/v1/messages", b"/v1/responses"):
        assert (fields[b"event"], said["type"]) == (b"error", "error")
    else:
        assert said["error"]["code"] == "worker_reset"


async def test_a_reset_within_an_event_does_not_spoil_the_error_event() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(DELTA) + chunk(b'data: {"choi'))
        wire.close()

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask(ASKED)
    assert [part[:13] for part in reply.body.strip().split(b"\n\n")] == [
        b'data: {"choic',
        b'data: {"choi',
        b'data: {"error',
    ]


async def test_a_reset_within_a_body_leaves_the_client_with_a_cut_body() -> None:
    data = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"
    async with FaultyWorker(says_and_resets(data)) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post()
        try:
            reply = await client.reply()
            assert (reply.status, reply.whole) in ((200, False), (502, True))
        except ConnectionError:
            pass
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na\x00: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_an_answer_that_is_not_http_is_a_502(data: bytes) -> None:
    async with FaultyWorker(says(data)) as worker, relay(worker) as rig:
        reply = await rig.ask()
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]
        assert rig.yard.notes == [(0, "protocol")]
    assert (reply.status, code(reply)) == (502, "worker_protocol")


@pytest.mark.parametrize("status", [b"500 Oops", b"504 Slow"])
async def test_a_workers_own_error_passes_through_and_counts_as_its_fault(status: bytes) -> None:
    async with FaultyWorker(says(plain(b"{}", status))) as worker, relay(worker) as rig:
        assert (await rig.ask()).head.startswith(b"HTTP/1.1 " + status)
        await rig.desk.ended()
        assert rig.yard.notes == [(0, "status")]
        assert rig.desk.stories == [["failed"]]


async def test_a_clients_mistake_is_no_fault_of_the_worker() -> None:
    async with FaultyWorker(says(plain(b"{}", b"400 No"))) as worker, relay(worker) as rig:
        assert (await rig.ask()).status == 400
        await rig.desk.ended()
        assert (rig.yard.notes, rig.desk.stories) == ([(0, None)], [["failed"]])


async def test_a_silent_worker_is_given_up_after_its_time() -> None:
    async with FaultyWorker(silent) as worker, relay(worker, first_byte_timeout_s=0.05) as rig:
        reply = await rig.ask()
        assert (reply.status, code(reply)) == (504, "worker_timeout")
        await rig.desk.ended()
        assert (rig.yard.notes, rig.desk.stories) == ([(0, "timeout")], [["failed"]])


async def test_a_stream_that_falls_silent_is_given_up_after_its_time() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(DELTA))
        await wire.gone()

    async with FaultyWorker(script) as worker, relay(worker, stream_idle_timeout_s=0.05) as rig:
        reply = await rig.ask(STREAM)
        await rig.desk.ended()
    assert reply.body.startswith(b"data: " + DELTA + b'\n\ndata: {"error": {')
    assert b"worker_timeout" in reply.body


async def test_a_worker_gone_from_the_registry_is_a_503() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.desk.spots = [Spot(7)]
        assert (await rig.ask()).status == 503
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]


async def test_an_answer_before_the_request_is_sent_whole_is_passed_on() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(b"{}", b"413 Too Much"))
        await wire.gone()

    body = b'{"messages":[],"x":"' + b"a" * (1 << 25) + b'"}'
    async with FaultyWorker(script, read_whole=False) as worker, relay(worker) as rig:
        client = await rig.client()
        assert (await client.ask(body)).status == 413
        assert (await client.ask()).status == 413
    assert worker.connections == 2


async def test_interim_answers_are_not_the_answer() -> None:
    data = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + plain(
        b"{}"
    )
    async with FaultyWorker(says(data)) as worker, relay(worker) as rig:
        reply = await rig.ask()
    assert (reply.status, reply.body, reply.header(b"link")) == (200, b"{}", None)


async def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        await wire.send(b'{"a": 1}')
        wire.close()

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask()
        await rig.desk.ended()
        assert rig.desk.stories == [["finished"]]
    assert (reply.body, reply.whole, reply.header(b"transfer-encoding")) == (
        b'{"a": 1}',
        True,
        b"chunked",
    )


class Broken(dict[int, Endpoint]):
    def __contains__(self, key: object) -> bool:
        raise ZeroDivisionError


async def test_our_own_bug_is_a_500_that_says_nothing_and_ends_the_ticket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.yard.endpoints = Broken()
        reply = await rig.ask()
        assert (reply.status, code(reply)) == (500, "internal_error")
        await rig.desk.ended()
        assert rig.desk.stories == [["failed"]]
    assert "ZeroDivisionError" in caplog.text


# --- other kinds of endpoints ---


async def test_a_worker_may_listen_on_ipv6() -> None:
    async with FaultyWorker(host="::1") as worker, relay(worker) as rig:
        assert (await rig.ask()).status == 200


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    name = "-addext subjectAltName=IP:127.0.0.1"
    command = f"openssl req -x509 {kind} {name} -keyout {key} -out {cert}"
    subprocess.run(command.split(), check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


async def test_a_worker_may_speak_https(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    body = b'{"messages":[],"x":"' + b"a" * 500_000 + b'"}'
    async with FaultyWorker(tls=server) as worker, relay(worker) as rig:
        rig.yard.change(0, tls=client)
        assert (await rig.ask(body)).status == 200
        assert worker.seen[0].body == body
        rig.yard.change(0, tls=ssl.create_default_context())  # does not know the certificate
        assert (await rig.ask()).status == 503
        assert rig.yard.notes[-1] == (0, "connect")


async def test_each_dp_rank_is_named_to_the_worker() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.yard.change(0, ranks=2)
        rig.desk.spots = [Spot(0, rank=1)]
        await rig.ask(BODY, CHAT, b"X-Data-Parallel-Rank: 0")
    assert [v for n, v in worker.seen[0].headers if n == b"X-Data-Parallel-Rank"] == [b"1"]
    assert json.loads(worker.seen[0].body)["routed_dp_rank"] == 1


async def test_what_the_place_says_is_spliced_in_and_what_the_engine_lacks_is_cut() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.yard.change(0, drops=("priority",))
        rig.desk.spots = [Spot(0, session_id="s-1")]
        await rig.ask(b'{"messages":[],"priority":3}')
    assert json.loads(worker.seen[0].body) == {"messages": [], "session_id": "s-1"}
