"""The relay in front of an application, and its end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty_worker import FaultyWorker, Seen, Wire, event, plain, sse_head
from relay_rig import BODY, CHAT, STREAM, Desk, Log, RawClient, Rig, Spot, Yard, endpoint_of
from thunder_router.config import RelaySettings
from thunder_router.relay import Relay, RelayServer

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """An ASGI application that echoes what it is sent, and knows its lifespan."""

    def __init__(self) -> None:
        self.life: list[str] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                self.life.append(kind)
                await send({"type": f"{kind}.complete"})
            return
        body, more = b"", scope["path"] != "/deaf"
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        said = f"{scope['method']} {scope['path']} ".encode() + body
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})


@dataclass
class Served(Rig):
    server: RelayServer = field(kw_only=True)
    app: App = field(kw_only=True)
    draining: asyncio.Event = field(kw_only=True)
    done: asyncio.Task[None] = field(kw_only=True)


@contextlib.asynccontextmanager
async def served(
    worker: FaultyWorker, *, grace_s: float = 5.0, delay_s: float = 0.0
) -> AsyncIterator[Served]:
    desk, yard, log, app = Desk([Spot(0)]), Yard({0: endpoint_of(worker)}), Log(), App()
    relay = Relay(RelaySettings(), admission=desk, workers=yard, observer=log)
    draining = asyncio.Event()
    server = RelayServer(app, relay, grace_s=grace_s, delay_s=delay_s, on_draining=draining.set)
    done = asyncio.create_task(server.serve())
    port = await server.listening()
    rig = Served(relay, desk, yard, log, port, server=server, app=app, draining=draining, done=done)
    try:
        yield rig
    finally:
        for client in rig.clients:
            client.leave()
        server.should_exit = True
        await done
    await desk.ended()


async def test_what_is_not_the_relays_goes_to_the_application() -> None:
    async with FaultyWorker() as worker, served(worker) as rig:
        client = await rig.client()
        assert (await client.ask(b"{}", b"/programs")).body == b"POST /programs {}"
        client.send(b"GET /v1/chat/completions HTTP/1.1\r\nHost: r\r\n\r\n")
        assert (await client.reply()).body == b"GET /v1/chat/completions "
        client.send(b"OPTIONS /v1/embeddings HTTP/1.1\r\nHost: r\r\n\r\n")
        assert (await client.reply()).body == b"OPTIONS /v1/embeddings "
    assert worker.seen == []
    assert rig.app.life == ["lifespan.startup", "lifespan.shutdown"]


async def test_one_connection_serves_both_in_the_order_of_their_requests() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(b"worker"))

    async with FaultyWorker(script) as worker, served(worker) as rig:
        client = await rig.client()
        for _ in range(3):
            client.post(BODY, CHAT)
            client.post(b"1", b"/a")
            client.send(b"GET /b HTTP/1.1\r\nHost: r\r\n\r\n")
            client.send(
                b"POST /c HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
            )
        for _ in range(3):
            got = [(await client.reply()).body for _ in range(4)]
            assert got == [b"worker", b"POST /a 1", b"GET /b ", b"POST /c abc"]


async def test_the_application_gets_large_bodies_and_expectations() -> None:
    async with FaultyWorker() as worker, served(worker) as rig:
        client = await rig.client()
        assert (await client.ask(b"a" * 2**22, b"/big")).body == b"POST /big " + b"a" * 2**22
        client.send(
            b"POST /e HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"x")
        assert (await client.reply()).body == b"POST /e x"


async def test_an_application_that_answers_early_keeps_the_connection_in_order() -> None:
    async with FaultyWorker() as worker, served(worker) as rig:
        client = await rig.client()
        client.send(b"POST /deaf HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\n\r\nab")
        assert (await client.reply()).body == b"POST /deaf "
        client.send(b"cd")
        assert (await client.ask()).status == 200


async def in_flight(rig: Served) -> RawClient:
    """A stream that has begun."""
    client = await rig.client()
    client.post(STREAM)
    await client.head()
    await client.chunk()
    return client


async def test_the_end_waits_for_streams_refuses_the_new_and_says_so_first() -> None:
    finish = asyncio.Event()

    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(b'{"choices":[]}'))
        await finish.wait()
        await wire.send(event(b"[DONE]") + b"0\r\n\r\n")

    async with FaultyWorker(script) as worker, served(worker) as rig:
        client, idle = await in_flight(rig), await rig.client()
        rig.server.should_exit = True
        await rig.draining.wait()
        assert await idle.end() == b""
        with contextlib.suppress(ConnectionError):
            late = await rig.client()
            assert await late.end() == b""
        assert not rig.done.done()
        finish.set()
        assert await client.chunk() == b"data: [DONE]\n\n"
        assert await client.chunk() == b""
        assert await client.end() == b"\r\n"
        await rig.done
        assert rig.desk.stories == [["finished"]]


async def test_a_request_on_a_kept_connection_is_the_last_once_draining() -> None:
    answer = asyncio.Event()

    async def script(seen: Seen, wire: Wire) -> None:
        await answer.wait()
        await wire.send(plain())

    async with FaultyWorker(script) as worker, served(worker) as rig:
        client = await rig.client()
        client.post()
        await worker.arrived.wait()
        rig.server.should_exit = True
        await rig.draining.wait()
        answer.set()
        reply = await client.reply()
        assert (reply.status, reply.header(b"connection")) == (200, b"close")
        await rig.done


async def test_the_end_comes_when_the_grace_time_is_over() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head() + event(b'{"choices":[]}'))
        await wire.gone()

    async with FaultyWorker(script) as worker, served(worker, grace_s=0.05) as rig:
        client = await in_flight(rig)
        rig.server.should_exit = True
        assert await client.end() == b""
        await rig.done
        assert rig.desk.stories == [["cancelled"]]


async def test_until_the_delay_is_over_everything_is_served_and_a_signal_may_cut_it_short() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(b"served"))

    async with FaultyWorker(script) as worker, served(worker, delay_s=3600) as rig:
        kept = await rig.client()
        rig.server.handle_exit(signal.SIGTERM, None)
        await rig.draining.wait()
        assert (await (await rig.client()).ask(BODY, CHAT)).body == b"served"
        assert (await kept.ask(BODY, CHAT)).header(b"connection") != b"close"
        assert not rig.done.done()
        rig.server.handle_exit(signal.SIGTERM, None)
        assert await kept.end() == b""
        await rig.done


async def test_a_keyboard_interrupt_does_not_wait_for_the_delay() -> None:
    async with FaultyWorker() as worker, served(worker, delay_s=3600) as rig:
        client = await rig.client()
        rig.server.handle_exit(signal.SIGINT, None)
        assert await client.end() == b""
        await rig.done


SERVE = """
import sys, uvloop
from test_relay_serve import App
from relay_rig import Desk, Yard
from thunder_router.config import RelaySettings
from thunder_router.relay import Relay, RelayServer
relay = Relay(RelaySettings(), admission=Desk([]), workers=Yard())
server = RelayServer(App(), relay, grace_s=5)
async def main():
    import asyncio
    task = asyncio.create_task(server.serve())
    print(await server.listening(), flush=True)
    await task
uvloop.run(main())
"""


async def test_sigterm_ends_the_process() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    assert (await client.ask(b"", b"/x")).body == b"POST /x "
    process.send_signal(signal.SIGTERM)
    assert await client.end() == b""
    assert await process.wait() in (0, -signal.SIGTERM)
    client.leave()
