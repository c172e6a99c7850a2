"""mini-swe-agent, as its users run it, solves a task in a real container through the router.

The agent is the published package, unchanged, in a process of its own; the image is made from this
machine's programs (`image.py`); the answers are the emulated worker's, scripted: each command is
the reply to what the last one printed, so a turn that went missing would end the run elsewhere.
"""

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker
import pytest

from bench.processes import console_script
from e2e.image import image_archive
from e2e.stack import MODEL, Router, call, emulated_worker, eventually, served_router

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

STAND_INS = Path(__file__).parent / "stand_ins"
EXAMPLE = Path(__file__).parents[2] / "examples/mini-swe-agent"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /desk/answer.txt"
SCRIPT = [
    call("echo 6 times 7 > /desk/question.txt; echo question-written", match="What is 6 times 7"),
    call(
        "sed 's/.*/42 was found on/' /desk/question.txt > /desk/answer.txt\n"
        'echo "$HOSTNAME" >> /desk/answer.txt; echo answer-written',
        match="question-written",
    ),
    call(SUBMIT, match="answer-written"),
]
TURNS = len(SCRIPT)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(engine: docker.DockerClient) -> Iterator[str]:
    tag = f"thunder-test/agent:{uuid.uuid4().hex[:8]}"
    # A generator: an engine stops loading where it is not read to its end.
    list(engine.api.load_image(image_archive(tag, "thunder.test=e2e")))
    yield tag
    engine.images.remove(tag)


class Run:
    """One run of the agent against a router, with what must be gone after it."""

    def __init__(self, folder: Path, router: Router, engine: docker.DockerClient) -> None:
        self.id = f"run-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self._router = router
        self._engine = engine

    def config(self, cwd: str, **model: Any) -> Path:
        """A configuration file on top of the agent's own."""
        path = self.folder / "thunder.yaml"
        path.write_text(
            json.dumps(
                {
                    "model": {
                        "model_name": f"openai/{MODEL}",
                        "cost_tracking": "ignore_errors",
                        "model_kwargs": {
                            "api_base": f"{self._router.url}/v1",
                            "api_key": "unused",
                            **model,
                        },
                    },
                    "environment": {
                        "environment_class": "docker",
                        "cwd": cwd,
                        "run_args": [
                            *("--rm", "--init", "--pull", "never", "--network", "none"),
                            *("--hostname", "the-container", "--label", f"thunder.test={self.id}"),
                        ],
                    },
                }
            )
        )
        return path

    def agent(self, command: Sequence[str]) -> None:
        """Runs one of the agent's commands to its end."""
        environment = {
            **os.environ,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_GLOBAL_CONFIG_DIR": str(self.folder / "home"),
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONPATH": f"{STAND_INS}{os.pathsep}{EXAMPLE}",
            "THUNDER_ROUTER": self._router.url,
            "THUNDER_RUN_ID": self.id,
        }
        done = subprocess.run(
            [console_script(command[0]), *command[1:]],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]

    def assert_nothing_is_left(self) -> None:
        """The agent removes its containers in the background, so give it a while."""
        mine = {"label": f"thunder.test={self.id}"}
        eventually(
            lambda: not self._engine.containers.list(all=True, filters=mine), "containers are left"
        )


def test_the_package_is_the_one_the_facts_were_taken_from() -> None:
    assert version("mini-swe-agent") == "2.4.6"


def test_one_agent_solves_its_task(tmp_path: Path, engine: docker.DockerClient, image: str) -> None:
    with (
        emulated_worker(tmp_path, script=SCRIPT) as one,
        emulated_worker(tmp_path, script=SCRIPT) as other,
        served_router(tmp_path, [one.url, other.url]) as router,
    ):
        run = Run(tmp_path, router, engine)
        config = run.config("/desk")
        trajectory = tmp_path / "trajectory.json"
        run.agent(
            [
                *("mini", "-c", "mini.yaml", "-c", str(EXAMPLE / "single.yaml"), "-c", str(config)),
                *("-y", "--exit-immediately"),
                *("-c", f"environment.image={image}"),
                *("-t", "What is 6 times 7?", "-o", str(trajectory)),
            ]
        )

        info = json.loads(trajectory.read_text())["info"]
        assert info["exit_status"] == "Submitted"
        assert info["submission"] == "42 was found on\nthe-container\n"
        assert info["model_stats"]["api_calls"] == TURNS
        assert sorted([one.requests(), other.requests()]) == [0, TURNS]
        program = router.get("/programs/run7-task42")  # as the example names it
        assert program["step_count"] == TURNS
        assert program["in_flight"] == 0
        run.assert_nothing_is_left()


def test_a_batch_of_agents_solves_its_tasks_each_as_a_program_that_is_released(
    tmp_path: Path, engine: docker.DockerClient, image: str
) -> None:
    tasks = [
        {
            "instance_id": f"task-{number}",
            "image_name": image,
            "problem_statement": f"Task {number}. What is 6 times 7?",
        }
        for number in range(3)
    ]
    (tmp_path / "dev.json").write_text(json.dumps(tasks))
    journal = tmp_path / "journal.jsonl"
    with (
        emulated_worker(tmp_path, script=SCRIPT) as one,
        emulated_worker(tmp_path, script=SCRIPT) as other,
        served_router(tmp_path, [one.url, other.url], JOURNAL__PATH=str(journal)) as router,
    ):
        run = Run(tmp_path, router, engine)
        config = run.config("/desk")
        run.agent(
            [
                *("mini-extra", "swebench", "-c", "swebench.yaml"),
                *("-c", str(EXAMPLE / "thunder.yaml"), "-c", str(config)),
                *("--subset", str(tmp_path), "--split", "dev", "-w", "3"),
                *("-o", str(tmp_path / "out")),
            ]
        )

        answers = json.loads((tmp_path / "out" / "preds.json").read_text())
        assert {name: answer["model_patch"] for name, answer in answers.items()} == {
            task["instance_id"]: "42 was found on\nthe-container\n" for task in tasks
        }
        assert one.requests() + other.requests() == TURNS * len(tasks)
        assert router.get("/programs") == {}
        run.assert_nothing_is_left()
    programs = set(re.findall(rf'"({run.id}-[0-9a-f]+)"', journal.read_text()))
    assert len(programs) == len(tasks)
