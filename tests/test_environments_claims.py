"""Whose a container is: labels, names in requests, rules, addresses, and who gets nothing."""

import asyncio
from pathlib import Path

import pytest

from environment_harness import Harness, labelled, owns, settled, until
from thunder_router.environment_settings import DockerSettings
from thunder_router.environments import labels
from thunder_router.environments.engine import EngineError
from thunder_router.environments.records import Kind


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


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


async def test_a_name_that_is_used_again_is_looked_up_again(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for _ in range(3):
            engine.put(Kind.CONTAINER, "box")
            environments.request("p1", docker_ids=("box",))
            await owns(environments, "p1", 1)
            environments.released("p1")
            await until(environments, lambda: not engine.objects)
            harness.clock.now_ms += 1


async def test_what_is_named_while_no_engine_answers_is_looked_up_when_it_does(
    harness: Harness,
) -> None:
    engine = harness.engine
    lives, ended = (engine.put(Kind.CONTAINER, name) for name in ("lives", "ended"))
    async with harness.router() as environments:
        engine.crash()
        await until(environments, lambda: environments.status().environments == "unavailable")
        environments.request("p1", docker_ids=(lives,))
        environments.register("p2", Kind.CONTAINER, ended)
        # Released before anybody could look: what it named goes all the same.
        environments.released("p2")
        await settled(environments)
        looks = [ref for call, ref in engine.calls if call == "sight"]
        assert looks == []
        engine.up = True
        await owns(environments, "p1", 1)
        await until(environments, lambda: engine.names() == {"lives"})


async def test_a_lookup_that_fails_is_made_again(harness: Harness) -> None:
    engine = harness.engine
    box = engine.put(Kind.CONTAINER, "box")
    async with harness.router() as environments:
        engine.fault("sight", EngineError(500, "driver failed"))
        environments.register("p1", Kind.CONTAINER, box)
        await until(environments, lambda: not engine.faults["sight"])
        environments.reconcile()
        await owns(environments, "p1", 1)


async def test_what_was_named_before_a_release_goes_with_it_and_what_came_later_stays(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        engine.put(Kind.CONTAINER, "early")
        harness.clock.now_ms += 1
        engine.gate = asyncio.Event()
        environments.request("p1", docker_ids=("early", "late"))
        environments.released("p1")
        await until(environments, lambda: environments.status().programs == 1)
        harness.clock.now_ms += 1
        engine.put(Kind.CONTAINER, "late")
        engine.gate.set()
        await until(environments, lambda: engine.names() == {"late"})
        environments.request("p1", docker_ids=("late",))
        await owns(environments, "p1", 1)
        assert environments.owned("p1")[0].owner.generation == 2


async def test_a_container_that_two_programs_call_from_before_anyone_looked_is_nobodys(
    by_peer: Harness,
) -> None:
    engine = by_peer.engine
    engine.put(Kind.CONTAINER, "batch-runner", addresses=("172.17.0.2",))
    async with by_peer.router() as environments:
        engine.gate = asyncio.Event()
        environments.request("p1", peer="172.17.0.2")
        environments.request("p2", peer="172.17.0.2")
        await until(environments, lambda: environments.status().programs == 2)
        engine.gate.set()
        environments.released("p1")
        environments.released("p2")
        await settled(environments)
        environments.reconcile()
        await settled(environments)
        assert environments.resources() == []
    assert engine.names() == {"batch-runner"}


async def test_an_address_that_a_program_has_left_may_be_anothers(by_peer: Harness) -> None:
    engine = by_peer.engine
    async with by_peer.router() as environments:
        environments.request("p1", peer="172.17.0.2")
        environments.request("p1", peer="172.17.0.9")
        environments.request("p2", peer="172.17.0.2")
        engine.put(Kind.CONTAINER, "box", addresses=("172.17.0.2",))
        environments.reconcile()
        await owns(environments, "p2", 1)
        assert environments.owned("p1") == []
