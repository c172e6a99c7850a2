"""The operators' page says what is served: each metric with its labels, and no other."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from emulated import chat
from router import routing
from thunder_router.emulator import EmulatorOptions, running

PAGE = (Path(__file__).parent.parent / "docs/operating.md").read_text()
HISTOGRAM = {"le"}


def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(thunder_\w+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


async def test_the_table_of_metrics_is_what_a_scrape_gives(tmp_path: Path) -> None:
    environments = {
        "enabled": True,
        "journal": str(tmp_path / "environments.db"),
        "docker": {"host": f"unix://{tmp_path}/nobody-listens.sock"},
    }
    options = EmulatorOptions(port=0, speed=1000.0, hicache_ratio=2.0)
    async with running(options) as urls, routing(urls, environments=environments) as house:
        await house.client.post("/v1/chat/completions", json=chat("Hello.", program_id="p"))
        await house.quiet()
        text = (await house.client.get("/metrics")).text

    served: dict[str, set[str] | None] = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {frozenset(sample.labels) - HISTOGRAM for sample in family.samples}
        served[name] = set(*labels) if labels else None
    table = documented()
    assert sorted(table) == sorted(served)
    # A family that nothing happened to yet shows no labels.
    seen = {name: labels for name, labels in served.items() if labels is not None}
    assert {name: table[name] for name in seen} == seen
    assert len(seen) > 20
