"""An engine that is killed, hangs, or runs out: on an engine of our own."""

import asyncio

from docker.errors import APIError

from containers.lab import Lab, owns, until
from containers.private_engine import PrivateEngine
from thunder_router.environments import labels


async def test_an_engine_killed_amid_twenty_removals_is_cleaned_up_once_it_is_back(
    private_lab: Lab, private_engine: PrivateEngine
) -> None:
    lab = private_lab
    programs = [lab.program(number) for number in range(20)]
    async with lab.router() as environments:
        for program in programs:
            environments.request(program)
        await asyncio.gather(*(lab.call(lab.agent_runs, program) for program in programs))
        await until(environments, lambda: len(environments.resources()) == 20, timeout_s=40)
        for program in programs:
            environments.released(program)
        await until(environments, lambda: len(environments.resources()) <= 17)
        private_engine.kill()
        await until(environments, lambda: environments.status().environments == "unavailable")
        left = len(environments.resources())
        assert left > 0
        await lab.call(private_engine.up)
        await until(environments, lambda: not environments.resources(), timeout_s=40)
        # And the engine is listened to again.
        environments.request(programs[0])
        await lab.call(lab.agent_runs, programs[0], number="again")
        await owns(environments, programs[0], 1)
        environments.released(programs[0])
        await owns(environments, programs[0], 0)
        # The bystander died with the engine; bringing it up again is its owner's business.
        lab.bystanders_restarted()


async def test_requests_go_on_while_the_engine_hangs_and_its_work_resumes(
    private_lab: Lab, private_engine: PrivateEngine
) -> None:
    lab = private_lab
    program = lab.program(1)
    async with lab.router() as environments:
        environments.request(program)
        await lab.call(lab.agent_runs, program)
        await owns(environments, program, 1)
        private_engine.hang()
        try:
            environments.released(program)
            await until(environments, lambda: environments.status().environments == "unavailable")
            for number in range(1000):
                environments.request(lab.program(f"q{number}"))
                environments.prepare(lab.program(f"q{number}"), 0)
            # All of it was taken in while no engine answered.
            await until(environments, lambda: environments.status().programs == 1001)
        finally:
            private_engine.wake()
        await until(environments, lambda: environments.status().environments == "ok")
        await owns(environments, program, 0)


async def test_a_full_network_pool_is_not_taken_for_absence_and_release_empties_it(
    private_lab: Lab,
) -> None:
    lab = private_lab
    programs = [lab.program(number) for number in range(3)]
    async with lab.router() as environments:
        created, refusal = 0, ""
        while not refusal and created < 40:
            stamped = {labels.PROGRAM: programs[created % 3]}
            try:
                name = f"n{created}-{lab.name}"
                await lab.call(lab.client.networks.create, name, labels=stamped)
                created += 1
            except APIError as error:
                refusal = f"{error.status_code} {error}"
        assert refusal.startswith("404")
        assert "could not find an available, non-overlapping" in refusal
        assert created > 20
        for program in programs:
            environments.request(program)
        await until(environments, lambda: len(environments.resources()) == created, timeout_s=30)
        for program in programs:
            environments.released(program)
        await until(environments, lambda: not environments.resources(), timeout_s=50)
