"""The journal file."""

import asyncio
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from thunder_router.environments.actions import Forget, Keep
from thunder_router.environments.records import (
    Freshness,
    Image,
    Kind,
    Origin,
    Owner,
    Process,
    Program,
    Resource,
    Spec,
    State,
)
from thunder_router.environments.store import Store

PROGRAM = Program("p1", 3, 17, requested=True, process=Process(7, 8, "boot"), lease_until_ms=99)
RESOURCE = Resource(
    Owner("p1", 3),
    Kind.CONTAINER,
    "box",
    Origin.CREATED,
    State.PROBING,
    5,
    alias="id",
    spec=Spec("i", env=(("a", "b"),), ports=(80,), probe_exec=("true",)),
    ports=((80, 40_000),),
)
IMAGE = Image("i", Freshness.PRESENT, ours=True, id="sha256:1")


async def test_what_is_kept_is_read_back_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "j.db")
    await store.commit([Keep(PROGRAM), Keep(RESOURCE), Keep(IMAGE)])
    await store.commit([Keep(replace(IMAGE, ours=False))])
    store.close()
    store = Store(tmp_path / "j.db")
    assert store.load() == [PROGRAM, RESOURCE, replace(IMAGE, ours=False)]
    await store.commit([Forget("images", "i"), Forget("resources", RESOURCE.key)])
    assert store.load() == [PROGRAM]
    store.close()


async def test_many_commits_at_once_are_all_durable_and_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "j.db")
    await asyncio.gather(
        *(store.commit([Keep(replace(PROGRAM, last_used_ms=n))]) for n in range(200))
    )
    store.close()
    store = Store(tmp_path / "j.db")
    assert store.load() == [replace(PROGRAM, last_used_ms=199)]
    store.close()


async def test_a_line_that_cannot_be_read_is_left_out_with_what_hangs_on_it(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "j.db")
    await store.commit([Keep(PROGRAM), Keep(RESOURCE), Keep(IMAGE)])
    store.close()
    with sqlite3.connect(tmp_path / "j.db") as other:
        other.execute("UPDATE programs SET body = 'torn'")
    other.close()
    store = Store(tmp_path / "j.db")
    assert store.load() == [IMAGE]
    store.close()


def test_a_journal_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "j.db") as other:
        other.execute("PRAGMA user_version=99")
    other.close()
    with pytest.raises(sqlite3.DatabaseError, match="version 99"):
        Store(tmp_path / "j.db")


def test_the_journal_is_for_its_owner_alone_and_for_one_router_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = Store(path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(sqlite3.OperationalError, match="another router uses it"):
        Store(path)
    store.close()
    Store(path).close()


async def test_a_line_that_cannot_be_written_does_not_keep_others_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "journal.db")
    spec = Spec("swe/a:1", env=(("TOKEN", "s3cret"),))
    odd = Program("odd", 1, 0, failure="\ud800", spec=spec)
    await store.commit([Keep(odd), Keep(Program("sound", 1, 0))])
    assert [record.id for record in store.load() if isinstance(record, Program)] == ["sound"]
    assert "unwritable=programs/odd" in caplog.text
    assert "s3cret" not in caplog.text
    store.close()


def test_a_process_that_never_closes_its_journal_ends_all_the_same(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from thunder_router.environments import Store; "
        "Store(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "journal.db"], check=True, timeout=30)
