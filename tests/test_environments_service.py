"""The whole of the environments over a fake engine: triggers, faults, restarts."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from environment_harness import Harness, owns, settled, until
from thunder_router.environment_settings import DockerSettings
from thunder_router.environments import Store, labels
from thunder_router.environments.actions import Forget, Keep
from thunder_router.environments.engine import EngineError, EngineUnreachableError
from thunder_router.environments.records import Kind, State


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def labelled(program: str) -> dict[str, str]:
    return {labels.PROGRAM: program}


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


@pytest.mark.parametrize("program", [None, "default", "", "no spaces", "x" * 129, "a/../b"])
async def test_a_request_without_a_usable_program_owns_nothing(
    harness: Harness, program: str | None
) -> None:
    engine = harness.engine
    box = engine.put(Kind.CONTAINER, "box", labelled(program or "default"))
    async with harness.router() as environments:
        environments.request(program, docker_ids=(box,))
        if program is not None:
            environments.released(program)
        await settled(environments)
        assert environments.resources() == []
        assert environments.status().programs == 0
    assert engine.names() == {"box"}


async def test_a_container_made_before_the_first_request_is_its_programs(harness: Harness) -> None:
    harness.engine.put(Kind.CONTAINER, "box", labelled("p1"))
    async with harness.router() as environments:
        assert environments.status().unclaimed == 1
        environments.request("p1")
        await owns(environments, "p1", 1)
        assert environments.status().unclaimed == 0


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


async def test_a_hung_engine_costs_a_request_nothing(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        engine.gate = asyncio.Event()
        environments.released("p1")
        for number in range(1000):
            environments.request(f"q{number}")
            environments.prepare(f"q{number}", 100)
        await until(environments, lambda: environments.status().programs == 1001)
        assert engine.names() == {"box"}
        engine.gate.set()
        await until(environments, lambda: not engine.objects)


async def test_an_engine_that_dies_is_unavailable_and_work_resumes_when_it_is_back(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        engine.put(Kind.CONTAINER, "removed-meanwhile", labelled("p1"))
        await owns(environments, "p1", 2)
        engine.crash()
        await until(environments, lambda: environments.status().environments == "unavailable")
        environments.released("p1")
        del engine.objects[next(k for k, s in engine.objects.items() if s.name != "box")]
        engine.put(Kind.CONTAINER, "made-meanwhile", labelled("p1"), told=False)
        engine.up = True
        await until(environments, lambda: environments.status().environments == "ok")
        await until(environments, lambda: not engine.objects)
        await owns(environments, "p1", 0)


async def test_a_restarted_router_takes_up_where_it_stood(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for program in ("lives", "ends"):
            environments.request(program)
            engine.put(Kind.CONTAINER, program, labelled(program))
            await owns(environments, program, 1)
        engine.gate = asyncio.Event()
        environments.released("ends")
        await until(environments, lambda: environments.owned("ends")[0].state is State.RELEASING)
    engine.gate = None
    async with harness.router() as environments:
        await owns(environments, "ends", 0)
        assert [r.state for r in environments.owned("lives")] == [State.READY]
        environments.released("lives")
        await until(environments, lambda: not engine.objects)


class FullDisk(Store):
    """A journal on a disk that is full for a while."""

    full = False

    async def commit(self, lines: Sequence[Keep | Forget]) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        await super().commit(lines)


async def test_a_journal_on_a_full_disk_does_not_keep_teardown_from_making_room(
    harness: Harness,
) -> None:
    engine = harness.engine
    store = FullDisk(harness.folder / "full.db")
    async with harness.router(store) as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        store.full = True
        environments.released("p1")
        await owns(environments, "p1", 0)
        assert environments.status().journal_error == "database or disk is full"
        store.full = False
        environments.request("p2")
        await until(environments, lambda: environments.status().journal_error is None)
    assert engine.objects == {}
    reopened = Store(harness.folder / "full.db")
    assert [r for r in reopened.load() if not hasattr(r, "released")] == []
    reopened.close()


async def test_harbor_trials_own_their_compose_project_whatever_the_case(
    harness: Harness,
) -> None:
    engine = harness.engine
    project = {labels.COMPOSE_PROJECT: "django-1234__env"}
    engine.put(Kind.CONTAINER, "main", project)
    engine.put(Kind.CONTAINER, "stranger", {labels.COMPOSE_PROJECT: "web"})
    async with harness.router() as environments:
        environments.request("Django-1234__agent")
        await owns(environments, "Django-1234__agent", 1)
        engine.put(Kind.NETWORK, "net", project, told=False)
        engine.put(Kind.VOLUME, "vol", project, told=False)
        environments.released("Django-1234__agent")
        await owns(environments, "Django-1234__agent", 0)
    assert engine.names() == {"stranger"}


async def test_docker_ids_register_containers_and_refuse_what_is_not_the_programs(
    harness: Harness,
) -> None:
    engine = harness.engine
    plain = engine.put(Kind.CONTAINER, "plain")
    service = engine.put(Kind.CONTAINER, "service", restarts=True)
    foreign = engine.put(Kind.CONTAINER, "foreign", {labels.ROUTER: "other"})
    others = engine.put(Kind.CONTAINER, "others", labelled("p2"))
    async with harness.router() as environments:
        ids = (plain, plain, service, foreign, others, "missing", "../../images/x?force=1")
        environments.request("p1", docker_ids=ids)
        await owns(environments, "p1", 1)
        await settled(environments)
        assert environments.status().tally["registrations_refused"] == 3
        assert not any(".." in ref for _, ref in engine.calls)
        environments.request("p3", docker_ids=(plain,))
        await settled(environments)
        assert environments.owned("p3") == []
        environments.released("p1")
        await owns(environments, "p1", 0)
    assert engine.names() == {"service", "foreign", "others"}


@pytest.fixture
def by_peer(tmp_path: Path) -> Harness:
    docker = DockerSettings(ping_interval_s=0.01, relist_interval_s=60, adopt_peer_ip=True)
    return Harness(tmp_path, docker=docker)


async def test_an_agent_inside_a_container_owns_it_by_its_address(by_peer: Harness) -> None:
    engine = by_peer.engine
    engine.put(Kind.CONTAINER, "box", addresses=("172.17.0.2",))
    engine.put(Kind.CONTAINER, "else", addresses=("172.17.0.3",))
    async with by_peer.router() as environments:
        environments.request("p1", peer="172.17.0.2")
        await owns(environments, "p1", 1)
        environments.released("p1")
        await owns(environments, "p1", 0)
    assert engine.names() == {"else"}


async def test_a_service_is_nobodys_even_if_a_program_calls_from_its_address(
    by_peer: Harness,
) -> None:
    engine = by_peer.engine
    engine.put(Kind.CONTAINER, "reverse-proxy", addresses=("172.17.0.2",), restarts=True)
    async with by_peer.router() as environments:
        environments.request("p1", peer="172.17.0.2")
        await settled(environments)
        assert environments.owned("p1") == []
        environments.released("p1")
        await settled(environments)
    assert engine.names() == {"reverse-proxy"}


async def test_a_container_that_several_programs_call_from_is_nobodys(by_peer: Harness) -> None:
    engine = by_peer.engine
    engine.put(Kind.CONTAINER, "batch-runner", addresses=("172.17.0.2",))
    async with by_peer.router() as environments:
        environments.request("p1", peer="172.17.0.2")
        await owns(environments, "p1", 1)
        environments.request("p2", peer="172.17.0.2")
        await owns(environments, "p1", 0)
        environments.released("p1")
        environments.released("p2")
        await settled(environments)
    assert engine.names() == {"batch-runner"}


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


async def test_an_answer_that_cannot_be_read_is_an_outage_and_not_the_end_of_watching(
    harness: Harness,
) -> None:
    engine = harness.engine
    engine.fault("everything", KeyError("Labels"), EngineError(500, "out of order"))
    async with harness.router() as environments:
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        environments.request("p1")
        await owns(environments, "p1", 1)


async def test_an_object_that_cannot_be_inspected_does_not_break_the_watch(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        engine.fault("sight", EngineError(500, "driver failed"))
        engine.put(Kind.VOLUME, "odd", labelled("p1"))
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", labelled("p1"))
        await owns(environments, "p1", 1)
        environments.reconcile()
        await owns(environments, "p1", 2)
        assert len([1 for call, _ in engine.calls if call == "events"]) == 1


async def test_waiting_ends_however_many_requests_keep_coming(harness: Harness) -> None:
    async with harness.router() as environments:

        async def hammer() -> None:
            while True:
                environments.request("busy")
                await asyncio.sleep(0)

        hammering = asyncio.create_task(hammer())
        environments.open("p1")
        await until(environments, lambda: environments.status().programs == 2)
        hammering.cancel()
