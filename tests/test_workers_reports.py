"""Every recorded engine parses into the report that stands in golden/worker_reports.json.

A number there is followed by who said it, and by `stale` where it may be out of date. After a
deliberate change, `python tests/test_workers_reports.py` writes the file anew; read the difference.
"""

import asyncio
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fake_worker import CAPTURES, FILES
from thunder_router.config import WorkerEntry
from thunder_router.workers.clock import MonotonicClock
from thunder_router.workers.compose import compose
from thunder_router.workers.http import Answer
from thunder_router.workers.probe import Door, probe
from thunder_router.workers.report import Capabilities, Reading, WorkerReport

GOLDEN = Path(__file__).parent / "golden" / "worker_reports.json"
FOLDERS = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir())


class Recording:
    """Answers with the files of one folder, unedited; 404 for what is not there."""

    def __init__(self, folder: str) -> None:
        self.folder = CAPTURES / folder

    async def ask(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        key: SecretStr | None = None,
        body: bytes | None = None,
    ) -> Answer:
        path = url.removeprefix("http://w").partition("?")[0]
        file = self.folder / f"{FILES.get(path, 'nothing')}.body"
        if path == "/health":
            return Answer(200)
        return Answer(200, file.read_bytes()) if file.is_file() else Answer(404)


def shown(value: Any) -> Any:
    """A report's value as the golden file has it."""
    if isinstance(value, Reading):
        inner = shown(value.value)
        stale = " stale" if value.stale else ""
        if isinstance(inner, dict):
            return inner | {"from": f"{value.source}{stale}"}
        return f"{inner} {value.source}{stale}"
    if isinstance(value, Capabilities):
        return [field.name for field in fields(value) if getattr(value, field.name)]
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: shown(getattr(value, field.name)) for field in fields(value)}
    return value


async def read(folder: str) -> WorkerReport:
    found = await probe(Door("http://w", None, Recording(folder), MonotonicClock(), 1.0))
    assert found.complete
    assert found.problem is None
    return compose(found.seen, WorkerEntry(url="http://w"))


async def golden(folder: str) -> dict[str, Any]:
    report: dict[str, Any] = shown(await read(folder))
    return report


@pytest.mark.parametrize("folder", FOLDERS)
async def test_a_recorded_engine_parses_into_its_report(folder: str) -> None:
    assert await golden(folder) == json.loads(GOLDEN.read_text())[folder]


def test_the_golden_file_names_no_engine_that_is_not_recorded() -> None:
    assert sorted(json.loads(GOLDEN.read_text())) == FOLDERS


if __name__ == "__main__":
    reports = {folder: asyncio.run(golden(folder)) for folder in FOLDERS}
    GOLDEN.write_text(json.dumps(reports, indent=1) + "\n")
