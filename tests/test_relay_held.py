"""Requests that wait for a place: comments for streams, plain waiting for the rest."""

import json

import pytest

from faulty_worker import FaultyWorker, Seen, Wire, event, plain, sse_head
from relay_rig import BODY, STREAM, Desk, relay
from thunder_router.errors import NoWorkerError, OversizeError, RejectedError

COMMENT = b": keep-alive\n\n"
DELTA = b'{"choices":[{"delta":{"content":"a"}}]}'


async def stream(seen: Seen, wire: Wire) -> None:
    await wire.send(sse_head(b"X-W: 1") + event(DELTA) + event(b"[DONE]") + b"0\r\n\r\n")


async def test_a_held_request_waits_and_is_served() -> None:
    async with FaultyWorker() as worker, relay(worker, desk=Desk(holds=True)) as rig:
        client = await rig.client()
        client.post()
        await rig.desk.an_arrival.wait()
        assert worker.seen == []
        rig.desk.tickets[0].admit()
        assert (await client.reply()).status == 200
        await rig.desk.ended()
        assert rig.desk.stories == [["finished"]]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RejectedError("Held for too long.", retry_after_s=1.2), 429, "queue_full"),
        (NoWorkerError("Nobody serves m."), 503, "no_worker"),
        (OversizeError("Too large."), 413, "context_too_large"),
    ],
)
async def test_a_held_request_that_is_rejected_gets_its_status(
    error: Exception, status: int, code: str
) -> None:
    async with FaultyWorker() as worker, relay(worker, desk=Desk(holds=True)) as rig:
        client = await rig.client()
        client.post()
        await rig.desk.an_arrival.wait()
        rig.desk.tickets[0].reject(error)
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (status, code)
        assert reply.header(b"retry-after") == (b"2" if status == 429 else None)
        assert rig.desk.stories == [["rejected"]]


async def test_a_request_refused_on_arrival_gets_429_and_a_time_to_retry() -> None:
    desk = Desk(refuses=RejectedError("The queue is full.", retry_after_s=7))
    async with FaultyWorker() as worker, relay(worker, desk=desk) as rig:
        client = await rig.client()
        reply = await client.ask()
        assert (reply.status, reply.header(b"retry-after")) == (429, b"7")
        assert [e.outcome for e in rig.log.entries] == ["rejected"]
        rig.desk.refuses = None
        rig.desk.holds = False
        assert (await client.ask()).status == 200


async def test_a_held_stream_is_kept_alive_with_comments_and_then_served() -> None:
    desk = Desk(holds=True)
    async with (
        FaultyWorker(stream) as worker,
        relay(worker, desk=desk, keepalive_comment_s=0.01) as rig,
    ):
        client = await rig.client()
        client.post(STREAM)
        assert b"200 OK" in await client.head()
        assert [await client.chunk() for _ in range(3)] == [COMMENT] * 3
        desk.tickets[0].admit()
        rest = b""
        while data := await client.chunk():
            rest += data
        assert rest.replace(COMMENT, b"") == b"data: " + DELTA + b"\n\ndata: [DONE]\n\n"
        await client.reader.readexactly(2)
        desk.holds = False
        assert (await client.ask(STREAM)).status == 200  # the connection is kept
        await desk.ended()
        assert desk.stories == [["finished"], ["finished"]]


async def test_the_messages_api_is_kept_alive_with_its_own_pings() -> None:
    desk = Desk(holds=True)
    async with FaultyWorker() as worker, relay(worker, desk=desk, keepalive_comment_s=0.01) as rig:
        client = await rig.client()
        client.post(b'{"stream":true,"max_tokens":1,"messages":[]}', b"/v1/messages")
        await client.head()
        assert await client.chunk() == b'event: ping\ndata: {"type": "ping"}\n\n'


async def test_a_held_stream_that_is_rejected_late_ends_with_an_error_event() -> None:
    desk = Desk(holds=True)
    async with FaultyWorker() as worker, relay(worker, desk=desk, keepalive_comment_s=0.01) as rig:
        client = await rig.client()
        client.post(STREAM)
        await client.head()
        desk.tickets[0].reject(RejectedError("Held for too long.", retry_after_s=1))
        last = b""
        while data := await client.chunk():
            last = data
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "queue_full"
        assert await client.end() == b"\r\n"
        assert desk.stories == [["rejected"]]


async def test_a_held_stream_that_its_worker_refuses_ends_with_an_error_event() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(b'{"object":"error","message":"too long","code":400}', b"400 Bad"))

    desk = Desk(holds=True)
    async with (
        FaultyWorker(script) as worker,
        relay(worker, desk=desk, keepalive_comment_s=0.01) as rig,
    ):
        client = await rig.client()
        client.post(STREAM)
        await client.head()
        desk.tickets[0].admit()
        last = b""
        while data := await client.chunk():
            last = data
        assert json.loads(last.removeprefix(b"data: "))["error"]["message"] == "too long"
        await desk.ended()
        assert desk.stories == [["failed"]]


async def test_only_streams_are_kept_alive() -> None:
    desk = Desk(holds=True)
    async with FaultyWorker() as worker, relay(worker, desk=desk, keepalive_comment_s=0.001) as rig:
        client, other = await rig.client(), await rig.client()
        client.post(BODY)
        await rig.desk.an_arrival.wait()
        other.post(STREAM)
        await other.head()
        await other.chunk()  # by now the first would have had a comment too
        desk.tickets[0].admit()
        assert (await client.reply()).header(b"content-type") == b"application/json"
