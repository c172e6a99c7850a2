"""Tool environments on a real engine: disk over programs, and time to the first tool call.

The two halves of the paper's figure 2 that concern tools (arXiv 2602.13692, 2b and 2c). Every
program has an image of its own from a registry, as in SWE-bench: a base that all share, and a layer
that only it has. It starts a container, writes into it, and ends without clearing up.

*Disk*: the same programs once with nobody looking after them, once with the router's hooks, half
of the programs released and half never heard of again. *First tool call*: a program waits in the
queue, gets its turn, and runs its first command; once its container is made when its turn comes,
once it was prepared while it waited.

Needs root and dockerd (an engine of its own, in its own network namespace) and docker-registry.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import docker

from bench.processes import resident_bytes
from bench.tables import figure, provenance, replace_section, table
from thunder_router.config import EnvironmentSettings
from thunder_router.environment_settings import (
    DiskSettings,
    DockerSettings,
    ImageSettings,
    PreparationSettings,
    TemplateSettings,
)
from thunder_router.environments import DockerEngine, Environments, Store, labels

sys.path.append(str(Path(__file__).parent.parent / "tests"))
# The tests' own engine, registry and image maker.
from containers import private_engine
from containers import registry as registries
from containers.lab import settled
from containers.layered_images import MIB, Recipe, archive, filler, tools

__all__ = ["main"]

HERE = Path(__file__).parent
AT_ONCE = 8
WROTE_MIB = 1
LAYER_MIB = 2
DISK = "1500m"
HIGH, LOW = 0.06, 0.04


@dataclass(frozen=True)
class DiskRun:
    """One run over all programs. Bytes are the engine's data, as its file system counts them."""

    hooks: bool
    programs: list[int]
    bytes: list[int]
    resident: list[int]
    """Bytes of memory of the process that the router runs in, this script's own part included."""
    containers: int
    """Left at the end."""
    images: int


@dataclass(frozen=True)
class FirstCall:
    """Seconds from a program's turn to the end of its first command, and what it waited for."""

    prepared: bool
    seconds: list[float]


class Bench:
    """An engine, a registry, and images in it for every program."""

    def __init__(self, engine: private_engine.PrivateEngine, registry: registries.Registry) -> None:
        self.engine = engine
        self.registry = registry
        self.client = docker.DockerClient(base_url=engine.host, timeout=120)

    def publish(self, count: int, kind: str) -> list[str]:
        """Puts an image per program into the registry, and none on the engine."""
        names = []
        for number in range(count):
            recipe = Recipe(
                f"{self.registry.host}/{kind}/task{number}:1",
                (tools(), filler("base", 8 * MIB), filler(f"{kind}{number}", LAYER_MIB * MIB)),
            )
            list(self.client.api.load_image(archive([recipe])))
            for line in self.client.api.push(recipe.tag, stream=True, decode=True):
                if "error" in line:
                    raise RuntimeError(line["error"])
            self.client.images.remove(recipe.tag)
            names.append(recipe.tag)
        return names

    def agent_runs(self, program: str, image: str) -> str:
        """What an agent does by itself: pulls, creates, starts."""
        self.client.images.pull(image)
        container = self.client.containers.run(
            image,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            network_mode="none",
            labels={labels.PROGRAM: program},
        )
        return str(container.id)

    def tool(self, container: str, command: Sequence[str]) -> None:
        """One tool call."""
        result = self.client.containers.get(container).exec_run(list(command))
        if result.exit_code:
            raise RuntimeError(result.output)

    def clear(self) -> None:
        """Removes everything, between runs."""
        for container in self.client.containers.list(all=True):
            container.remove(force=True, v=True)
        for image in self.client.images.list():
            self.client.images.remove(image.id, force=True)

    @asynccontextmanager
    async def router(self, folder: Path, **changes: Any) -> AsyncIterator[Environments]:
        """A router's environments over the engine."""
        host = self.registry.host
        defaults: dict[str, Any] = {
            "enabled": True,
            "journal": folder / "journal.db",
            "startup_grace_s": 0,
            "docker": DockerSettings(host=self.engine.host),
            "images": ImageSettings(allow=(f"{host}/*",), min_idle_s=1, prefetch_window_s=5),
            "disk": DiskSettings(high=1, reserve_bytes=0),
        }
        settings = EnvironmentSettings(**(defaults | changes))
        engine = DockerEngine(self.engine.host, call_timeout_s=30, pull_timeout_s=600)
        async with Environments(settings, engine=engine, store=Store(settings.journal)) as room:
            await room.until(lambda: room.status().environments == "ok")
            yield room
        settings.journal.unlink()


async def disk(bench: Bench, names: Sequence[str], folder: Path, *, hooks: bool) -> DiskRun:
    """Runs every program to its end, so many at once, and weighs the engine's data."""
    dice = random.Random(1)
    counts, sizes = [0], [await asyncio.to_thread(bench.engine.used_bytes)]
    resident = [resident_bytes(os.getpid())]

    async def program(number: int, room: Environments | None) -> None:
        name = f"task{number}"
        if room is not None:
            room.request(name)
            room.prefetch(names[number])
        container = await asyncio.to_thread(bench.agent_runs, name, names[number])
        write = f"dd if=/dev/zero of=/tmp/work bs=1048576 count={WROTE_MIB}"
        await asyncio.to_thread(bench.tool, container, ["sh", "-c", write])
        if room is not None and dice.random() < 0.5:
            room.released(name)

    async def all_programs(room: Environments | None) -> None:
        for first in range(0, len(names), AT_ONCE):
            last = min(first + AT_ONCE, len(names))
            await asyncio.gather(*(program(number, room) for number in range(first, last)))
            counts.append(last)
            sizes.append(await asyncio.to_thread(bench.engine.used_bytes))
            resident.append(resident_bytes(os.getpid()))

    if hooks:
        # What is not released falls silent, and is given up after fifteen seconds here.
        marks = DiskSettings(high=HIGH, low=LOW, reserve_bytes=0, interval_s=0.5)
        async with bench.router(folder, idle_ttl_s=15, disk=marks) as room:
            await all_programs(room)
            await room.until(lambda: not room.resources())
            sizes[-1] = await asyncio.to_thread(bench.engine.used_bytes)
    else:
        await all_programs(None)
    left = bench.client.containers.list(all=True)
    run = DiskRun(hooks, counts, sizes, resident, len(left), len(bench.client.images.list()))
    await asyncio.to_thread(bench.clear)
    return run


async def first_call(
    bench: Bench, names: Sequence[str], folder: Path, *, prepared: bool, wait_s: float
) -> FirstCall:
    """Programs one after another: each waits in the queue, then has its turn."""
    seconds = []
    template = TemplateSettings(
        match="^(?P<task>task[0-9]+)$", image=f"{bench.registry.host}/call/{{task}}:1"
    )
    changes = {"templates": {"t": template}, "prepare": PreparationSettings(ahead=4)}
    async with bench.router(folder, **changes) as room:
        for number, name in enumerate(names):
            program = f"task{number}"
            room.request(program)
            if prepared:
                room.prepare(program, round(wait_s * 1000))
            await asyncio.sleep(wait_s)
            turn = time.perf_counter()
            if prepared:
                room.restored(program)
                container = (await settled(room, program)).container
            else:
                container = await asyncio.to_thread(bench.agent_runs, program, name)
            if container is None:
                raise RuntimeError(room.environment(program).error)
            await asyncio.to_thread(bench.tool, container, ["true"])
            seconds.append(time.perf_counter() - turn)
            room.released(program)
        await room.until(lambda: not room.resources())
    await asyncio.to_thread(bench.clear)
    return FirstCall(prepared, seconds)


async def measure(bench: Bench, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    names = await asyncio.to_thread(bench.publish, arguments.programs, "disk")
    runs = [await disk(bench, names, folder, hooks=hooks) for hooks in (False, True)]
    names = await asyncio.to_thread(bench.publish, arguments.calls, "call")
    calls = [
        await first_call(bench, names, folder, prepared=prepared, wait_s=arguments.wait_s)
        for prepared in (False, True)
    ]
    return {
        "provenance": provenance(),
        "wait_s": arguments.wait_s,
        "disk": [asdict(run) for run in runs],
        "first_call": [asdict(call) for call in calls],
    }


def report(result: dict[str, Any]) -> str:
    """The section of README.md."""
    rows = []
    for run in result["disk"]:
        grown = [(size - run["bytes"][0]) / MIB for size in run["bytes"]]
        memory = [size / MIB for size in run["resident"]]
        middle = grown[len(grown) // 2]
        rows.append(
            [
                "with hooks" if run["hooks"] else "without",
                *(figure(value) for value in (middle, max(grown), grown[-1])),
                *(figure(value) for value in (memory[len(memory) // 2], memory[-1])),
                str(run["containers"]),
                str(run["images"]),
            ]
        )
    programs = result["disk"][0]["programs"]
    half = programs[len(programs) // 2]
    head = [
        f"{programs[-1]} programs",
        f"MiB after {half}",
        "at most",
        "at the end",
        f"memory after {half}",
        "at the end",
        "containers left",
        "images left",
    ]
    lines = [
        result["provenance"],
        "",
        "Disk that the engine's layers take, over its state before the first program. Each one has",
        f"an image of its own ({LAYER_MIB} MiB over a shared base), writes {WROTE_MIB} MiB, and",
        "never clears up. With hooks half of the programs are released and half fall silent; idle",
        f"images go when more than {HIGH:.0%} of the disk is in use. Memory, in MiB, is that of",
        "the process that the router runs in, the script's own part included.",
        "",
        table(head, rows),
        "",
        "Seconds from a program's turn to the end of its first command, its image not on the",
        f"engine before, after {result['wait_s']:g} s in the queue:",
        "",
    ]
    call_rows = []
    for call in result["first_call"]:
        ordered = sorted(call["seconds"])
        p90 = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
        name = "prepared while it waited" if call["prepared"] else "made when its turn came"
        call_rows.append(
            [name, figure(statistics.median(ordered), 3), figure(p90, 3), str(len(ordered))]
        )
    return "\n".join([*lines, table(["environment", "p50", "p90", "programs"], call_rows)])


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, writes the JSON, and fills the section of README.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.environments", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--wait-s", type=float, default=3.0)
    parser.add_argument("--output", type=Path, default=HERE / ".cache" / "environments.json")
    parser.add_argument("--no-report", action="store_true", help="leave README.md alone")
    arguments = parser.parse_args(argv)
    if why := private_engine.lacking() or registries.lacking():
        print(f"not measured: {why}", file=sys.stderr)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="thunder-b-"))
    try:
        with private_engine.PrivateEngine(folder / "e", folder.name[-8:]) as engine:
            engine.limit_disk(DISK)
            engine.up()
            with registries.Registry(folder / "r", engine.namespace) as registry:
                bench = Bench(engine, registry)
                result = asyncio.run(measure(bench, arguments, folder))
                bench.client.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1))
    text = report(result)
    print(text)
    if not arguments.no_report:
        replace_section(HERE / "README.md", "environments", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
