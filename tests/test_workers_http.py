"""The questions on a real socket: each way to fail is told apart, and keys do not leak."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic import SecretStr

from thunder_router.errors import ConnectError, ProtocolError, WorkerResetError
from thunder_router.workers.http import AiohttpClient

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def client() -> AsyncIterator[AiohttpClient]:
    async with AiohttpClient() as opened:
        yield opened


async def served(serve: Served) -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_answer_comes_whole_and_the_key_goes_as_a_bearer_token(
    client: AiohttpClient,
) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 No\r\ncontent-type: text/x\r\ncontent-length: 4\r\n\r\nbody")
        await writer.drain()
        writer.close()

    server, url = await served(serve)
    async with server:
        answer = await client.ask("GET", url + "/ready", timeout_s=5, key=SecretStr("sk"))
    assert (answer.status, answer.body, answer.content_type) == (503, b"body", "text/x")
    assert not answer.ok
    assert b"Authorization: Bearer sk" in heard[0]


async def test_a_redirect_is_not_followed(client: AiohttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 F\r\nlocation: http://127.0.0.1:1\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server, url = await served(serve)
    async with server:
        assert (await client.ask("GET", url, timeout_s=5)).status == 302


async def test_nobody_listening_is_a_connect_error(client: AiohttpClient) -> None:
    server, url = await served(lambda reader, writer: asyncio.sleep(0))
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectError, match=r"Connect call failed|refused"):
        await client.ask("GET", url, timeout_s=5)


async def test_a_name_that_does_not_resolve_is_a_connect_error(client: AiohttpClient) -> None:
    with pytest.raises(ConnectError):
        await client.ask("GET", "http://no-such-worker.invalid", timeout_s=5)


async def test_silence_is_a_time_out(client: AiohttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server, url = await served(serve)
    async with server:
        with pytest.raises(TimeoutError):
            await client.ask("GET", url, timeout_s=0.05)


async def test_a_connection_that_breaks_off_is_a_reset(client: AiohttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server, url = await served(serve)
    async with server:
        with pytest.raises(WorkerResetError):
            await client.ask("POST", url, timeout_s=5, body=b"{}")


@pytest.mark.parametrize(
    "answer",
    [b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 33554432\r\n\r\n" + b"x" * 17_000_000],
    ids=["not HTTP", "endless"],
)
async def test_what_is_not_a_reasonable_answer_is_a_protocol_error(
    client: AiohttpClient, answer: bytes
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server, url = await served(serve)
    async with server:
        with pytest.raises(ProtocolError):
            await client.ask("GET", url, timeout_s=5)
