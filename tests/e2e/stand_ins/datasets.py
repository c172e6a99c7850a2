"""Stands in for Hugging Face's `datasets`, which mini-swe-agent's batch runner imports.

The runner asks it for nothing but the rows of a data set, so a folder of JSON rows is enough, and
neither half a gigabyte of packages nor the network is needed. Put on `PYTHONPATH` by the test.
"""

import json
from pathlib import Path
from typing import Any


def load_dataset(path: str, split: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((Path(path) / f"{split}.json").read_text())
    return rows
