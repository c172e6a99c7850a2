"""A client that leaves is noticed at once, in every phase, and so is the worker."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator

from faulty_worker import FaultyWorker, Seen, Wire, event, plain, sse_head
from relay_rig import BODY, STREAM, Desk, RawClient, Rig, relay


async def leave_and_settle(rig: Rig, client: RawClient) -> None:
    """Well under the time that any poll or time-out of ours would need."""
    client.leave()
    async with asyncio.timeout(1):
        await rig.desk.ended()


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port that accepts no connection and refuses none: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


class Watched:
    """A worker's script that says when it was heard and when its peer was gone."""

    def __init__(self, *says: bytes) -> None:
        self.says = says
        self.gone = asyncio.Event()

    async def __call__(self, seen: Seen, wire: Wire) -> None:
        for data in self.says:
            await wire.send(data)
        await wire.gone()
        self.gone.set()


async def test_while_it_is_held() -> None:
    async with FaultyWorker() as worker, relay(worker, desk=Desk(holds=True)) as rig:
        client = await rig.client()
        client.post(STREAM)
        await rig.desk.an_arrival.wait()
        await leave_and_settle(rig, client)
        assert rig.desk.stories == [["cancelled"]]
        assert [(e.outcome, e.status) for e in rig.log.entries] == [("cancelled", 0)]
    assert worker.connections == 0


async def test_while_it_is_held_with_an_early_head() -> None:
    desk = Desk(holds=True)
    async with FaultyWorker() as worker, relay(worker, desk=desk, keepalive_comment_s=0.01) as rig:
        client = await rig.client()
        client.post(STREAM)
        await client.head()
        await leave_and_settle(rig, client)
        assert rig.desk.stories == [["cancelled"]]


async def test_while_it_connects() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        with deaf_port() as port:
            rig.yard.change(0, port=port)
            client = await rig.client()
            client.post()
            await rig.desk.an_arrival.wait()
            await leave_and_settle(rig, client)
        assert rig.desk.stories == [["cancelled"]]


async def test_a_worker_that_takes_no_connection_in_time_is_passed_over() -> None:
    one, two = FaultyWorker(), FaultyWorker()
    async with one, two, relay(one, two, connect_timeout_s=0.05) as rig:
        with deaf_port() as port:
            rig.yard.change(0, port=port)
            assert (await rig.ask()).status == 200
        assert rig.desk.stories == [["bounced", "finished"]]


async def test_before_the_workers_head() -> None:
    script = Watched()
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(STREAM)
        await worker.arrived.wait()
        await leave_and_settle(rig, client)
        await script.gone.wait()
        assert rig.desk.stories == [["cancelled"]]


async def test_between_the_workers_head_and_its_first_event() -> None:
    script = Watched(sse_head())
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(STREAM)
        await worker.arrived.wait()
        await leave_and_settle(rig, client)
        await script.gone.wait()
        assert rig.desk.stories == [["cancelled"]]


async def test_within_the_stream() -> None:
    script = Watched(sse_head() + event(b'{"choices":[{"delta":{"content":"a"}}]}'))
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(STREAM)
        await client.head()
        await leave_and_settle(rig, client)
        await script.gone.wait()
        assert rig.desk.stories == [["cancelled"]]
        assert [(e.outcome, e.status) for e in rig.log.entries] == [("cancelled", 200)]


async def test_within_a_stream_whose_client_had_stopped_reading() -> None:
    stuck = asyncio.Event()

    async def flood(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(b"{}"))
        await wire.send_until_stuck(event(b"x" * 65536))
        stuck.set()
        await wire.gone()

    async with FaultyWorker(flood) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(STREAM)
        await client.head()
        await stuck.wait()
        await leave_and_settle(rig, client)
        assert rig.desk.stories == [["cancelled"]]


async def test_without_streaming_and_sglang_is_told_by_name() -> None:
    script = Watched()
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        rig.yard.change(0, aborts_by_rid=True)
        client = await rig.client()
        client.post()
        await worker.arrived.wait()
        rid = json.loads(worker.seen[0].body)["rid"]
        await leave_and_settle(rig, client)
        await script.gone.wait()
        await worker.abort_arrived.wait()
        assert rig.desk.stories == [["cancelled"]]
    assert (len(rid), json.loads(worker.aborted[0])) == (32, {"rid": rid})


async def test_the_clients_own_rid_is_the_one_that_is_aborted() -> None:
    async with FaultyWorker(Watched()) as worker, relay(worker) as rig:
        rig.yard.change(0, aborts_by_rid=True, prefix=b"/engine", authorization=b"Bearer w")
        client = await rig.client()
        body = b'{"rid":"mine","messages":[]}'
        client.post(body)
        await worker.arrived.wait()
        assert worker.seen[0].body == body
        await leave_and_settle(rig, client)
        await worker.abort_arrived.wait()
    assert worker.aborted == [b'{"rid": "mine"}']


async def test_a_streaming_request_gets_no_rid_and_no_abort() -> None:
    script = Watched(sse_head())
    async with FaultyWorker(script) as worker, relay(worker) as rig:
        rig.yard.change(0, aborts_by_rid=True)
        client = await rig.client()
        client.post(STREAM)
        await worker.arrived.wait()
        assert b"rid" not in worker.seen[0].body
        await leave_and_settle(rig, client)
        await script.gone.wait()
    assert worker.aborted == []


async def test_an_answered_request_is_not_aborted() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.yard.change(0, aborts_by_rid=True)
        client = await rig.client()
        assert (await client.ask()).status == 200
        await leave_and_settle(rig, client)
        assert rig.desk.stories == [["finished"]]
    assert worker.aborted == []


async def test_with_another_request_waiting_behind_it() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        if len(worker.seen) == 1:
            await wire.gone()
        else:
            await wire.send(plain())

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.post(BODY)
        client.post(BODY)
        await worker.arrived.wait()
        await leave_and_settle(rig, client)
        assert rig.desk.stories == [["cancelled"]]
        assert (await rig.ask()).status == 200


async def test_the_routers_own_end_is_an_end_too() -> None:
    async with FaultyWorker(Watched()) as worker:
        async with relay(worker) as rig:
            client = await rig.client()
            client.post()
            await worker.arrived.wait()
        assert rig.desk.stories == [["cancelled"]]
