"""What a waiting program's containers do: frozen if nothing runs, thawed whatever happens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from environment_harness import Harness, labelled, owns, settled, until
from thunder_router.environment_settings import PreparationSettings
from thunder_router.environments import Environments
from thunder_router.environments.engine import EngineError
from thunder_router.environments.records import Kind, State


@asynccontextmanager
async def owning(harness: Harness) -> AsyncIterator[tuple[Environments, str]]:
    """A router, and the container of its only program."""
    async with harness.router() as environments:
        environments.request("p1")
        box = harness.engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        yield environments, box


async def test_a_waiting_programs_container_is_frozen_and_thawed_before_its_turn(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings(on_pause="pause"))
    engine = harness.engine
    async with owning(harness) as (environments, box):
        environments.paused("p1", waiting=True)
        await until(environments, lambda: box in engine.frozen)
        environments.restored("p1")
        await until(environments, lambda: not engine.frozen)
        await settled(environments)
        assert environments.owned("p1")[0].state is State.READY


async def test_a_program_whose_tool_is_at_work_is_not_frozen_until_it_waits(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings(on_pause="pause"))
    engine = harness.engine
    async with owning(harness) as (environments, box):
        engine.exec_started(box)
        environments.paused("p1")
        await settled(environments)
        assert not engine.frozen
        # Its request comes while another exec of it still runs.
        environments.request("p1")
        await settled(environments)
        assert not engine.frozen
        engine.exec_ended(box)
        await until(environments, lambda: box in engine.frozen)
        environments.released("p1")
        await until(environments, lambda: not engine.objects)


async def test_an_exec_that_no_event_told_of_keeps_a_container_from_being_frozen(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings(on_pause="stop"))
    engine = harness.engine
    async with owning(harness) as (environments, box):
        engine.running_execs.add(box)
        environments.paused("p1", waiting=True)
        await settled(environments)
        assert not engine.frozen


@pytest.mark.parametrize("on_pause", ["pause", "stop"])
async def test_a_freeze_whose_answer_is_lost_is_thawed_all_the_same(
    tmp_path: Path, on_pause: str
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings.model_validate({"on_pause": on_pause}))
    engine = harness.engine
    async with owning(harness) as (environments, box):
        engine.lose(on_pause, on_pause)
        environments.paused("p1", waiting=True)
        await until(environments, lambda: box in engine.frozen)
        await settled(environments)
        environments.restored("p1")
        await until(environments, lambda: not engine.frozen)
        await settled(environments)
        assert environments.owned("p1")[0].state is State.READY


async def test_a_router_that_is_killed_in_the_midst_of_a_freeze_thaws_after_its_restart(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, prepare=PreparationSettings(on_pause="pause"))
    engine = harness.engine
    async with owning(harness) as (environments, box):
        engine.fault("pause", EngineError(500, "it never comes to an answer"))
        environments.paused("p1", waiting=True)
        await until(environments, lambda: not engine.faults["pause"])
        # What the engine did nobody hears of any more.
        engine.frozen.add(box)
    async with harness.router() as environments:
        await until(environments, lambda: not engine.frozen)
        assert environments.owned("p1")[0].state is State.READY
