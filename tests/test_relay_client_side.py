"""The client's connection: framing, order, limits, refusals."""

import asyncio
import gc
import json
import random
import re
import weakref
from collections.abc import Iterable

import pytest

from faulty_worker import FaultyWorker, Seen, Wire, chunk, event, plain, sse_head
from relay_rig import BODY, CHAT, STREAM, Desk, Yard, relay
from thunder_router.config import RelaySettings
from thunder_router.relay import Endpoint, Relay
from thunder_router.relay.front import Front
from thunder_router.relay.upstream import Upstream

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)


async def test_a_connection_is_kept_and_the_workers_too() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        for _ in range(3):
            assert (await client.ask()).status == 200
    assert (len(worker.seen), worker.connections) == (3, 1)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(seen.body))

    bodies = [b'{"model":"m","messages":[],"x":%d}' % number for number in range(5)]
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(b"".join(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies))
        assert [(await client.reply()).body for _ in bodies] == bodies


async def test_requests_in_any_pieces_are_answered_in_order() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(seen.body))

    rng = random.Random(3)
    bodies = [b'{"model":"m","messages":[],"x":%d}' % number for number in range(300)]
    data = b"".join(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies)
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()

        async def send() -> None:
            at = 0
            while at < len(data):
                size = rng.randrange(1, 600)
                client.send(data[at : at + size])
                at += size
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        assert [(await client.reply()).body for _ in bodies] == bodies
        await sending


async def test_a_thousand_pipelined_refusals_are_each_answered() -> None:
    async with FaultyWorker() as worker, relay(worker, key="k") as rig:
        client = await rig.client()
        client.send((HEAD + b"Content-Length: 0\r\n\r\n") * 1000)
        assert [(await client.reply()).status for _ in range(1000)] == [401] * 1000
    assert worker.seen == []


async def test_a_chunked_request_reaches_the_worker_with_its_length() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(HEAD + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n")
        for byte in BODY:
            client.send(chunk(bytes([byte])))
        client.send(b"0\r\nX-T: 1\r\n\r\n")
        assert (await client.reply()).status == 200
        assert (await client.ask()).status == 200
    seen = worker.seen[0]
    assert (seen.body, seen.header(b"content-length")) == (BODY, b"%d" % len(BODY))
    assert seen.header(b"transfer-encoding") is seen.header(b"x-t") is None


async def test_a_client_that_expects_it_is_told_to_continue() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(HEAD + b"Expect: 100-continue\r\n" + LENGTH)
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(BODY)
        assert (await client.reply()).status == 200
    assert worker.seen[0].header(b"expect") is None


async def test_an_unwelcome_body_is_refused_instead_of_continued() -> None:
    async with FaultyWorker() as worker, relay(worker, max_body_bytes=10) as rig:
        client = await rig.client()
        client.send(HEAD + b"Expect: 100-continue\r\n" + LENGTH)
        assert (await client.reply()).status == 413


async def test_http_1_0_gets_an_unchunked_answer_and_the_connection_closed() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(b'{"a":1}') + event(b"[DONE]") + b"0\r\n\r\n")

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(HEAD.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(STREAM))
        client.send(STREAM)
        reply = await client.reply()
    assert reply.header(b"transfer-encoding") is None
    assert reply.header(b"connection") == b"close"
    assert reply.body == b'data: {"a":1}\n\ndata: [DONE]\n\n'


async def test_a_request_target_may_be_a_whole_url() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        reply = await rig.ask(BODY, b"http://router:1/v1/chat/completions?a=b")
    assert reply.status == 200
    assert worker.seen[0].target == b"/v1/chat/completions?a=b"


async def test_an_upgrade_offer_is_declined_by_answering() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAA")
        for _ in range(2):
            assert (await client.ask(BODY, CHAT, *offer)).status == 200
    assert [name.lower() for name, _ in worker.seen[0].headers] == [
        b"host",
        b"x-request-id",
        b"content-length",
    ]


async def test_a_connection_ends_after_its_allotted_requests() -> None:
    async with FaultyWorker() as worker, relay(worker, requests_per_connection=2) as rig:
        client = await rig.client()
        assert (await client.ask()).header(b"connection") is None
        assert (await client.ask()).header(b"connection") == b"close"
        assert await client.end() == b""
        await rig.ask()
    assert worker.connections == 2


async def test_a_client_may_ask_for_the_end_of_its_connection() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        reply = await client.ask(BODY, CHAT, b"Connection: close")
        assert (reply.status, reply.header(b"connection")) == (200, b"close")
        assert await client.end() == b""


async def test_bodies_up_to_the_limit_pass_and_longer_ones_get_413() -> None:
    async with FaultyWorker() as worker, relay(worker, max_body_bytes=2**20) as rig:
        most = b'{"messages":[],"x":"' + b"a" * (2**20 - 22) + b'"}'
        assert (await rig.ask(most)).status == 200
        reply = await rig.ask(most + b" ")
        assert (reply.status, reply.header(b"connection")) == (413, b"close")
        assert json.loads(reply.body)["error"]["code"] == "body_too_large"
    assert [len(seen.body) for seen in worker.seen] == [2**20]


async def test_a_body_of_64_mib_passes() -> None:
    body = b'{"messages":[],"x":"' + b"a" * (2**26 - 22) + b'"}'
    async with FaultyWorker() as worker, relay(worker) as rig:
        assert (await rig.ask(body)).status == 200
    assert worker.seen[0].body == body


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_long() -> None:
    async with FaultyWorker() as worker, relay(worker, max_body_bytes=1000) as rig:
        client = await rig.client()
        client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"a" * 1001))
        assert (await client.reply()).status == 413  # though its end never comes
    assert worker.seen == []


async def test_a_refused_upload_can_be_sent_to_its_end() -> None:
    async with FaultyWorker() as worker, relay(worker, max_body_bytes=1000) as rig:
        client = await rig.client()
        client.send(HEAD + b"Content-Length: %d\r\n\r\n" % 2**24)
        client.send(b"a" * 2**24)
        await client.writer.drain()
        assert (await client.reply()).status == 413


@pytest.mark.parametrize(
    "header",
    [b"Authorization: Bearer sesame", b"authorization: bearer sesame", b"x-api-key: sesame"],
)
async def test_the_key_opens_in_either_place_and_stays_here(header: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker, key="sesame") as rig:
        rig.yard.change(0, authorization=b"Bearer of-the-worker")
        assert (await rig.ask(BODY, CHAT, header)).status == 200
    assert worker.seen[0].header(b"authorization") == b"Bearer of-the-worker"
    assert b"sesame" not in worker.seen[0].head


@pytest.mark.parametrize(
    "header", [b"X-A: b", b"Authorization: Bearer nope", b"Authorization: sesame", b"x-api-key:"]
)
async def test_without_the_key_a_client_is_refused(header: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker, key="sesame") as rig:
        reply = await rig.ask(BODY, CHAT, header)
        assert (reply.status, reply.header(b"www-authenticate")) == (401, b"Bearer")
        anthropic = await rig.ask(BODY, b"/v1/messages", header)
        assert json.loads(anthropic.body)["error"]["type"] == "authentication_error"
    assert worker.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"model": 1}',
        b'{"stream": "yes", "messages": []}',
        b'{"model": "a", "model": "b"}',
        b'{"model": "\x00"}',
        b"",
    ],
)
async def test_a_body_that_is_not_the_json_needed_is_a_400(body: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        reply = await client.ask(body)
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, "invalid_body")
        reply = await client.ask(body, b"/v1/messages")
        assert json.loads(reply.body)["type"] == "error"
        assert (await client.ask()).status == 200
    assert len(worker.seen) == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /generate HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: 2\nX: y\n\nab",
        b"SMUGGLE / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_400_and_the_end(request_bytes: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(request_bytes)
        reply = await client.reply()
        assert (reply.status, reply.header(b"connection")) == (400, b"close")
        assert json.loads(reply.body)["error"]["code"] == "malformed_request"
        assert await client.end() == b""
    assert worker.seen == []


async def test_a_good_request_before_a_bad_one_is_still_answered() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(HEAD + LENGTH + BODY + b"\x00garbage\r\n\r\n")
        assert [(await client.reply()).status for _ in range(2)] == [200, 400]
        assert await client.end() == b""


async def test_ten_thousand_headers_are_refused() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + LENGTH + BODY)
        assert (await client.reply()).status == 431
    assert worker.seen == []


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"X-Long: ",
        b"POST /",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-T: ",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["header", "target", "trailer", "chunk-extension"],
)
async def test_a_line_without_end_is_refused_before_it_fills_the_memory(start: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(start)
        for _ in range(64):
            client.send(b"a" * 65536)
        reply = await client.reply()
        assert reply.status in (400, 431)
    assert worker.seen == []


@pytest.mark.parametrize("part", [b"POST /v1/chat", HEAD, HEAD + LENGTH, HEAD + LENGTH + BODY[:-1]])
async def test_a_client_that_stalls_in_a_request_gets_408(part: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker, request_read_timeout_s=0.05) as rig:
        client = await rig.client()
        client.send(part)
        assert (await client.reply()).status == 408
    assert worker.seen == []


@pytest.mark.parametrize("part", [b"POST /v1/chat", HEAD + LENGTH + BODY[:-1]])
async def test_a_client_that_stalls_in_its_next_request_gets_408_after_its_answer(
    part: bytes,
) -> None:
    go = asyncio.Event()

    async def script(seen: Seen, wire: Wire) -> None:
        await go.wait()
        await wire.send(plain())

    async with FaultyWorker(script) as worker, relay(worker, request_read_timeout_s=0.05) as rig:
        client = await rig.client()
        client.send(HEAD + LENGTH + BODY + part)
        await worker.arrived.wait()
        go.set()
        assert [(await client.reply()).status for _ in range(2)] == [200, 408]


async def test_a_head_that_trickles_in_is_cut_all_the_same() -> None:
    async with FaultyWorker() as worker, relay(worker, request_read_timeout_s=0.1) as rig:
        client = await rig.client()

        async def trickle() -> None:
            client.send(HEAD + b"X-Long: ")
            for byte in b"a" * 10_000:
                client.send(bytes([byte]))
                await asyncio.sleep(0.002)

        slow = asyncio.create_task(trickle())
        assert (await client.reply()).status == 408
        slow.cancel()


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with FaultyWorker() as worker, relay(worker, request_read_timeout_s=0.05) as rig:
        client = await rig.client()
        assert (await client.ask()).status == 200
        assert await client.end() == b""


@pytest.mark.parametrize("part", [b"POST /v1/chat", HEAD, HEAD + LENGTH + BODY[:-1]])
async def test_half_a_request_is_a_400(part: bytes) -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(part)
        client.writer.write_eof()
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (
            400,
            "incomplete_request",
        )
    assert worker.seen == []


async def test_a_path_nobody_serves_is_a_404() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        assert (await rig.ask(BODY, b"/v1/nothing")).status == 404


async def test_a_good_bye_alone_reaches_no_worker() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        reply = await rig.ask(b'{"program_id": "p", "program_done": true}')
        assert (reply.status, json.loads(reply.body)) == (
            200,
            {"program_id": "p", "released": True},
        )
    assert (worker.seen, rig.desk.tickets, len(rig.desk.farewells)) == ([], [], 1)


async def test_a_request_without_an_id_gets_one_that_worker_and_client_are_told() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        reply = await rig.ask()
    given = worker.seen[0].header(b"x-request-id")
    assert given is not None
    assert len(given) == 32
    assert reply.header(b"x-request-id") == given


class Recorder(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written += b"".join(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def test_a_request_that_comes_as_the_turn_changes_waits_behind_those_before_it() -> None:
    endpoint = Endpoint("worker", 1)
    made = Relay(RelaySettings(), admission=Desk(), workers=Yard({0: endpoint}))
    to_worker, to_client = Recorder(), Recorder()
    async with made:
        lane = made.pool.lane(0, endpoint)
        upstream, front = Upstream(lane), Front(made)
        upstream.connection_made(to_worker)
        front.connection_made(to_client)
        lane.park(upstream)
        one, two, three = (b'{"messages":[],"x":%d}' % number for number in range(3))
        front.data_received(HEAD + b"Content-Length: 21\r\n\r\n" + one)
        front.data_received(HEAD + b"Content-Length: 21\r\n\r\n" + two)
        upstream.data_received(plain())
        front.data_received(HEAD + b"Content-Length: 21\r\n\r\n" + three)
        for _ in range(2):
            await asyncio.sleep(0)
            upstream.data_received(plain())
    assert re.findall(rb'"x":(\d)', to_worker.written) == [b"0", b"1", b"2"]


async def test_an_ended_connection_leaves_nothing_to_the_garbage_collector() -> None:
    endpoint = Endpoint("worker", 1)
    made = Relay(RelaySettings(), admission=Desk(), workers=Yard({0: endpoint}))
    async with made:
        lane = made.pool.lane(0, endpoint)
        gc.collect()
        gc.disable()
        try:
            upstream, front = Upstream(lane), Front(made)
            upstream.connection_made(Recorder())
            front.connection_made(Recorder())
            lane.park(upstream)
            front.data_received(HEAD + LENGTH + BODY)
            upstream.data_received(plain())
            front.data_received(HEAD + LENGTH + BODY)  # left in flight
            front.connection_lost(None)
            upstream.connection_lost(None)
            left = weakref.ref(front), weakref.ref(upstream)
            del front, upstream
            assert [ref() for ref in left] == [None, None]
        finally:
            gc.enable()
