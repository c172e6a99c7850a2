"""Teardown over a fake engine: in order, however often it takes, and never more than was asked."""

from pathlib import Path

import pytest

from environment_harness import Harness, labelled, owns, settled, until
from thunder_router.environment_settings import TemplateSettings
from thunder_router.environments.engine import EngineError, EngineUnreachableError
from thunder_router.environments.records import Kind, State


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


async def test_release_removes_in_order_and_leaves_bystanders_alone(harness: Harness) -> None:
    engine = harness.engine
    engine.put(Kind.CONTAINER, "bystander", {"com.example": "1"})
    engine.put(Kind.VOLUME, "precious")
    async with harness.router() as environments:
        environments.request("p1")
        container = engine.put(Kind.CONTAINER, "box", labelled("p1"))
        network = engine.put(Kind.NETWORK, "net", labelled("p1"))
        engine.put(Kind.VOLUME, "vol", labelled("p1"))
        engine.mounted = {container: network}
        await owns(environments, "p1", 3)
        environments.released("p1")
        await owns(environments, "p1", 0)
    removed = [ref for call, ref in engine.calls if call == "remove"]
    assert removed == [container, network, "vol"]
    assert engine.names() == {"bystander", "precious"}


async def test_siblings_that_no_event_told_of_go_at_release(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        engine.put(Kind.VOLUME, "quiet", labelled("p1"), told=False)
        environments.released("p1")
        await until(environments, lambda: not engine.objects)


async def test_a_late_container_of_a_released_program_goes_at_once(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        environments.released("p1")
        await settled(environments)
        # Created before the release, told of after it.
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await until(environments, lambda: not engine.objects)


async def test_a_reused_id_keeps_what_is_new_and_loses_what_is_old(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "old", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.released("p1")
        environments.released("p1")
        await owns(environments, "p1", 0)
        harness.clock.now_ms += 1
        environments.request("p1")
        engine.put(Kind.CONTAINER, "new", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.released("p1", generation=1)
        await settled(environments)
        assert engine.names() == {"new"}
        environments.released("p1", generation=2)
        await until(environments, lambda: not engine.objects)


async def test_removals_fail_and_are_tried_until_they_work(harness: Harness) -> None:
    engine = harness.engine
    engine.fault(
        "remove",
        EngineError(409, "removal of container box is already in progress"),
        EngineError(500, "driver failed to remove root filesystem"),
        EngineUnreachableError("no answer within 15 s"),
    )
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.released("p1")
        for _ in range(6):
            await settled(environments)
            await harness.turn(environments, 60)
        assert environments.owned("p1") == []
        assert engine.objects == {}
        assert environments.status().tally["teardown_retries"] == 2


async def test_what_cannot_be_removed_is_stuck_and_still_tried(harness: Harness) -> None:
    engine = harness.engine
    engine.fault("remove", *[EngineError(500, "device busy")] * 9)
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.released("p1")
        for _ in range(8):
            await settled(environments)
            await harness.turn(environments, 61)
        (resource,) = environments.owned("p1")
        assert resource.state is State.STUCK
        assert "device busy" in (resource.error or "")
        await harness.turn(environments, 61)
        await harness.turn(environments, 61)
        await owns(environments, "p1", 0)


async def test_at_most_eight_calls_are_in_flight(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for number in range(100):
            environments.request(f"p{number}")
            engine.put(Kind.CONTAINER, f"box{number}", labelled(f"p{number}"))
        await until(environments, lambda: len(environments.resources()) == 100)
        engine.most_in_flight = 0
        for number in range(100):
            environments.released(f"p{number}")
        await until(environments, lambda: not engine.objects)
    # The watch's own ping and listing are beside the eight.
    assert engine.most_in_flight <= 8 + 2


async def test_a_step_that_is_broken_off_before_its_first_turn_still_ends(
    tmp_path: Path,
) -> None:
    image = "swe/a:1"
    template = TemplateSettings(match="", image=image)
    harness = Harness(tmp_path, templates={"t": template})
    harness.engine.images_there[image] = ()
    async with harness.router() as environments:
        environments.prepare("p1", 0)
        await until(environments, lambda: environments.environment("p1").state == "ready")
        # Begun and broken off in one breath: the image is here, so creating is the first step.
        environments.prepare("p2", 0)
        environments.released("p2")
        await owns(environments, "p2", 0)
        assert environments.status().in_flight == 0
        environments.released("p1")
        await until(environments, lambda: not harness.engine.objects)


async def test_what_cannot_be_removed_costs_one_alarm_however_long(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        for number in range(4):
            engine.put(Kind.CONTAINER, f"box{number}", labelled("p1"))
        await owns(environments, "p1", 4)
        engine.fault("remove", *[EngineError(500, "device busy")] * 400)
        environments.released("p1")
        for _ in range(100):
            await harness.turn(environments, 61)
        alarms = environments._ledger.books._alarms
        # One each, and the program's own.
        assert len(alarms) <= 5
        assert len(alarms._heap) <= 10
        assert len(engine.faults["remove"]) <= 100
        engine.faults.clear()
        await harness.turn(environments, 61)
        await until(environments, lambda: not engine.objects)
