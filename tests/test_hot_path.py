"""The in-process measurement goes the way that requests go."""

import pytest
import uvloop

from bench.hot_path import run, table


def test_every_stage_of_every_shape_is_measured_and_nothing_fails_on_the_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = uvloop.run(run(rounds=1))

    assert found.keys() == {"small", "small, named", "100 KB", "stream"}
    assert found["small"].keys() == found["100 KB"].keys()
    assert all(cost > 0 for stages in found.values() for cost in stages.values())
    assert len(table(found).splitlines()) == 2 + len(found["small"]) + len(found["stream"])
    assert caplog.records == []
