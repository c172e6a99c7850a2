"""Golden traces, replayed through the bindings: the same events, the same decisions and reasons."""

from pathlib import Path

import pytest

from thunder_router.config import SchedulingSettings
from thunder_router.scheduling import journal
from thunder_router.scheduling.core import new_scheduler
from thunder_router.scheduling.replay import reproduce

TRACES = sorted((Path(__file__).parent / "traces").glob("*.jsonl"))


def test_there_is_a_trace_for_every_policy() -> None:
    policies = {journal.read(trace)[0].scheduling["policy"] for trace in TRACES}
    assert policies == {"off", "paper", "adaptive"}


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_recorded_events_bring_the_recorded_decisions(trace: Path) -> None:
    header, lines = journal.read(trace)
    settings = SchedulingSettings.model_validate(header.scheduling)
    differences = [
        difference
        for _, difference in reproduce(lines, lambda: new_scheduler(settings))
        if difference is not None
    ]
    assert differences == []
