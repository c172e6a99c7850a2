"""`thunder-router docker-proxy`: a Docker socket for one program or one run."""

import argparse
import asyncio
import signal
from pathlib import Path

from thunder_router.config import load
from thunder_router.environments import docker_proxy
from thunder_router.errors import ConfigError

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "docker-proxy",
        help="a Docker socket that labels what agents create",
        description="Serves a socket for DOCKER_HOST. What is created through it belongs to the "
        "program and goes with it; privileges, host mounts and other programs' containers are "
        "out of reach.",
        allow_abbrev=False,
    )
    parser.add_argument("--program", required=True, metavar="ID", help="whose the objects are")
    parser.add_argument("--listen", required=True, type=Path, metavar="SOCKET", help="to make")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (thunder.toml)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM.

    Raises:
        ConfigError: the engine is not on a socket, or the program cannot own anything.
    """
    section = load(arguments.config).environments
    if not section.docker.host.startswith("unix://"):
        raise ConfigError(f"environments.docker.host: {section.docker.host} is not a socket")
    engine = Path(section.docker.host.removeprefix("unix://"))
    try:
        asyncio.run(_serve(arguments.listen, engine, arguments.program, section.router_id))
    except ValueError as error:
        raise ConfigError(f"--program: {error}") from error
    return 0


async def _serve(listen: Path, engine: Path, program: str, router: str) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with docker_proxy.serve(listen, engine, program, router):
        print(f"DOCKER_HOST=unix://{listen}", flush=True)
        await ended.wait()
