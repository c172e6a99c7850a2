"""Back-pressure: neither a slow client nor a slow worker fills the router's memory."""

import asyncio

import pytest

from faulty_worker import FaultyWorker, Seen, Wire, chunk, event, plain, sse_head
from relay_rig import STREAM, relay

KERNEL = 32 * 2**20
"""More than the kernel's buffers of two loopback connections hold."""


@pytest.mark.parametrize("body", [STREAM, b'{"messages":[]}'], ids=["stream", "whole"])
async def test_a_client_that_does_not_read_stops_its_worker(body: bytes) -> None:
    stuck: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    part = event(b"x" * 65536) if body is STREAM else chunk(b"x" * 65536)

    async def flood(seen: Seen, wire: Wire) -> None:
        head = sse_head() + event(b"{}")
        if body is not STREAM:
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"{}")
        await wire.send(head)
        stuck.set_result(await wire.send_until_stuck(part))
        await wire.send(b"0\r\n\r\n")

    worker = FaultyWorker(flood)
    async with worker, relay(worker, buffer_bytes=65536, stream_idle_timeout_s=60) as rig:
        client = await rig.client()
        client.post(body)
        times = await stuck
        front = next(iter(rig.relay.connections))
        # One read of the worker's connection may come on top: 256 KiB with uvloop.
        assert front.transport.get_write_buffer_size() <= 65536 + 2**19  # type: ignore[attr-defined]
        assert times * 65536 < KERNEL
        # A worker that may not speak is not taken for silent,
        front.expire(rig.relay.loop.time() + 3600)
        # and when the client reads again it gets every byte.
        reply = await client.reply()
        assert reply.whole
        assert reply.body.count(b"x") == times * 65536
        await rig.desk.ended()


async def test_other_clients_are_served_while_one_does_not_read() -> None:
    stuck = asyncio.Event()

    async def script(seen: Seen, wire: Wire) -> None:
        if b"stream" not in seen.body:
            await wire.send(plain())
            return
        await wire.send(sse_head() + event(b"{}"))
        await wire.send_until_stuck(event(b"x" * 65536))
        stuck.set()
        await wire.gone()

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        stalled = await rig.client()
        stalled.post(STREAM)
        await stuck.wait()
        assert (await rig.ask()).status == 200


async def test_a_large_upload_to_a_worker_that_does_not_read_waits_for_it() -> None:
    go = asyncio.Event()
    body = b'{"messages":[],"x":"' + b"a" * (1 << 25) + b'"}'
    got: list[bytes] = []

    async def script(seen: Seen, wire: Wire) -> None:
        await go.wait()
        got.append(await wire.reader.readexactly(len(body)))
        await wire.send(plain())

    async with FaultyWorker(script, read_whole=False) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(body)
        await worker.arrived.wait()
        go.set()
        assert (await client.reply()).status == 200
    assert got == [body]


async def test_a_client_that_pipelines_without_reading_is_not_read_for_ever() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.gone()

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post()
        await worker.arrived.wait()
        body = b'{"messages":[],"x":"' + b"a" * 2**20 + b'"}'
        wire = Wire(client.reader, client.writer)
        times = await wire.send_until_stuck(
            b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert times * len(body) < KERNEL
    assert len(worker.seen) == 1
