"""The demo: the same runs for every policy, honest sums, two views, and a quick run."""

import asyncio
import json
import subprocess
import sys
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from bench.demo.agent import Agent, Clock
from bench.demo.fleet import Scale
from bench.demo.phase import Phase
from bench.demo.tally import Tally
from bench.demo.view import live_view
from bench.demo.workload import MAX_STEPS, draw_run

ROOT = Path(__file__).parent.parent


def test_the_same_seed_draws_the_same_runs_and_another_seed_others() -> None:
    assert draw_run(1, 2, 3) == draw_run(1, 2, 3)
    assert draw_run(1, 2, 3) != draw_run(2, 2, 3)
    assert draw_run(1, 2, 3) != draw_run(1, 3, 3)


def test_runs_have_the_shape_they_claim() -> None:
    runs = [draw_run(0, slot, number) for slot in range(200) for number in (0, 1)]

    assert all(6 <= len(run.steps) <= MAX_STEPS for run in runs)
    assert all(run.first_step < len(run.steps) for run in runs)
    assert {run.first_step for run in runs[1::2]} == {0}
    steps = [step for run in runs for step in run.steps]
    outputs = sorted(step.output_tokens for step in steps)
    assert 180 < outputs[len(outputs) // 2] < 220
    mean_tool_s = sum(step.tool_s for step in steps) / len(steps)
    assert 1.2 < mean_tool_s < 1.7


def test_only_what_was_computed_before_counts_as_computed_again() -> None:
    tally = Tally()
    tally.step_ended(waited_s=1, prompt_tokens=1000, cached_tokens=400, known_tokens=0)
    assert tally.recomputed_tokens == 0
    # The program had 1,100 tokens, 300 of them were still there; 200 are new.
    tally.step_ended(waited_s=9, prompt_tokens=1300, cached_tokens=300, known_tokens=1100)
    assert tally.recomputed_tokens == 800
    # More was found than the program itself had left: a shared prefix.
    tally.step_ended(waited_s=2, prompt_tokens=1500, cached_tokens=1500, known_tokens=1400)
    assert tally.recomputed_tokens == 800

    assert tally.hit_rate == pytest.approx(2200 / 3800)
    assert tally.recomputed_per_step == pytest.approx(800 / 3)
    assert tally.longest_wait_s == 9


def test_the_tallies_of_all_agents_add_up_and_their_longest_wait_stands() -> None:
    one = Tally(steps=1, prompt_tokens=10, cached_tokens=5, longest_wait_s=3)
    other = Tally(steps=2, prompt_tokens=20, programs_finished=1, longest_wait_s=8)

    total = Tally.total([one, other])
    total.measured_s = 30

    assert total == Tally(3, 1, 30, 5, 0, 8, 30)
    assert total.steps_per_minute == 6


def test_an_agent_sends_back_what_it_was_given_and_releases_its_program() -> None:
    async def scenario() -> list[httpx.Request]:
        requests: list[httpx.Request] = []
        released = asyncio.Event()

        def answer(request: httpx.Request) -> httpx.Response:
            requests.append(request)
            if request.url.path == "/programs/release":
                released.set()
            usage = {"prompt_tokens": 10, "completion_tokens": 2}
            message = {"role": "assistant", "content": f"answer {len(requests)}"}
            return httpx.Response(200, json={"choices": [{"message": message}], "usage": usage})

        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
            agent = Agent(0, 0, client, Clock(speed=1e9))
            task = asyncio.create_task(agent.work())
            await released.wait()
            task.cancel()
        return requests

    requests = asyncio.run(scenario())
    run = draw_run(0, 0, 0)
    turns = [request for request in requests if request.url.path == "/v1/chat/completions"]
    turns = turns[: len(run.steps) - run.first_step]
    conversations = [json.loads(turn.content)["messages"] for turn in turns]

    assert {turn.headers["x-thunder-program-id"] for turn in turns} == {run.name}
    for number, (before, after) in enumerate(pairwise(conversations), start=1):
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": f"answer {number}"}
    release = requests[len(turns)]
    assert release.url.path == "/programs/release"
    assert json.loads(release.content) == {"program_id": run.name}


def phase_of(*agent_phases: Any) -> Phase:
    """A phase with agents that stand like this; `held` ones wait in the router."""
    client = httpx.AsyncClient()
    agents = []
    programs = {}
    for slot, agent_phase in enumerate(agent_phases):
        agent = Agent(slot, 0, client, Clock(speed=1))
        agent.phase = "model" if agent_phase == "held" else agent_phase
        programs[agent.run.name] = {"waiting": int(agent_phase == "held")}
        agents.append(agent)
    scale = Scale(1, len(agents), None, speed=1, warm_up_s=0, measure_s=10)
    reading = {"value": 250_000}
    rank = {"in_flight_tokens": reading, "evictable_tokens": None, "device_tokens": reading}
    worker = {"load": 3, "report": {"ranks": [rank]}}
    phase = Phase("adaptive", scale, Clock(speed=1), agents, counting=True)
    phase.workers, phase.programs = [worker, {"load": 0, "report": None}], programs
    return phase


def test_the_plain_view_tells_held_programs_from_those_at_the_model() -> None:
    console = Console(file=StringIO(), width=160, force_terminal=False)
    with live_view(console) as show:
        show(phase_of("model", "held", "held", "tool"))

    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 model  1 tool  2 held" in said
    assert said.startswith("adaptive")


def test_the_live_view_draws_workers_and_every_program() -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)
    with live_view(console) as show:
        show(phase_of("model", "held", "tool", "starting"))

    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "KV 250k of 250k tokens, 3 running" in said
    assert "KV 0k of 0k tokens, 0 running" in said
    assert "█ ░ ▒ · " in said


@pytest.mark.e2e
@pytest.mark.timeout(120)
def test_the_quick_demo_runs_to_its_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.demo", "--quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "Emulated engines" in done.stdout
    assert "steps a minute" in done.stdout
