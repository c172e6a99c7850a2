"""Worker life from end to end: what the scheduler hears of workers that restart, pause and die."""

import pytest

from thunder_router.workers.life import State
from workers_house import A, house, worker


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


async def test_new_weights_empty_the_cache_in_the_books() -> None:
    fake = worker()
    async with house({A: fake}, metrics_interval_s=5) as h:
        h.ear.take()
        fake.weight_version = "step-2"
        await h.clock.advance(6)
        assert h.ear.take() == [("flushed", 0)]
        await h.clock.advance(60)
        assert h.ear.take() == []
