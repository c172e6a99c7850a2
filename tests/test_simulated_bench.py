"""The simulated benchmark: its scenarios, tables, targets and pictures."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.simulated.__main__ import main
from bench.simulated.ablations import PIECES
from bench.simulated.days import Day, Days
from bench.simulated.report import ROUTERS, TARGETS, picture, report
from bench.simulated.scenarios import DAY, SWEEPS, Scenario, Sweep, scenarios
from thunder_router.config import SchedulingSettings
from thunder_router.emulator.simulation import ROUTERS as KNOWN
from thunder_router.emulator.simulation import SimulationOptions

RATES = {"cache_aware": 100, "ttl": 150, "thunder_agent": 180, "paper": 200, "adaptive": 230}


def day(steps_per_min: float, hold_max_ms: int = 60_000) -> Day:
    return Day(
        steps_per_min=steps_per_min,
        programs_per_hour=900,
        hit_rate=0.5,
        recomputed_tokens=0,
        retractions=0,
        refused=0,
        failed=0,
        pauses=0,
        hold_p50_ms=0,
        hold_p99_ms=30_000,
        hold_max_ms=hold_max_ms,
        turn_p50_ms=7_000,
        turn_p90_ms=9_000,
    )


def days(rates: Mapping[str, Mapping[str, float]]) -> Days:
    """By scenario and router, the same on both seeds."""
    played = Days((1, 2), SchedulingSettings())
    for name, by_router in rates.items():
        for router, rate in by_router.items():
            played.played[name, router] = [day(rate), day(rate, 90_000)]
    return played


def test_every_scenario_makes_sense_and_every_target_has_its_own() -> None:
    all_of_them = scenarios("claude-code")
    assert len({one.name for one in all_of_them}) == len(all_of_them)
    assert {target.scenario for target in TARGETS} <= {one.name for one in all_of_them}
    assert {target.to for target in TARGETS} <= set(ROUTERS) <= set(KNOWN)
    lost = next(one for one in all_of_them if "lost" in one.name).day
    assert lost.lose_worker == ((1_200, 1_500),)
    assert lost.measured_s == DAY.measured_s


def test_a_sweep_scales_programs_or_workers() -> None:
    by_name = {sweep.name: sweep for sweep in SWEEPS}
    sizes = [
        (size, one.day.workers, one.day.programs) for size, one in by_name["workers"].scenarios()
    ]
    assert sizes == [(2, 2, 144), (4, 4, 288), (8, 8, 576)]
    hicache = [
        (one.day.programs, one.day.hicache_ratio) for _, one in by_name["hicache"].scenarios()
    ]
    assert hicache == [(64, 2), (96, 2), (128, 2), (160, 2), (192, 2)]
    for sweep in SWEEPS:
        for rates in sweep.published.values():
            assert len(rates) == len(sweep.sizes)


def test_targets_are_reported_as_met_or_missed() -> None:
    two = "mini-SWE, 2 workers, 144"
    rates = {**RATES, "bound": 250}
    text = report(days({two: rates}), [Scenario(two, {})], [], "a machine")

    assert "45 virtual minutes after 15 to warm up (15 after 10" in text
    assert f"| {two} | 100 | 150 | 180 | 200 | 230 | 250 | 2.30 ± 0.00 | 1.28 ± 0.00 |" in text
    assert f"| {two}: of cache_aware | ≥ 2.00× | 2.30 ± 0.00 | yes |" in text
    rates["cache_aware"], rates["thunder_agent"] = 130, 240
    text = report(days({two: rates}), [Scenario(two, {})], [], "a machine")
    assert f"| {two}: of cache_aware | ≥ 2.00× | 1.77 ± 0.00 | no |" in text
    assert f"least in {two} | ≥ 0.97× | 0.96 ± 0.00 | no |" in text


def test_the_longest_hold_of_all_seeds_is_shown() -> None:
    name = "mini-SWE, 96"
    text = report(days({name: {**RATES, "bound": 250}}), [Scenario(name, {})], [], "")
    assert "| 900 (900) | 0.50 (0.50) | 7.0 (7.0) | 30 (30) | 90 (90) |" in text


def test_workers_scale_within_a_bound() -> None:
    sweep = Sweep(
        "workers", "two to four", "mini-swe", (2, 4), axis="workers", routers=("adaptive",)
    )
    names = [one.name for _, one in sweep.scenarios()]
    for rate, said in ((392, "2.0% | yes"), (360, "10.0% | no")):
        played = days({names[0]: {"adaptive": 200}, names[1]: {"adaptive": rate}})
        assert f"| 2 to 4 workers: linear | within 5% | {said} |" in report(played, [], [sweep], "")


def test_a_picture_has_every_router_and_what_was_published() -> None:
    sweep = Sweep(
        "small",
        "two sizes",
        "mini-swe",
        (24, 48),
        routers=("adaptive", "cache_aware"),
        published={"vLLM, published": (222, 275)},
    )
    played = days({one.name: RATES for _, one in sweep.scenarios()})
    drawn = picture(played, sweep, "a machine")
    for text in ("adaptive", "cache_aware", "vLLM, published", "throughput", "Simulated"):
        assert text in drawn
    assert drawn == picture(played, sweep, "a machine")


def test_days_are_played_once_and_told_whole() -> None:
    options = SimulationOptions(programs=4, warmup_s=0, measured_s=60)
    played = Days((1, 2), SchedulingSettings())
    with ThreadPoolExecutor(2) as pool:
        played.play(pool, "small", options, ["pinned", "adaptive"])
        first = played.played["small", "pinned"]
        played.play(pool, "the same", options, ["pinned"])
    assert played.played["the same", "pinned"] is first
    del played.played["the same", "pinned"]
    told = played.as_json()
    assert [(one["router"], one["seed"]) for one in told["days"]] == [
        ("pinned", 1),
        ("pinned", 2),
        ("adaptive", 1),
        ("adaptive", 2),
    ]
    assert told["days"][0]["steps_per_min"] == first[0].steps_per_min > 0


def test_the_command_wants_two_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "1"])
    assert "2 seeds" in capsys.readouterr().err


def test_every_picture_that_the_page_shows_is_there() -> None:
    folder = Path(__file__).parent.parent / "bench"
    page = (folder / "README.md").read_text(encoding="utf-8")
    for sweep in SWEEPS:
        picture_of_it = f"results/simulated-{sweep.name}.svg"
        assert (picture_of_it in page) == (folder / picture_of_it).is_file()


def test_every_ablation_changes_a_default_and_is_a_sound_setting() -> None:
    whole = SchedulingSettings().model_dump()
    for piece, differs in PIECES.items():
        without = SchedulingSettings.model_validate(differs).model_dump()
        changed = {name for name in whole if whole[name] != without[name]}
        assert changed == set(differs), piece
