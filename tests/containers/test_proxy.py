"""The Docker proxy with the real CLI before it and a real engine behind it."""

import asyncio
from pathlib import Path

from containers.lab import Lab, owns
from thunder_router.environments import docker_proxy, labels


async def cli(socket: Path, *arguments: str, given: bytes = b"") -> tuple[int, str]:
    """Runs the docker CLI against this socket."""
    process = await asyncio.create_subprocess_exec(
        *("docker", "--host", f"unix://{socket}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(given)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_an_agent_behind_the_proxy_works_as_ever_and_leaves_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    program, image = lab.program(1), lab.images["base"].tag
    engine, socket = Path(lab.host.removeprefix("unix://")), tmp_path / "p.sock"
    async with (
        lab.router() as environments,
        docker_proxy.serve(socket, engine, program, lab.router_id),
    ):
        environments.request(program)
        run = ("run", "--pull", "never", "--network", "none")
        box = f"c-{lab.name}"
        status, out = await cli(socket, *run, "-d", "--name", box, image, "sleep", "7200")
        assert status == 0, out
        assert await cli(socket, "exec", box, "sh", "-c", "echo out; exit 3") == (3, "out\n")
        assert await cli(socket, "exec", "-i", box, "cat", given=b"in\n") == (0, "in\n")
        mounted = (*run, "--rm", "-v", f"v-{lab.name}:/d", image, "ls", "/d")
        assert (await cli(socket, *mounted))[0] == 0
        container = await lab.call(lab.client.containers.get, box)
        assert container.labels[labels.PROGRAM] == program

        by = f"by-{lab.name}"
        for refused in (
            ("kill", by),
            ("rm", "-f", by),
            ("exec", by, "true"),
            (*run, "--privileged", image, "true"),
            (*run, "-v", "/:/host", image, "true"),
            (*run, "-v", f"{by}:/d", image, "true"),
            (*run, "--label", "thunder.program_id=other", image, "true"),
            ("system", "prune", "-f"),
        ):
            status, out = await cli(socket, *refused)
            assert status != 0, refused
            assert "refused by thunder-router" in out

        await owns(environments, program, 2)
        environments.released(program)
        await owns(environments, program, 0)
