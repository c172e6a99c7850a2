"""Whatever happens, a ticket ends exactly once: random faults, random clients, our own bugs."""

import asyncio
import random
from collections import Counter

import pytest

from faulty_worker import FaultyWorker, Seen, Wire, chunk, event, plain, sse_head
from relay_rig import BODY, CHAT, STREAM, Chit, Desk, Rig, Spot, relay
from thunder_router.errors import IdentityConflictError, NoWorkerError, RejectedError
from thunder_router.relay.contract import Arrival

DELTA = event(b'{"choices":[{"delta":{"content":"a"}}]}')
DONE = event(b"[DONE]") + b"0\r\n\r\n"
FIRST_ERROR = event(b'{"error":{"message":"full","type":"x","code":503}}')


async def misbehave(rng: random.Random, seen: Seen, wire: Wire) -> None:
    """One of the ways in which a worker can treat a request."""
    stream = b'"stream": true' in seen.body
    good = sse_head() + DELTA * 3 + DONE if stream else plain()
    match rng.randrange(10):
        case 0:
            await wire.send(plain(b"{}", rng.choice([b"400 No", b"429 Wait", b"500 Oops"])))
        case 1:
            await wire.send(plain(b"{}", b"503 Busy"))
        case 2:
            await wire.send(good[: rng.randrange(len(good))])
            wire.reset()
        case 3:
            await wire.send(good[: rng.randrange(len(good))])
            wire.close()
        case 4:
            await wire.send(rng.randbytes(40) + b"\r\n\r\n")
        case 5:
            await wire.send(sse_head() + FIRST_ERROR + DONE)
        case 6:
            await wire.gone()
        case 7:
            await wire.send(sse_head() + DELTA + chunk(b"data: {") + b"zz\r\n")
        case _:
            for byte in good:
                await wire.send(bytes([byte]))


class Whims(Desk):
    """An admission that places, holds, rejects and fails, as chance has it."""

    def __init__(self, rng: random.Random, spots: list[Spot]) -> None:
        super().__init__(spots)
        self.rng = rng

    def arrive(self, arrival: Arrival) -> Chit:
        draw = self.rng.random()
        if draw < 0.03:
            raise RejectedError("full", retry_after_s=1)
        if draw < 0.06:
            raise IdentityConflictError("two names")
        if draw < 0.09:
            raise RuntimeError("a bug of ours")
        self.rng.shuffle(self.spots)
        self.holds = draw < 0.4
        chit = super().arrive(arrival)
        if self.holds:
            loop = asyncio.get_running_loop()
            if draw < 0.15:
                loop.call_soon(chit.reject, NoWorkerError("nobody"))
            elif draw < 0.35:
                loop.call_soon(chit.admit)
            # The rest wait until their client leaves.
        return chit


async def one_client(rig: Rig, rng: random.Random) -> None:
    client = await rig.client()
    for _ in range(rng.randrange(1, 4)):
        client.post(rng.choice([BODY, STREAM, b"{", b""]), CHAT)
    patience = rng.choice([0, 0.001, 0.01, 0.3])
    try:
        async with asyncio.timeout(patience):
            while True:
                await client.reply()
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        client.leave()


async def test_every_ticket_ends_once_whatever_workers_and_clients_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = random.Random(7)

    async def script(seen: Seen, wire: Wire) -> None:
        await misbehave(rng, seen, wire)

    one, two = FaultyWorker(script), FaultyWorker(script)
    desk = Whims(rng, [Spot(0), Spot(1)])
    async with (
        one,
        two,
        relay(
            one,
            two,
            desk=desk,
            keepalive_comment_s=0.005,
            first_byte_timeout_s=0.2,
            stream_idle_timeout_s=0.2,
        ) as rig,
    ):
        for _ in range(6):
            await asyncio.gather(*(one_client(rig, rng) for _ in range(50)))
            await desk.ended()
        ends = Counter(chit.ends[0] for chit in desk.tickets)
        assert ends.keys() == {"finished", "failed", "cancelled", "rejected"}
        # Refusals on arrival have no ticket, but are seen all the same.
        assert len(rig.log.entries) > len(desk.tickets)
    bugs = [record.exc_info for record in caplog.records if record.levelname == "ERROR"]
    assert {kind for kind, _, _ in filter(None, bugs)} == {RuntimeError}


@pytest.mark.parametrize(
    ("method", "reachable"),
    [
        ("finished", True),
        ("failed", True),
        ("progress", True),
        ("bounced", True),
        ("bounced", False),
    ],
)
async def test_a_ticket_that_raises_breaks_nothing_else(
    method: str, reachable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        match method:
            case "failed":
                await wire.send(plain(b"{}", b"400 No"))
            case "bounced":
                await wire.send(plain(b"{}", b"503 Busy"))
            case _:
                await wire.send(sse_head())
                for _ in range(100):
                    await wire.send(DELTA)
                    await asyncio.sleep(0)
                await wire.send(DONE)

    class Broken(Chit):
        def __getattribute__(self, name: str) -> object:
            if name == method:
                raise RuntimeError("the scheduler is broken")
            return super().__getattribute__(name)

    class BrokenDesk(Desk):
        def arrive(self, arrival: Arrival) -> Chit:
            return Broken(self, arrival)

    async with FaultyWorker(script) as worker, relay(worker, desk=BrokenDesk()) as rig:
        if not reachable:
            rig.yard.change(0, port=1)  # nobody listens there
        client = await rig.client()
        for _ in range(2):
            client.post(STREAM)
            reply = await client.reply()
            assert reply.status in (200, 400, 500)
            if reply.header(b"connection") == b"close" or b"internal_error" in reply.body:
                client = await rig.client()
    assert "the scheduler is broken" in caplog.text
