"""What programs leave behind in the router itself: nothing, counted in every table it keeps."""

import asyncio
import random
import sqlite3
from collections.abc import Sized
from contextlib import closing
from pathlib import Path

from environment_harness import Harness, labelled, settled, until
from thunder_router.environment_settings import (
    ComposeRule,
    DockerSettings,
    HookSettings,
    ImageSettings,
    PreparationSettings,
    TemplateSettings,
)
from thunder_router.environments import Environments, labels
from thunder_router.environments.engine import Layer
from thunder_router.environments.records import Kind

PROGRAMS = 200
COUNTERS = {"tally", "spent_ms"}
"""Totals since start: as many as there are things to count, whatever the number of programs."""


def kept(environments: Environments, journal: Path) -> dict[str, int]:
    """The number of entries in every table: the books', the journal's, the loop's."""
    books = environments._ledger.books
    sizes = {
        name: len(table)
        for name, table in vars(books).items()
        if isinstance(table, Sized) and name not in COUNTERS
    }
    sizes["tasks"] = len(asyncio.all_tasks())
    sizes["steps"] = len(environments._performer._tasks) + len(environments._performer._by_key)
    with closing(sqlite3.connect(journal)) as connection:
        for table in ("programs", "resources", "images"):
            count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            sizes[f"journal of {table}"] = count
    return sizes


async def test_after_two_hundred_programs_every_table_is_as_it_was_before_the_first(
    tmp_path: Path,
) -> None:
    dice = random.Random(3)
    harness = Harness(
        tmp_path,
        docker=DockerSettings(
            ping_interval_s=0.01,
            relist_interval_s=3600,
            adopt_peer_ip=True,
            adopt=(ComposeRule(program="^(?P<id>.+)$", compose_project="^(?P<id>.+)__env$"),),
        ),
        images=ImageSettings(allow=("swe/*",), min_idle_s=0, prefetch_window_s=10),
        prepare=PreparationSettings(ahead=PROGRAMS, on_pause="pause"),
        templates={"t": TemplateSettings(match=r"^p(?P<n>\d+)$", image="swe/{n}:1")},
        hooks=(HookSettings(name="h", on=("release", "crash"), command=("true",)),),
    )
    engine = harness.engine
    for number in range(0, PROGRAMS, 2):
        engine.images_there[f"swe/{number}:1"] = (Layer(f"sha256:{number}", 1),)

    async def life(environments: Environments, number: int) -> None:
        """One program, with everything that can be its own, and one of many ends."""
        program, address = f"p{number}", f"10.0.{number // 250}.{number % 250}"
        plain = engine.put(Kind.CONTAINER, f"plain{number}")
        box = engine.put(Kind.CONTAINER, f"box{number}", labelled(program))
        engine.put(Kind.VOLUME, f"volume{number}", labelled(program))
        project = {labels.COMPOSE_PROJECT: f"{program}__env"}
        member = engine.put(Kind.CONTAINER, f"member{number}", project)
        engine.put(Kind.CONTAINER, f"home{number}", addresses=(address,))
        environments.request(program, docker_ids=(plain, "no-such-thing"), peer=address)
        environments.prepare(program, 0)
        for container in (box, member):
            engine.exec_started(container)
            engine.exec_ended(container)
        await settled(environments)
        match dice.choice(["released", "twice", "silent", "paused", "lease", "leaves"]):
            case "released":
                environments.released(program)
            case "twice":
                environments.released(program)
                environments.request(program)
                environments.released(program)
                environments.released(program)
            case "paused":
                environments.paused(program, waiting=True)
            case "lease":
                environments.open(program, lease_s=1)
            case "leaves":
                await engine.remove(Kind.CONTAINER, box)
                await engine.remove(Kind.CONTAINER, member)
                environments.expired(program)

    async with harness.router() as environments:
        await settled(environments)
        before = kept(environments, tmp_path / "journal.db")
        for number in range(PROGRAMS):
            await life(environments, number)
        assert kept(environments, tmp_path / "journal.db")["programs"] > 0
        for _ in range(4):
            # Silence, leases and graces pass; then idle images go.
            await harness.turn(environments, 3601)
            environments.collect()
            await settled(environments)
        await until(environments, lambda: not engine.objects)
        await settled(environments)
        environments.reconcile()
        await settled(environments)
        after = kept(environments, tmp_path / "journal.db")
        # Times by image are kept for the images last prepared, 4,096 at most.
        assert after.pop("prepare_ms") == PROGRAMS // 2
        assert after == {name: size for name, size in before.items() if name != "prepare_ms"}
        environments._ledger.books.check()
