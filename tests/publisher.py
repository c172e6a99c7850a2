"""One rank's ZeroMQ publisher on loopback, with the replay socket that SGLang and vLLM have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import zmq
import zmq.asyncio

from thunder_router.workers.observations import Feed, Place

Message = list[bytes]


def message(topic: bytes, number: int, said: object) -> Message:
    return [topic, number.to_bytes(8, "big", signed=True), msgspec.msgpack.encode(said)]


class Publisher:
    """Says what it is told; keeps what it is told to remember, and replays that."""

    def __init__(self, out: zmq.asyncio.Socket, replays: zmq.asyncio.Socket) -> None:
        self._out = out
        self._replays = replays
        self.port = out.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = replays.bind_to_random_port("tcp://127.0.0.1")
        self.kept: list[Message] = []
        self.asked_from: list[int] = []

    async def subscribed(self) -> bytes:
        """Awaits the listener, so that nothing said afterwards is lost."""
        word: bytes = await self._out.recv()
        return word

    async def say(self, frames: Message) -> None:
        await self._out.send_multipart(frames)

    async def replay(self) -> None:
        """Answers those who missed something, until cancelled."""
        while True:
            who, _, start = await self._replays.recv_multipart()
            self.asked_from.append(int.from_bytes(start, "big"))
            for topic, number, said in self.kept:
                if int.from_bytes(number, "big") >= self.asked_from[-1]:
                    await self._replays.send_multipart([who, b"", topic, number, said])
            await self._replays.send_multipart([who, b"", b"", b"\xff" * 8, b""])

    def feed(self, rank: int = 0, *, replay: bool = True) -> Feed:
        return Feed(
            rank,
            blocks=Place(None, self.port),
            blocks_topic=b"kv",
            replay=Place(None, self.replay_port) if replay else None,
        )


@asynccontextmanager
async def publisher() -> AsyncIterator[Publisher]:
    context = zmq.asyncio.Context.instance()
    with context.socket(zmq.XPUB) as out, context.socket(zmq.ROUTER) as replays:
        out.setsockopt(zmq.LINGER, 0)
        replays.setsockopt(zmq.LINGER, 0)
        said = Publisher(out, replays)
        replaying = asyncio.create_task(said.replay())
        try:
            yield said
        finally:
            replaying.cancel()
            await asyncio.gather(replaying, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    """A listener tells nobody what it heard, so its reader looks again and again."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.002)
