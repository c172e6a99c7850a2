"""A worker that was dead or not ready serves within three seconds of its return, in every case."""

from typing import Any

import pytest

from workers_house import A, House, house, worker

WITHIN_S = 2.9


async def returned(h: House) -> bool:
    """Whether it was up again within the time."""
    h.ear.take()
    await h.clock.advance(WITHIN_S)
    return ("up", 0, 0) in h.ear.take()


@pytest.mark.parametrize("away_s", [1, 5, 60, 600])
async def test_one_that_was_away_is_found_soon_however_long_it_was(away_s: float) -> None:
    fake = worker()
    async with house({A: fake}) as h:
        fake.refusing = True
        await h.clock.advance(away_s)
        fake.restart()
        assert await returned(h)


async def test_what_opened_its_circuit_when_it_died_is_not_held_against_its_next_run() -> None:
    fake = worker()
    async with house({A: fake}, breaker_failures=3, breaker_open_s=60) as h:
        fake.refusing = True
        for fault in ("reset", "reset", "connect"):
            h.registry.faulted(0, fault)
        await h.clock.advance(2)
        fake.restart()
        assert await returned(h)


async def test_a_restart_that_no_question_met_closes_the_circuit_too() -> None:
    fake = worker()
    async with house({A: fake}, breaker_failures=2, breaker_open_s=60) as h:
        await h.clock.advance(1)
        for _ in range(2):
            h.registry.faulted(0, "reset")
        fake.restart()
        assert await returned(h)


async def test_a_run_that_goes_on_keeps_its_open_circuit() -> None:
    fake = worker()
    async with house({A: fake}, breaker_failures=2, breaker_open_s=60) as h:
        for _ in range(2):
            h.registry.faulted(0, "status")
        assert not await returned(h)


@pytest.mark.parametrize("capture", ["sglang-0.5.23-radix", "sglang-0.5.12-radix"])
@pytest.mark.parametrize("paces", [{}, {"metrics_interval_s": 60, "ready_interval_s": 60}])
async def test_one_that_was_not_ready_is_asked_as_often_as_one_that_was_away(
    capture: str, paces: dict[str, Any]
) -> None:
    fake = worker(capture, terminating=True)  # answers, and says 503 to who asks for its health
    async with house({A: fake}, **paces) as h:
        assert h.ear.take() == []
        await h.clock.advance(20)
        fake.terminating = False
        assert await returned(h)


async def test_many_workers_do_not_make_the_return_of_one_slower() -> None:
    fakes = {f"http://w{n}": worker() for n in range(200)}
    first = fakes["http://w0"]
    async with house(dict(fakes)) as h:
        first.terminating = True
        await h.clock.advance(10)
        first.terminating = False
        assert await returned(h)


async def test_one_that_is_ready_is_asked_at_its_own_pace_only() -> None:
    fake = worker()
    async with house({A: fake}, ready_interval_s=5, retry_interval_s=1) as h:
        fake.asked.clear()
        await h.clock.advance(10)
        assert fake.paths().count("/ready") == 2
