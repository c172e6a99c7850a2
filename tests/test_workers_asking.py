"""How a worker is asked: its pace, what stands in for a broken page, and when work is withheld."""

import pytest

from workers_house import A, B, house, worker


async def test_a_worker_that_is_away_costs_one_question_at_a_time() -> None:
    fake = worker(refusing=True)
    async with house({A: fake}, retry_interval_s=1) as h:
        await h.clock.advance(10)
        fake.asked.clear()
        await h.clock.advance(5)
        assert fake.paths() == ["/v1/models"] * 5


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
