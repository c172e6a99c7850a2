"""The measuring instruments: their arithmetic, their bodies and their mock worker."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from bench.bodies import AGENT_BYTES, SESSIONS, UNIQUE_MARK, write_bodies
from bench.measure import Sample
from bench.processes import Process, free_port, wait_until_answers
from bench.real_sglang import Run
from bench.real_sglang import report as report_of_real_sglang
from bench.relay_report import report
from bench.results import Results
from bench.tables import replace_section, table
from bench.token_agents import Workload


def sample(cpu_s: float | None, requests: int = 1000, p50_us: float = 100) -> Sample:
    return Sample(requests, seconds=2, failures=0, p50_us=p50_us, p99_us=200, cpu_s=cpu_s)


def test_a_ratio_is_taken_within_each_round_before_the_median() -> None:
    results = Results(rounds=3, seconds=1, memory_prompts=0)
    # The machine was ten times slower in the second round, for both.
    for turn, (ours, theirs) in enumerate([(1.0, 2.0), (10.0, 40.0), (1.0, 1.0)]):
        results.samples[turn, "ours", "small"] = sample(ours)
        results.samples[turn, "theirs", "small"] = sample(theirs)

    assert results.ratio("ours", "theirs", "small", lambda s: s.cpu_us) == 0.5
    assert results.median("ours", "small", lambda s: s.cpu_us) == 1000.0


def test_a_system_without_samples_has_no_figure() -> None:
    results = Results(rounds=1, seconds=1, memory_prompts=0)
    results.samples[0, "ours", "small"] = sample(1.0)
    results.samples[0, "direct", "small"] = sample(None)

    assert results.ratio("ours", "theirs", "small", lambda s: s.cpu_us) is None
    assert results.ratio("ours", "direct", "small", lambda s: s.cpu_us) is None
    assert results.added("ours", "direct", "small", lambda s: s.p50_us) == 0


def test_a_target_that_is_missed_is_reported_as_missed() -> None:
    results = Results(rounds=1, seconds=1, memory_prompts=10)
    results.samples[0, "thunder-router adaptive", "small-64"] = sample(0.80)
    results.samples[0, "sglang-router round_robin", "small-64"] = sample(1.00)
    results.resident_bytes["thunder-router adaptive"] = 80_000_000, 120_000_000

    text = report(results)

    assert "≤ 0.75× | 0.80× | no |" in text
    assert "≤ 150 MB | 120 MB | yes |" in text


def test_arms_on_a_real_engine_are_compared_with_the_best_gate_of_their_round() -> None:
    def runs(arm: str, *seconds: float) -> list[Run]:
        return [Run(arm, s, 0.5, 1000, 2160 / s, 1.0, s - 2, s / 100) for s in seconds]

    measured = [
        *runs("off, gate of 2", 48.0, 50.0, 49.0),
        *runs("off, gate of 4", 40.0, 70.0, 30.0),
        *runs("adaptive", 42.0, 41.0, 99.0),
    ]
    text = report_of_real_sglang(
        {
            "provenance": "today",
            "workload": asdict(Workload()),
            "runs": [asdict(run) for run in measured],
        }
    )

    assert "| off, gate of 2 | 48.0 / 50.0 / 49.0 | 1.20 |" in text
    assert (
        "| adaptive | 42.0 / 41.0 / 99.0 | 1.05 | 0.50 | 1,000 | 51.4 | 1.0 | 40.0 | 0.99 |" in text
    )
    assert "from\n500 to 1,250 tokens" in text


def test_bodies_have_their_sizes_and_conversations_only_grow(tmp_path: Path) -> None:
    bodies = write_bodies(tmp_path)

    assert 150 < bodies.small.stat().st_size < 300
    assert AGENT_BYTES <= bodies.agent.stat().st_size < 1.1 * AGENT_BYTES
    assert bodies.agent.read_text().count(UNIQUE_MARK) == 1
    first, second = (
        json.loads((bodies.conversation / f"{number:04d}.json").read_text())
        for number in (5, SESSIONS + 5)
    )
    assert first["program_id"] == second["program_id"] == "program-5"
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert len(list(bodies.conversation.iterdir())) == bodies.conversation_files


def test_a_table_replaces_only_its_own_section(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n")

    replace_section(page, "x", table(["k", "v"], [["one", "1"]]))

    assert page.read_text() == (
        "a\n<!-- x: begin -->\n| k | v |\n| --- | ---: |\n| one | 1 |\n<!-- x: end -->\nb\n"
    )
    with pytest.raises(ValueError, match="no section 'y'"):
        replace_section(page, "y", "")


def test_the_mock_worker_answers_and_streams_and_is_ended_by_id(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "bench.mock_worker", "--port", str(port)]
    command += ["--chunks", "3", "--interval-ms", "1"]
    url = f"http://127.0.0.1:{port}"
    with Process(command, cores=sorted(os.sched_getaffinity(0)), log=tmp_path / "log") as worker:
        wait_until_answers(f"{url}/health", worker)

        plain = _post(url, {"messages": []})
        streamed = _post(url, {"stream": True, "stream_options": {"include_usage": True}})

        assert json.loads(plain)["usage"]["prompt_tokens_details"] == {"cached_tokens": 90}
        events = [line.removeprefix("data: ") for line in streamed.split("\n\n") if line]
        texts = [json.loads(event)["choices"][0]["delta"]["content"] for event in events[:3]]
        assert all(text.isdigit() for text in texts)
        assert texts == sorted(texts)
        assert json.loads(events[3])["choices"][0]["finish_reason"] == "stop"
        assert json.loads(events[4])["usage"]["completion_tokens"] == 20
        assert events[5] == "[DONE]"
        assert worker.cpu_seconds() > 0
        assert worker.resident_bytes() > 1_000_000
    assert not worker.alive


def _post(url: str, body: object) -> str:
    request = Request(f"{url}/v1/chat/completions", data=json.dumps(body).encode())
    with urlopen(request, timeout=10) as answer:
        return bytes(answer.read()).decode()
