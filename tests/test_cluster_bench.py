"""The bench of routers side by side: its arithmetic, and one small day through real processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cluster import __main__ as command
from bench.cluster.report import plot, report
from bench.cluster.routers import ROUTERS, Setting
from bench.cluster.run import Record, run
from bench.cluster.scenarios import SCENARIOS, Scenario
from bench.intervals import mean
from bench.scaled import scaled_settings
from bench.systems import UnavailableError
from thunder_router.emulator.programs import AgentProgram, exact_request
from thunder_router.emulator.simulation import SimulationOptions

RECORD = Record(
    origin="a day, a machine",
    scenario="mini-2",
    router="adaptive",
    seed=31,
    speed=10.0,
    steps_per_min=600.0,
    programs_per_hour=1200.0,
    hit_rate=0.95,
    recomputed_per_step=100.0,
    retractions=3,
    turn_p50_s=7.0,
    turn_p99_s=60.0,
    turn_max_s=200.0,
    failures=0,
    router_ms_per_step=0.5,
    event_lag_p99_s=0.1,
)


def test_ratios_are_taken_seed_by_seed() -> None:
    records = [
        RECORD,
        replace(RECORD, seed=32, steps_per_min=800.0),
        replace(RECORD, router="sglang-router", steps_per_min=300.0),
        replace(RECORD, router="sglang-router", seed=32, steps_per_min=400.0, turn_max_s=900.0),
    ]

    text = report(records)

    assert "mini-SWE, 144 on two workers" in text
    assert "| adaptive | 700 ± 1,271 | – | 1,200 ± 0 | 95% | 100 | 3 | 7.0 | 60 | 200 |" in text
    assert "| sglang-router | 350 ± 636 | 2.00 ± 0.00 |" in text
    assert "| 900 | 0 | 0.50 | 2 |" in text


def test_a_run_whose_events_came_late_is_left_out_and_said() -> None:
    late = replace(RECORD, seed=32, event_lag_p99_s=0.15, steps_per_min=1.0)

    assert RECORD.counts
    assert not late.counts
    text = report([RECORD, late])
    assert "| adaptive | 600 | – |" in text
    assert "1 of 2 runs came too late to count" in text


def test_a_series_is_drawn_against_the_number_of_programs() -> None:
    series = [
        replace(RECORD, scenario=f"fig4a-{programs}", steps_per_min=float(programs))
        for programs in (24, 48)
    ]

    drawn = plot(series, {"fig4a-24", "fig4a-48"}, "mini-SWE")

    assert "Emulated engines" in drawn
    assert ">adaptive<" in drawn


@pytest.mark.parametrize(
    ("values", "expected"), [([2.0], (2.0, None)), ([1.0, 3.0], (2.0, pytest.approx(12.71)))]
)
def test_an_interval_is_students(values: list[float], expected: tuple[float, float]) -> None:
    found = mean(values)
    assert (found.value, found.error) == expected


def test_records_are_read_back_and_a_run_made_again_replaces_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "RECORDS", tmp_path / "results" / "cluster.jsonl")
    again = replace(RECORD, steps_per_min=610.0)

    for record in (RECORD, replace(RECORD, seed=32), again):
        command.keep(record)

    assert command.read() == [again, replace(RECORD, seed=32)]


def test_shards_share_the_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, str, int]] = []

    def play(scenario: str, router: str, seed: int, **_: object) -> Record:
        played.append((scenario, router, seed))
        return replace(RECORD, scenario=scenario, router=router, seed=seed)

    monkeypatch.setattr(command, "run", play)
    monkeypatch.setattr(command, "keep", lambda record: None)
    for shard in ("1/3", "2/3", "3/3"):
        assert command.main(["--quick", "--seeds", "1", "2", "--shard", shard]) == 0

    assert len(played) == len(set(played)) == 2 * 2 * len(ROUTERS)


@pytest.mark.parametrize("shard", ["0/3", "4/3", "one"])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(SystemExit):
        command.main(["--quick", "--shard", shard])


def test_a_peer_that_is_not_here_is_left_out_with_a_reason() -> None:
    setting = Setting(1, ["http://w"], "glm-4.6", 10.0, Path(), thunderagent=None)
    with pytest.raises(UnavailableError, match="clone it"):
        ROUTERS["ThunderAgent"].command(setting)


def test_the_routers_times_run_with_the_engines() -> None:
    text = scaled_settings(["http://w"], "glm-4.6", 10.0)

    assert "lease_min_s = 6.0" in text
    assert "paper_tick_s = 0.5" in text
    assert "prefill_us_per_token = 5.0" in text
    with pytest.raises(ValueError, match="no costs are known"):
        scaled_settings(["http://w"], "unheard-of", 10.0)


def test_a_request_states_nothing_and_repeats_what_was_said() -> None:
    program = AgentProgram(
        workload="mini-swe", seed=1, slot=0, ordinal=0, tool_scale=1.0, midway=False
    )
    first, second = program.turn(), program.turn()
    assert first is not None
    assert second is not None

    body = exact_request(second, 1.0, {first.answer[0]: "as it came"})

    assert set(body) == {"messages", "max_tokens", "ignore_eos"}
    assert body["max_tokens"] == second.answer[1]
    assert body["messages"][2] == {"role": "assistant", "content": "as it came"}
    assert json.dumps(body["messages"][:2]) == json.dumps(exact_request(first, 1.0, {})["messages"])


def test_a_small_day_is_played_through_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    day = SimulationOptions(
        workers=2,
        programs=6,
        warmup_s=20,
        measured_s=60,
        worker_capacity=(100_000, 80_000),
        lose_worker=((40, 50),),
    )
    monkeypatch.setitem(SCENARIOS, "small", Scenario("small", day))

    found = run("small", "adaptive", 1, speed=40, thunderagent=None, origin="here")

    assert found.steps_per_min > 6
    assert 0.3 < found.hit_rate < 1
    assert found.turn_max_s >= found.turn_p99_s >= found.turn_p50_s > 0
    assert found.router_ms_per_step > 0
