"""Teardown on a real engine: what a program leaves behind goes with it."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from docker.errors import APIError

from containers.lab import Lab, owns, until
from thunder_router.environment_settings import ComposeRule, DockerSettings
from thunder_router.environments import Environments, labels
from thunder_router.environments.records import Kind

PROGRAMS = int(os.environ.get("THUNDER_DOCKER_PROGRAMS", "16"))
ROUNDS = max(6, PROGRAMS // 8)
"""Of races: `make test-docker` has 200 programs, and so 25."""


async def test_release_removes_containers_networks_and_volumes_and_nothing_else(lab: Lab) -> None:
    program, other = lab.program(1), lab.program(2)
    async with lab.router() as environments:
        environments.request(program)
        environments.request(other)
        stamped = {labels.PROGRAM: program}
        network = await lab.call(
            lab.client.networks.create, f"n-{lab.name}", labels=stamped, internal=True
        )
        await lab.call(lab.client.volumes.create, f"v-{lab.name}", labels=stamped)
        await lab.call(
            lab.agent_runs,
            program,
            network_mode=network.name,
            volumes={f"v-{lab.name}": {"bind": "/testbed", "mode": "rw"}},
        )
        await lab.call(lab.agent_runs, other)
        await owns(environments, program, 3)
        await owns(environments, other, 1)
        environments.released(program)
        await owns(environments, program, 0)
        assert await lab.call(lab.left_over) == [f"container c-{other}-0-{lab.name} running"]
        environments.released(other)
        await owns(environments, other, 0)


async def test_a_container_that_ignores_sigterm_is_not_waited_for(lab: Lab) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        environments.request(program)
        await lab.call(
            lab.agent_runs, program, command=["sh", "-c", "trap '' TERM; sleep 7200 & wait; wait"]
        )
        await owns(environments, program, 1)
        environments.released(program)
        # The engine's own stop would take 10 s.
        await owns(environments, program, 0, timeout_s=5)


async def test_anonymous_volumes_go_with_their_container(lab: Lab) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        environments.request(program)
        container = await lab.call(lab.agent_runs, program, volumes=["/data", "/cache"])
        await lab.call(container.reload)
        volumes = {mount["Name"] for mount in container.attrs["Mounts"]}
        assert len(volumes) == 2
        await owns(environments, program, 1)
        environments.released(program)
        await owns(environments, program, 0)
        left = {volume.id for volume in await lab.call(lab.client.volumes.list)}
        assert volumes.isdisjoint(left)


async def test_exited_and_never_started_containers_go_too(lab: Lab) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        environments.request(program)
        await lab.call(lab.agent_runs, program, number="done", command=["true"])
        taken = await lab.call(
            lab.agent_runs,
            program,
            number="port",
            network_mode="bridge",
            ports={"80/tcp": ("127.0.0.1", None)},
        )
        await lab.call(taken.reload)
        port = int(taken.ports["80/tcp"][0]["HostPort"])
        with pytest.raises(APIError, match="port is already allocated"):
            await lab.call(
                lab.agent_runs,
                program,
                number="loser",
                network_mode="bridge",
                ports={"80/tcp": ("127.0.0.1", port)},
            )
        statuses = {line.split()[-1] for line in await lab.call(lab.left_over)}
        assert "created" in statuses
        await owns(environments, program, 3)
        environments.released(program)
        await owns(environments, program, 0)


async def test_double_late_and_concurrent_release_and_reuse_hit_the_right_generation(
    lab: Lab,
) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        for generation in range(1, ROUNDS + 1):
            environments.request(program)
            await lab.call(lab.agent_runs, program, number=generation)
            await owns(environments, program, 1)
            if generation > 1:
                # A release that is late by a generation.
                environments.released(program, generation=generation - 1)
            for _ in range(generation < ROUNDS and 5):
                environments.released(program)
            await owns(environments, program, int(generation == ROUNDS))
        (kept,) = environments.owned(program)
        assert kept.owner.generation == ROUNDS
        environments.released(program)
        await owns(environments, program, 0)


async def test_an_agents_own_removal_racing_ours_ends_well(lab: Lab) -> None:
    """Theirs before, with and after ours, which is said twice, four programs at a time."""
    dice = random.Random(ROUNDS)

    async def race(environments: Environments, number: int) -> None:
        program = lab.program(number)
        environments.request(program)
        container = await lab.call(lab.agent_runs, program)
        await owns(environments, program, 1)
        removing = asyncio.create_task(lab.call(container.remove, force=True))
        await asyncio.sleep(dice.choice((0, 0.005, 0.02)))
        environments.released(program)
        environments.released(program)
        with suppress(APIError):
            await removing
        await owns(environments, program, 0)

    async with lab.router() as environments:
        for first in range(0, 4 * ROUNDS, 4):
            await asyncio.gather(*(race(environments, first + number) for number in range(4)))


async def test_two_routers_on_one_engine_leave_each_other_alone(lab: Lab) -> None:
    mine, theirs = lab.program("mine"), lab.program("theirs")
    other_settings = lab.settings(
        router_id=f"o-{lab.name}",
        journal=lab.folder / "other.db",
        orphan_grace_s=0,
        idle_ttl_s=0,
    )
    async with lab.router() as environments, lab.router(other_settings) as others:
        environments.request(mine)
        stamped = {labels.ROUTER: lab.router_id}
        await lab.call(lab.agent_runs, mine, labels=stamped)
        await lab.call(lab.agent_runs, theirs, number=1)
        await owns(environments, mine, 1)
        # The other one, which has no patience at all, hears the same id and looks twice.
        others.request(mine)
        others.released(mine)
        others.reconcile()
        others.request(theirs)
        await owns(others, theirs, 0)
        await until(others, lambda: others.status().in_flight == 0)
        left = await lab.call(lab.left_over)
        assert left == [f"container c-{mine}-0-{lab.name} running"]
        environments.released(mine)
        await owns(environments, mine, 0)


async def test_a_compose_project_goes_as_a_whole_by_its_rule(lab: Lab) -> None:
    program = f"{lab.name.upper()}__agent"
    project = {labels.COMPOSE_PROJECT: f"{lab.name}__env"}
    settings = lab.settings(
        docker=DockerSettings(
            host=lab.host,
            adopt=(
                ComposeRule(program="^(?P<id>.+)__agent$", compose_project="^(?P<id>.+)__env$"),
            ),
        )
    )
    async with lab.router(settings) as environments:
        network = await lab.call(lab.client.networks.create, f"n-{lab.name}", labels=project)
        await lab.call(lab.client.volumes.create, f"v-{lab.name}", labels=project)
        for service in ("main", "db"):
            await lab.call(
                lab.agent_runs,
                program,
                number=service,
                stamp=False,
                labels=project,
                network_mode=network.name,
                volumes={f"v-{lab.name}": {"bind": "/testbed", "mode": "rw"}},
            )
        environments.request(program)
        await owns(environments, program, 1)
        assert environments.owned(program)[0].kind is Kind.COMPOSE
        environments.released(program)
        await owns(environments, program, 0)


async def test_registered_ids_go_and_bystanders_cannot_be_registered_away(lab: Lab) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        container = await lab.call(lab.agent_runs, program, stamp=False)
        service = await lab.call(
            lab.agent_runs,
            program,
            number="service",
            stamp=False,
            restart_policy={"Name": "always"},
        )
        environments.request(program, docker_ids=(container.short_id, service.id, "no-such-thing"))
        await owns(environments, program, 1)
        environments.released(program)
        await owns(environments, program, 0)
        assert await lab.call(lab.left_over) == [f"container {service.name} running"]
        await lab.call(service.remove, force=True)


@pytest.fixture
def agents() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that do nothing."""
    idle = [sys.executable, "-c", "import signal; signal.pause()"]
    agents = [subprocess.Popen(idle) for _ in range(2)]
    yield agents
    for agent in agents:
        agent.kill()
        agent.wait()


async def test_an_agent_that_is_killed_loses_its_sandbox_after_the_grace(
    lab: Lab, agents: list[subprocess.Popen[bytes]]
) -> None:
    """And one that lives keeps it, however long its connection is gone."""
    dead, alive = lab.program("dead"), lab.program("alive")
    async with lab.router(lab.settings(owner_grace_s=0.5)) as environments:
        for program, agent in zip((dead, alive), agents, strict=True):
            environments.open(program, owner_pid=agent.pid)
            await lab.call(lab.agent_runs, program)
            await owns(environments, program, 1)
        agents[0].kill()
        agents[0].wait()
        await owns(environments, dead, 0)
        assert len(environments.owned(alive)) == 1
        environments.released(alive)
        await owns(environments, alive, 0)


async def test_a_running_tool_keeps_a_suspected_program_alive(lab: Lab) -> None:
    program = lab.program(1)
    async with lab.router() as environments:
        environments.request(program)
        container = await lab.call(lab.agent_runs, program)
        await owns(environments, program, 1)
        waits = "touch /tmp/begun; until [ -e /tmp/done ]; do sleep 0.1; done"
        tool = asyncio.create_task(lab.call(container.exec_run, ["sh", "-c", waits]))
        while (await lab.call(container.exec_run, ["ls", "/tmp/begun"])).exit_code:
            pass
        environments.expired(program)
        await until(environments, lambda: environments.status().tally.get("checked_alive") == 1)
        assert len(environments.owned(program)) == 1
        await lab.call(container.exec_run, ["touch", "/tmp/done"])
        await tool
        # Two of ours, and the tool itself.
        await until(environments, lambda: environments.status().tally.get("tools", 0) >= 3)
        environments.expired(program)
        await owns(environments, program, 0)


async def test_many_programs_end_at_random_and_the_engine_is_never_flooded(lab: Lab) -> None:
    """Some are released, some are never heard of again, some lose their agent's own containers."""
    dice = random.Random(PROGRAMS)
    async with lab.router(lab.settings(idle_ttl_s=1)) as environments:
        programs = [lab.program(number) for number in range(PROGRAMS)]
        for first in range(0, PROGRAMS, 8):
            batch = programs[first : first + 8]
            boxes = await asyncio.gather(*(lab.call(lab.agent_runs, p) for p in batch))
            for program in batch:
                environments.request(program)
            for program, box in zip(batch, boxes, strict=True):
                match dice.choice(["released", "crashed", "cleaned up"]):
                    case "released":
                        environments.released(program)
                    case "cleaned up":
                        # It may have been silent for too long already.
                        with suppress(APIError):
                            await lab.call(box.remove, force=True)
        await until(environments, lambda: not environments.resources(), timeout_s=50)
        assert await lab.call(lab.left_over) == []
        assert lab.engine.most_in_flight <= 8
