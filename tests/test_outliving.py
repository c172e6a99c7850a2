"""What an operator or a trainer said holds on in the next core, and in the next run too."""

from pathlib import Path

from test_driver import House, faulty, finish, where
from thunder_router import errors
from thunder_router.scheduling import snapshot
from thunder_router.scheduling.programs import Programs
from thunder_router.scheduling.snapshot import Memories


def url(worker: int) -> str:
    return f"http://worker-{worker}"


def test_a_weight_sync_goes_on_in_a_core_that_replaces_another_until_its_watchdog_ends_it() -> None:
    faults: dict[str, tuple[int, Exception]] = {}
    house = faulty(faults)
    house.up(0)
    running = house.arrive("running")
    house.driver.weight_sync_begin()
    held = house.arrive("held")
    house.clock.advance(200_000)
    faults["finished"] = (1, errors.InvariantError("books"))
    finish(running)
    assert len(house.cores) == 2
    house.clock.advance(99_000)
    assert held.place is None
    house.clock.advance(2_000)
    assert held.place is not None, "300 s after it began, not after the core came"
    finish(held)
    house.check()


def test_an_operators_pause_goes_on_in_a_core_that_replaces_another() -> None:
    faults: dict[str, tuple[int, Exception]] = {}
    house = faulty(faults)
    house.up(0)
    finish(house.arrive("paused"))
    Programs(house.driver).pause("paused")
    faults["finished"] = (1, errors.InvariantError("books"))
    finish(house.arrive("other"))
    assert len(house.cores) == 2
    ticket = house.arrive("paused")
    house.clock.advance(60_000)
    assert ticket.place is None
    Programs(house.driver).restore("paused")
    house.clock.advance()
    assert ticket.place is not None
    finish(ticket)
    house.check()


def test_a_pool_that_comes_during_a_weight_sync_waits_for_its_end_too() -> None:
    house = House()
    house.up(0, models=("glm",))
    house.driver.weight_sync_begin()
    house.up(1, models=("minimax",))
    ticket = house.arrive("p", model="minimax")
    assert ticket.place is None
    house.driver.weight_sync_end()
    house.clock.advance()
    assert where(ticket) == (1, 0)


def test_an_operators_pause_outlives_the_router(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    before = House(policy="adaptive")
    before.up(0)
    finish(before.arrive("paused"))
    Programs(before.driver).pause("paused")
    before.clock.advance()
    snapshot.write(path, snapshot.take(before.driver.pools, url, Memories({})))

    after = House(policy="adaptive")
    after.up(0)
    Memories.read(path, 3_600_000).recall(after.driver.pools[0], 0, url(0))
    ticket = after.arrive("paused", 120)
    after.clock.advance(60_000)
    assert ticket.place is None
    [listed] = Programs(after.driver).find("paused")
    assert (listed.view.operator, listed.view.status) == (True, "paused")
    Programs(after.driver).restore("paused")
    after.clock.advance()
    assert ticket.place is not None
    finish(ticket)
    after.check()


def test_a_weight_sync_outlives_the_router_for_what_is_left_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    before = House(weight_sync_timeout_s=300)
    before.driver.weight_sync_begin()
    before.clock.advance(100_000)
    assert before.driver.weight_sync_ms() == 100_000
    snapshot.write(path, [], before.driver.weight_sync_ms())

    after = House(weight_sync_timeout_s=300)
    after.clock.advance(1_000_000)
    elapsed_ms = Memories.read(path, 3_600_000).syncing_ms
    assert elapsed_ms is not None
    assert 100_000 <= elapsed_ms < 160_000
    after.driver.weight_sync_begin(100_000)
    after.up(0)
    ticket = after.arrive("p")
    after.clock.advance(199_000)
    assert ticket.place is None
    after.clock.advance(2_000)
    assert ticket.place is not None
    before.driver.weight_sync_end()
    assert before.driver.weight_sync_ms() is None
