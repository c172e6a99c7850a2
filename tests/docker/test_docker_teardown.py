"""Teardown on a real engine: what a program leaves behind goes with it."""

from lab import Lab, owns

from thunder_router.environments import labels


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
