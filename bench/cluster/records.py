"""The records of all runs: JSON, a line each, in bench/results/cluster.jsonl."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.cluster.run import Record
from bench.tables import HERE

__all__ = ["RECORDS", "keep", "read"]

RECORDS = HERE / "results" / "cluster.jsonl"


def keep(record: Record, file: Path = RECORDS) -> None:
    """Adds a line."""
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(record)) + "\n")


def read(file: Path = RECORDS) -> Sequence[Record]:
    """All of them; of a run that was made again, the last without a flaw, else the last."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    latest: dict[tuple[str, str, int], Record] = {}
    for record in (Record(**json.loads(line)) for line in lines):
        run = record.scenario, record.router, record.seed
        if record.flaw is None or run not in latest or latest[run].flaw:
            latest[run] = record
    return list(latest.values())
