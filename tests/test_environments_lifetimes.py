"""When a program that never said it ended is given up, and what keeps it alive."""

from pathlib import Path

import pytest

from environment_harness import Harness, labelled, owns, settled, until
from thunder_router.environments import labels
from thunder_router.environments.records import Kind


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


async def test_silence_ends_a_program_but_an_exec_or_a_request_does_not_let_it_be_silent(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for program in ("silent", "asks", "works", "held"):
            environments.request(program)
            engine.put(Kind.CONTAINER, program, labelled(program))
        await until(environments, lambda: len(environments.resources()) == 4)
        await harness.turn(environments, 3000)
        environments.request("asks")
        (works,) = (r for r in environments.resources() if r.owner.program == "works")
        engine.running_execs.add(works.ref)
        harness.busy.add("held")
        await harness.turn(environments, 700)
        await owns(environments, "silent", 0)
        await settled(environments)
        assert engine.names() == {"asks", "works", "held"}


async def test_an_expiry_is_checked_before_anything_is_deleted(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        box = engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        engine.exec_started(box)
        environments.expired("p1")
        await settled(environments)
        assert engine.names() == {"box"}
        engine.exec_ended(box)
        await harness.turn(environments, 1)
        environments.expired("p1")
        await until(environments, lambda: not engine.objects)


async def test_orphans_of_this_router_go_after_their_grace_and_others_stay(
    harness: Harness,
) -> None:
    engine = harness.engine
    engine.put(Kind.CONTAINER, "mine", {**labelled("gone"), labels.ROUTER: "mine"})
    engine.put(Kind.CONTAINER, "theirs", {**labelled("gone"), labels.ROUTER: "other"})
    engine.put(Kind.CONTAINER, "kept", {**labelled("gone"), labels.PROTECT: "1"})
    engine.put(Kind.CONTAINER, "nobodys", labelled("unheard-of"))
    async with harness.router() as environments:
        await owns(environments, "gone", 1)
        await harness.turn(environments, 599)
        assert len(engine.objects) == 4
        await harness.turn(environments, 2)
        await owns(environments, "gone", 0)
        await harness.turn(environments, 100_000)
    assert engine.names() == {"theirs", "kept", "nobodys"}


async def test_a_lease_ends_a_program_and_renewing_it_does_not(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.open("p1", lease_s=60)
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        await harness.turn(environments, 50)
        environments.open("p1", lease_s=60)
        await settled(environments)
        await harness.turn(environments, 50)
        assert engine.names() == {"box"}
        await harness.turn(environments, 11)
        await owns(environments, "p1", 0)


async def test_a_tool_inside_a_compose_project_keeps_its_silent_program_alive(
    harness: Harness,
) -> None:
    engine = harness.engine
    project = {labels.COMPOSE_PROJECT: "task__env"}
    async with harness.router() as environments:
        environments.request("task__agent")
        main = engine.put(Kind.CONTAINER, "main", project)
        await owns(environments, "task__agent", 1)
        engine.running_execs.add(main)
        await harness.turn(environments, 3601)
        await settled(environments)
        assert engine.names() == {"main"}
        # And when it ends, silence begins anew.
        engine.exec_started(main)
        engine.exec_ended(main)
        await until(environments, lambda: environments.status().tally.get("tools") == 1)
        await harness.turn(environments, 3500)
        assert engine.names() == {"main"}
        await harness.turn(environments, 200)
        await owns(environments, "task__agent", 0)
