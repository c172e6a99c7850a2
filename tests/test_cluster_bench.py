"""The bench of routers side by side: its arithmetic, and one small day through real processes."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.cluster import __main__ as command
from bench.cluster.agents import Agents
from bench.cluster.records import keep, read
from bench.cluster.report import SERIES, TARGETS, answered, report, series
from bench.cluster.routers import ROUTERS, Setting
from bench.cluster.run import Record, percentile, run
from bench.cluster.scenarios import QUICK, SCENARIOS, Scenario
from bench.scaled import scaled_settings
from bench.systems import UnavailableError
from thunder_router.emulator.simulation import SimulationOptions
from thunder_router.errors import ConfigError

RECORD = Record(
    origin="a day, a machine",
    scenario="mini-2",
    router="adaptive",
    seed=31,
    speed=10.0,
    steps_per_min=600.0,
    programs_per_hour=1200.0,
    hit_rate=0.95,
    recomputed_tokens=480_000,
    steps=4_800,
    retractions=3,
    failed=0,
    hold_p50_ms=100,
    hold_p99_ms=60_000,
    hold_max_ms=200_000,
    turn_p50_ms=7_000,
    turn_p90_ms=12_000,
    engine_p50_ms=6_000,
    router_ms_per_step=0.5,
    router_cores=0.1,
    event_lag_p99_ms=100,
    answered=[600, 610],
)


def test_ratios_are_taken_seed_by_seed() -> None:
    records = [
        RECORD,
        replace(RECORD, seed=32, steps_per_min=800.0),
        replace(RECORD, router="sglang-router", steps_per_min=300.0),
        replace(RECORD, router="sglang-router", seed=32, steps_per_min=400.0, hold_max_ms=900_000),
        replace(RECORD, router="smg", seed=33, steps_per_min=100.0),
    ]

    text = report(records)

    assert "| adaptive | 700 ± 1,271 | – | 1,200 | 0.95 | 100 | 3 | 7.0 | 0.1 | 60 | 200 |" in text
    assert "| sglang-router | 350 ± 636 | 2.00 ± 0.00 |" in text
    assert "| 900 | 0 | 0.50 | 31, 32 |" in text
    assert "| smg | 100 | – |" in text, "no seed that both have played"
    assert "mini-SWE, 2 workers, 144: of sglang-router | ≥ 2.00× | 2.00 ± 0.00 | yes" in text


def test_a_target_that_is_missed_is_reported_as_missed() -> None:
    close = replace(RECORD, router="ThunderAgent", steps_per_min=590.0)
    assert "of ThunderAgent | ≥ 1.13× | 1.02 | no" in report([RECORD, close])


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        (replace(RECORD, event_lag_p99_ms=121, seed=32), "events came late"),
        (replace(RECORD, router_cores=0.71, seed=32), "the router lacked a core"),
    ],
)
def test_a_run_that_the_machine_did_not_keep_up_with_is_left_out_and_said(
    failed: Record, why: str
) -> None:
    assert RECORD.flaw is None
    assert failed.flaw == why

    text = report([RECORD, replace(failed, steps_per_min=1.0)])

    assert "| adaptive | 600 | – |" in text
    assert f"1 runs failed themselves: mini-2, adaptive, seed 32: {why}." in text


def test_a_run_made_again_replaces_the_first_unless_it_failed_itself(tmp_path: Path) -> None:
    file = tmp_path / "results" / "cluster.jsonl"
    late = replace(RECORD, event_lag_p99_ms=1_000)
    again, other = replace(RECORD, steps_per_min=610.0), replace(RECORD, seed=32)

    for record in (late, RECORD, other, again, late):
        keep(record, file)

    assert read(file) == [again, other]


def test_a_series_is_drawn_against_the_number_of_programs() -> None:
    one = replace(RECORD, scenario="fig4a-24")
    assert series([one], "fig4a") is None

    drawn = series([one, replace(RECORD, scenario="fig4a-48")], "fig4a")

    assert drawn is not None
    assert "Emulated engines" in drawn
    assert ">adaptive<" in drawn


def test_the_turns_answered_are_drawn_scenario_by_scenario() -> None:
    other = replace(RECORD, scenario="openhands-2", router="smg", answered=[10, 20])
    assert answered([replace(RECORD, router_cores=1.0)], QUICK) is None

    drawn = answered([RECORD, other], QUICK)

    assert drawn is not None
    assert "Emulated engines" in drawn
    assert all(SCENARIOS[name].title in drawn for name in QUICK)


def test_the_front_page_shows_the_picture_and_says_that_it_is_emulated() -> None:
    root = Path(__file__).parent.parent
    page = (root / "README.md").read_text()

    (picture,) = re.findall(r"^!\[.*emulated.*\]\((.*)\)$", page, re.MULTILINE)
    (caption,) = re.findall(r"^\*(Emulated: .*?)\*$", page, re.MULTILINE | re.DOTALL)

    assert "Emulated engines" in (root / picture).read_text()
    for file, heading in re.findall(r"\]\((\S+\.md)#(\S+?)\)", caption):
        headings = re.findall(r"^#+ (.*)$", (root / file).read_text(), re.MULTILINE)
        assert heading in [words.lower().replace(" ", "-") for words in headings]


def test_names_are_known() -> None:
    assert {target.scenario for target in TARGETS} <= set(SCENARIOS)
    assert {target.to for target in TARGETS} <= set(ROUTERS)
    for prefix in SERIES:
        assert sum(name.startswith(f"{prefix}-") for name in SCENARIOS) >= 3


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert [percentile(values, percent) for percent in (50, 99, 100)] == [100, 198, 200]
    assert percentile([], 50) == 0


def test_shards_share_the_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, str, int]] = []

    def play(scenario: str, router: str, seed: int, *, speed: float, **_: object) -> Record:
        played.append((scenario, router, seed))
        assert speed == 30.0 * ROUTERS[router].pace
        return replace(RECORD, scenario=scenario, router=router, seed=seed)

    monkeypatch.setattr(command, "run", play)
    monkeypatch.setattr(command, "keep", lambda record: None)
    chosen = ["--quick", "--seeds", "1", "2", "--speed", "30"]
    for shard in ("1/3", "2/3", "3/3"):
        assert command.main([*chosen, "--shard", shard]) == 0

    assert len(played) == len(set(played)) == len(QUICK) * 2 * len(ROUTERS)


@pytest.mark.parametrize("shard", ["0/3", "4/3", "one"])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(SystemExit):
        command.main(["--quick", "--shard", shard])


def test_a_peer_that_is_not_here_is_left_out_with_a_reason() -> None:
    setting = Setting(1, ["http://w"], "glm-4.6", 10.0, Path(), thunderagent=None)
    with pytest.raises(UnavailableError, match="clone it"):
        ROUTERS["ThunderAgent"].command(setting)


def test_the_routers_times_run_with_the_engines() -> None:
    settings = tomllib.loads(scaled_settings(["http://w"], "glm-4.6", 10.0))

    assert settings["scheduling"]["lease_min_s"] == 6.0
    assert settings["scheduling"]["paper_half_life_s"] == 0.1
    assert settings["workers"]["down_after_s"] == 1.0
    assert settings["workers"]["loads_interval_s"] == 0.05, "asked no more often than that"
    assert settings["workers"]["entries"][0]["prefill_us_per_token"] == 5.0
    with pytest.raises(ConfigError):
        scaled_settings(["http://w"], "unheard-of", 10.0)


class Answers:
    """A router that gives each request the next of these statuses."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    async def answer(self, request: web.Request) -> web.Response:
        return web.json_response({"said": "wrong"}, status=self.statuses.pop(0))


async def test_a_failed_request_is_asked_again_and_a_wrong_one_is_a_fault() -> None:
    day = SimulationOptions(programs=1, warmup_s=0, measured_s=600)
    answers = Answers(503, 429, 502, 400)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answers.answer)
    async with TestServer(app) as router:
        agents = Agents(day, 1, 200.0, str(router.make_url("")).rstrip("/"), releases=False)
        with pytest.raises(ExceptionGroup) as fault:
            await agents.play()

    assert "400: " in str(fault.value.exceptions[0])
    assert agents.seen.failed == 3
    assert not answers.statuses


@pytest.mark.e2e
def test_a_small_day_is_played_through_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    day = SimulationOptions(
        workers=3,
        programs=6,
        warmup_s=20,
        measured_s=60,
        worker_capacity=(100_000, 100_000, 80_000),
        lose_worker=((40, 50),),
    )
    monkeypatch.setitem(SCENARIOS, "small", Scenario("small", day))

    found = run("small", "adaptive", 1, speed=20, thunderagent=None, origin="here")

    assert found.steps > 6
    assert sum(found.answered) == found.steps
    assert 0.3 < found.hit_rate < 1
    assert found.hold_max_ms >= found.hold_p99_ms >= found.hold_p50_ms >= 0
    assert found.turn_p50_ms >= found.engine_p50_ms > 0
    assert found.router_ms_per_step > 0
