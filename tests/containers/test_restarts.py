"""A router that is killed, at every step of its journal, and started again."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from containers.lab import Lab, owns, until
from thunder_router.config import EnvironmentSettings
from thunder_router.environment_settings import ProbeSettings, TemplateSettings

MORTAL = Path(__file__).parent / "mortal_router.py"


def settings(lab: Lab, number: int) -> EnvironmentSettings:
    return lab.settings(
        router_id=f"{lab.router_id}-{number}",
        journal=lab.folder / f"{number}.db",
        templates={
            "t": TemplateSettings(
                match="",
                image=lab.images["base"].tag,
                init=("true",),
                probe=ProbeSettings(exec=("true",)),
            )
        },
    )


async def killed(lab: Lab, jobs: list[dict[str, Any]]) -> list[int | None]:
    """Runs the jobs; a number of commits for each that lived, None for each that was killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, MORTAL, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(json.dumps(jobs).encode())
    ends: list[int | None] = json.loads(out)
    return ends


async def test_killed_at_every_step_of_its_journal_a_router_converges_after_its_restart(
    lab: Lab,
) -> None:
    def job(number: int, die_at: int, *, before: bool) -> dict[str, Any]:
        return {
            "settings": settings(lab, number).model_dump(mode="json"),
            "die_at": die_at,
            "before": before,
            "program": lab.program(number),
        }

    # One life to its end, to learn how many steps it has.
    await lab.call(lab.agent_runs, lab.program(0))
    (steps,) = await killed(lab, [job(0, 0, before=False)])
    assert steps is not None
    assert steps >= 7
    jobs = [
        job(2 * step + before, step, before=bool(before))
        for step in range(1, steps + 1)
        for before in (0, 1)
    ]
    await asyncio.gather(*(lab.call(lab.agent_runs, j["program"]) for j in jobs))
    ends = await killed(lab, jobs)
    # The steps of two lives differ by a few, as answers come in one batch or in two.
    assert ends.count(None) >= len(jobs) - 6

    async def recover(number: int) -> None:
        program = lab.program(number)
        async with lab.router(settings(lab, number)) as environments:
            # Whoever released it before may not have been heard.
            environments.request(program)
            environments.released(program)
            await until(environments, lambda: not environments.resources())
            environments.reconcile()
            await owns(environments, program, 0)

    for first in range(0, len(jobs), 4):
        batch = range(first + 2, min(first + 6, len(jobs) + 2))
        await asyncio.gather(*(recover(number) for number in batch))
    routers = [settings(lab, number).router_id for number in range(2 * steps + 2)]
    left = await lab.call(
        lambda: [
            container.name
            for container in lab.client.containers.list(
                all=True, filters={"label": "thunder.router"}
            )
            if container.labels["thunder.router"] in routers
        ]
    )
    assert left == []
