"""Simulated days: the settings' own scheduler, baselines, refusals."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from thunder_router import _core
from thunder_router.cli import main
from thunder_router.config import SchedulingSettings
from thunder_router.emulator.models import engine_model
from thunder_router.emulator.simulation import (
    ROUTERS,
    SimulationOptions,
    SimulationReport,
    models,
    simulate,
    workloads,
)
from thunder_router.errors import ConfigError

SHORT = {"programs": 72, "warmup_s": 300, "measured_s": 600}


def day(router: str, seed: int = 1, **changes: Any) -> SimulationReport:
    """A short day of mini-SWE programs on one GLM-4.6 engine."""
    options = SimulationOptions.model_validate(SHORT | changes)
    return simulate(options, router, SchedulingSettings(), seed=seed)


def figures(report: SimulationReport) -> list[Any]:
    return [getattr(report, name) for name in dir(report) if not name.startswith("_")]


def test_scheduling_gains_over_not_scheduling_on_the_same_programs() -> None:
    pinned, adaptive = day("pinned"), day("adaptive")
    assert adaptive.steps > 1.5 * pinned.steps
    assert adaptive.hit_rate > 0.9 > pinned.hit_rate
    assert adaptive.recomputed_tokens < pinned.recomputed_tokens / 4
    assert adaptive.hold_max_ms > 0 == pinned.hold_max_ms
    assert adaptive.steps_per_min == adaptive.steps / 10
    assert adaptive.ideal_hit_rate >= adaptive.hit_rate


def test_a_day_repeats_by_its_seed() -> None:
    short = {"programs": 40, "measured_s": 120}
    once = figures(day("adaptive", **short))
    assert len(once) == 24
    assert once == figures(day("adaptive", **short))
    assert once != figures(day("adaptive", seed=2, **short))


@pytest.mark.parametrize("workload", workloads())
def test_every_workload_runs_behind_every_router(workload: str) -> None:
    for router in ROUTERS:
        report = day(router, workload=workload, warmup_s=30, measured_s=120, programs=30, workers=2)
        assert report.steps > 0
        assert report.refused == 0


def test_every_model_runs_and_a_host_tier_is_used() -> None:
    for model in models():
        short: dict[str, Any] = {"programs": 12, "warmup_s": 0, "measured_s": 120}
        assert day("pinned", model=model, **short).steps > 0
    tight = day("pinned", worker_capacity=[200_000], hicache_ratio=4.0)
    assert tight.cached_host_tokens > 0


def test_every_baseline_has_a_line_that_says_what_it_is() -> None:
    assert set(ROUTERS) == {"off", "paper", "adaptive", *_core.baselines()}


def test_workers_may_be_unequal_lost_and_never_told_of_an_end() -> None:
    """Each switch changes the day in its own way."""
    two: dict[str, Any] = {"workers": 2, "programs": 84}
    whole = day("adaptive", **two)
    small = day("adaptive", **two, worker_capacity="615000,205000")
    lost = day("adaptive", **two, lose_worker="400:600")
    silent = day("adaptive", **two, never_release=True)
    slow = day("adaptive", **two, tool_scale=8)
    assert small.hold_max_ms > whole.hold_max_ms
    assert lost.failed > 10 > whole.failed == 0
    for changed in (small, lost, silent, slow):
        assert changed.steps < whole.steps
    assert figures(day("adaptive", **two, worker_capacity=[615_000])) == figures(whole)


def test_a_model_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    short: dict[str, Any] = {"programs": 40, "measured_s": 120}
    known = day("adaptive", **short)
    file.write_text('like = "glm-4.6"')
    assert figures(day("adaptive", model=str(file), **short)) == figures(known)
    file.write_text('like = "glm-4.6"\nprefill_us_per_token = 25\ncapacity_tokens = 300000')
    model = engine_model(str(file))
    assert (model.capacity_tokens, model.prefill_us_per_token, model.base_ms) == (300_000, 25, 6.5)
    assert day("adaptive", model=str(file), **short).steps != known.steps


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("base_ms = 5", "capacity_tokens is missing"),
        ('like = "gpt-9"', 'no model "gpt-9"'),
        ('like = "glm-4.6"\nspeed = 2', "no constant 'speed'"),
        ('like = "glm-4.6"\nbase_ms = "fast"', "base_ms = 'fast'"),
        ('like = "glm-4.6"\nbase_ms = -1', "base_ms = -1"),
        ('like = "glm-4.6"\nchunk_tokens = 1.5', "chunk_tokens = 1.5"),
        ('like = "glm-4.6"\nexpert_share = 2', "expert_share = 2"),
        ('like = "glm-4.6"\nbase_ms = 1e9', "below a minute"),
        ("base_ms = ", "Invalid value"),
    ],
)
def test_a_model_file_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}: .*{complaint}"):
        engine_model(str(file))


def test_recorded_sessions_are_played_again(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions.json"
    turns = [[2_000, 50, 0, 0.5], [2_100, 50, 2_050, 0.5], [2_200, 50, 2_150, 0.5]]
    sessions.write_text(json.dumps([turns, turns[:2]]))
    report = day("adaptive", workload=str(sessions), programs=8, measured_s=300)
    assert report.steps > 100
    assert 1_900 < report.prompt_tokens / report.steps < 2_200
    assert report.hit_rate > 0.4
    for wrong in ("{", "[[[1, 2]]]", "5", "[]", "[[]]"):
        sessions.write_text(wrong)
        with pytest.raises(ConfigError, match="session"):
            day("pinned", workload=str(sessions))
    with pytest.raises(ConfigError, match="No such file"):
        day("pinned", workload=str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"workload": "chess"}, "no workload"),
        ({"model": "gpt-9"}, "no model"),
        ({"router": "oracle"}, "no router"),
        ({"page_size": 1_000_000}, "page_tokens"),
    ],
)
def test_a_day_that_makes_no_sense_is_refused_by_name(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        day(**({"router": "pinned"} | change))


def test_options_keep_their_ranges_and_know_no_others() -> None:
    for wrong in ({"workers": 0}, {"tool_scale": -1}, {"colour": "red"}):
        with pytest.raises(ValidationError):
            SimulationOptions.model_validate(wrong)


def test_the_extension_refuses_a_router_that_is_neither_constants_nor_a_name() -> None:
    options = SimulationOptions()
    with pytest.raises(TypeError, match="router"):
        _core.simulate(
            workload=options.workload,
            model=_core.EngineModel.preset(options.model),
            router=5,  # type: ignore[arg-type]
            workers=1,
            capacities=[],
            outages=[],
            programs=1,
            seed=1,
            warmup_s=0,
            measured_s=1,
            hicache_ratio=0.0,
            write_policy="write_through",
            page_tokens=1,
            sessions=False,
            releases=True,
            tool_scale=1.0,
            max_tokens=1,
        )


def test_the_command_compares_routers_and_names_what_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ["simulate", "--programs", "20", "--warmup-s", "30", "--measured-s", "120"]
    assert main([*short, "--seeds", "2", "--policy", "pinned,adaptive"]) == 0
    said = capsys.readouterr().out
    assert "simulated" in said
    assert "pinned" in said
    assert "1.00 ± 0.00" in said
    assert main([*short, "--seeds", "1", "--policy", "off", "--json", "--never-release"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["options"]["never_release"] is True
    (one,) = figures["days"]
    assert (one["programs"], one["router"], one["seed"]) == (20, "off", 1)
    assert one["figures"]["steps"] > 0
    for wrong, complaint in (
        (["--policy", "oracle"], "no router"),
        (["--workers", "0"], "--workers"),
        (["--programs", "20,none"], "--programs"),
        (["--plot", "/nowhere/at/all.svg"], "--plot: /nowhere/at/all.svg: No such file"),
        (["--seeds", "0"], "--seeds"),
        (["--workload", "nowhere.json"], "nowhere.json"),
        (["--lose-worker", "9"], "--lose-worker"),
        (["--worker-capacity", "1,2"], "--worker-capacity: Value error, 2 given for 1"),
    ):
        assert main([*short, *wrong]) == 2
        assert complaint in capsys.readouterr().err


def test_several_loads_are_told_beside_each_other_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "day.svg"
    day = ["simulate", "--warmup-s", "30", "--measured-s", "120", "--seeds", "2"]
    loads = ["--programs", "8,16", "--policy", "pinned,bound", "--plot", str(plot)]
    assert main([*day, *loads]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "/" not in line]
    assert [row[1:4:2] for row in rows if "pinned" in row or "bound" in row] == [
        ["8", "pinned"],
        ["8", "bound"],
        ["16", "pinned"],
        ["16", "bound"],
    ]
    drawn = plot.read_text(encoding="utf-8")
    for text in ("mini-swe on 1 x glm-4.6", ">pinned<", ">bound<", "hold, longest", "hit rate"):
        assert text in drawn


def test_the_help_says_what_each_router_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    said = capsys.readouterr().out
    for name, what in ROUTERS.items():
        assert f"  {name:14} {what}" in said
