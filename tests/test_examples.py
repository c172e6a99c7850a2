"""The examples, run as a user runs them: each in a process of its own, through a real router.

What cannot be installed here is replaced by a stand-in that sends what the real client sends; the
launch files need GPUs, so only their syntax and the names of their flags are checked.
"""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.stack import MODEL, Router, Worker, emulated_worker, say, served_router

EXAMPLES = Path(__file__).parent.parent / "examples"
SHELL_FILES = sorted(EXAMPLES.rglob("*.sh"))
SERVER_INFO = Path(__file__).parent / "captures/workers/sglang-0.5.23-full/server_info.body"

LIST_FILES = {
    "match": "Which files are in (.+)\\?",
    "content": "Let me look.",
    "tool_calls": [{"name": "list_files", "arguments": {"folder": str(EXAMPLES)}}],
}
SCRIPT = [
    say("Paris.", match="capital of France"),
    say("Yes.", match="Are you sure"),
    LIST_FILES,
    say("There is a rollouts.py.", match="rollouts\\.py"),
    say("Dear reader,", match="first line of a letter"),
    say("this is a letter.", match="And the second"),
    say("A session of a coding agent.", match="coding agent"),
]

# What these clients are known to send, and no more than that: the shape of their one request.
CLAUDE = """
import json, os, sys, urllib.request
assert "ANTHROPIC_API_KEY" not in os.environ
request = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true",
    json.dumps({"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 50,
                "messages": [{"role": "user", "content": " ".join(sys.argv[1:])}]}).encode(),
    {"Authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"],
     "Content-Type": "application/json", "anthropic-version": "2023-06-01",
     "x-claude-code-session-id": "session-of-claude"},
)
print(json.load(urllib.request.urlopen(request, timeout=20))["content"][0]["text"])
"""
CODEX = """
import json, os, sys, tomllib, urllib.request
config = tomllib.load(open(os.environ["CODEX_HOME"] + "/config.toml", "rb"))
provider = config["model_providers"][config["model_provider"]]
assert provider["wire_api"] == "responses"
request = urllib.request.Request(
    sys.argv[1] + "/responses",
    json.dumps({"model": config["model"], "input": sys.argv[2], "stream": False}).encode(),
    {"Authorization": "Bearer " + os.environ[provider["env_key"]],
     "Content-Type": "application/json", "session-id": "session-of-codex"},
)
answer = json.load(urllib.request.urlopen(request, timeout=20))
print(answer["output"][0]["content"][0]["text"])
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    folder = tmp_path_factory.mktemp("workers")
    with ExitStack() as stack:
        yield [stack.enter_context(emulated_worker(folder, script=SCRIPT)) for _ in range(2)]


@pytest.fixture(scope="module")
def router(workers: list[Worker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    urls = [worker.url for worker in workers]
    with served_router(tmp_path_factory.mktemp("router"), urls, API_KEY="a key") as served:
        yield served


@pytest.fixture(scope="module")
def open_router(
    workers: list[Worker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Router]:
    """Without a key, as the examples are written."""
    urls = [worker.url for worker in workers]
    with served_router(tmp_path_factory.mktemp("open-router"), urls) as served:
        yield served


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def example(name: str, router: Router) -> str:
    return run([sys.executable, str(EXAMPLES / name)], THUNDER_ROUTER=router.url)


def stand_in(folder: Path, name: str, source: str) -> str:
    """Puts a program of that name on the PATH; returns the PATH."""
    program = folder / name
    program.write_text(f"#!{sys.executable}\n{source}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def served(workers: list[Worker], before: list[int]) -> list[int]:
    return sorted(worker.requests() - count for worker, count in zip(workers, before, strict=True))


@pytest.mark.e2e
def test_the_openai_example_answers_uses_its_tool_and_leaves_no_program(
    open_router: Router, workers: list[Worker]
) -> None:
    before = [worker.requests() for worker in workers]

    assert example("openai_client.py", open_router).splitlines() == [
        "by hand: Yes.",
        "with tools: There is a rollouts.py.",
    ]
    assert sum(served(workers, before)) == 4
    assert open_router.get("/programs") == {}


@pytest.mark.e2e
def test_the_anthropic_example_answers_whole_and_streamed_on_one_worker(
    open_router: Router, workers: list[Worker]
) -> None:
    before = [worker.requests() for worker in workers]

    assert example("anthropic_messages.py", open_router).splitlines() == [
        "whole: Dear reader,",
        "streamed: this is a letter.",
    ]
    assert served(workers, before) == [0, 2]
    assert open_router.get("/programs") == {}


@pytest.mark.e2e
def test_the_rollouts_example_makes_its_samples_and_leaves_no_program(
    open_router: Router, workers: list[Worker]
) -> None:
    before = [worker.requests() for worker in workers]
    lines = example("rollouts.py", open_router).splitlines()

    # Of 2 prompts 4 samples each, of 3 turns: 256 ids, then 32 generated and 4 of the tool a turn.
    tokens = 8 * (256 + 3 * (32 + 4))
    assert lines == [f"step {step}: 8 samples, {tokens} tokens" for step in range(2)]
    assert sum(served(workers, before)) == 2 * 8 * 3
    assert open_router.get("/programs") == {}


@pytest.mark.e2e
def test_claude_code_finds_the_router_and_its_session_is_a_program(
    router: Router, tmp_path: Path
) -> None:
    said = run(
        [str(EXAMPLES / "claude-code.sh"), "Hello from a coding agent"],
        PATH=stand_in(tmp_path, "claude", CLAUDE),
        THUNDER_ROUTER=router.url,
        THUNDER_API_KEY="a key",
        THUNDER_MODEL=MODEL,
        ANTHROPIC_API_KEY="of somebody else",
    )

    assert said == "A session of a coding agent.\n"
    assert known(router, "session-of-claude")["step_count"] == 1


@pytest.mark.e2e
def test_codex_finds_its_provider_and_its_session_is_a_program(
    router: Router, tmp_path: Path
) -> None:
    # Codex takes the base URL from the file; the test's router listens elsewhere.
    url = tomllib.loads((EXAMPLES / "codex/config.toml").read_text())["model_providers"]["thunder"]
    path = stand_in(tmp_path, "codex", CODEX)
    said = run(
        [
            str(tmp_path / "codex"),
            url["base_url"].replace("http://127.0.0.1:30000", router.url),
            "Hello from a coding agent",
        ],
        PATH=path,
        CODEX_HOME=str(EXAMPLES / "codex"),
        THUNDER_API_KEY="a key",
    )

    assert said == "A session of a coding agent.\n"
    assert known(router, "session-of-codex")["step_count"] == 1


def known(router: Router, program: str) -> Any:
    said = run(
        [
            sys.executable,
            "-c",
            "import sys, urllib.request as u;"
            "r = u.Request(sys.argv[1], headers={'x-api-key': 'a key'});"
            "print(u.urlopen(r, timeout=20).read().decode())",
            f"{router.url}/programs/{program}",
        ]
    )
    return json.loads(said)


def test_one_run_of_mini_swe_agent_names_the_same_program_everywhere() -> None:
    config = yaml.safe_load((EXAMPLES / "mini-swe-agent/single.yaml").read_text())

    program = config["model"]["model_kwargs"]["extra_body"]["program_id"]
    assert f"thunder.program_id={program}" in config["environment"]["run_args"]
    assert config["environment"]["environment_class"] == "docker"


@pytest.mark.parametrize("path", SHELL_FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_shell_file_is_executable_and_parses(path: Path) -> None:
    # An sdist carries no modes: only a checkout can say.
    assert os.access(path, os.X_OK) or not (EXAMPLES.parent / ".git").exists()
    for shell in ("bash", "sh"):
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted((EXAMPLES / "launch").glob("*.sh")), ids=lambda p: p.stem)
def test_a_launch_file_uses_only_flags_that_sglang_has_and_says_it_was_not_run(path: Path) -> None:
    """SGLang's `/server_info` shows every flag of its command line, by name."""
    text = path.read_text()
    flags = re.findall(r"^    --([a-z-]+)", text, re.MULTILINE)
    known_flags = json.loads(SERVER_INFO.read_text())

    assert len(flags) > 10
    assert [flag for flag in flags if flag.replace("-", "_") not in known_flags] == []
    assert "NOT RUN" in text
    assert "--enable-hierarchical-cache" in text


def test_every_example_is_in_the_list() -> None:
    listed = {
        EXAMPLES / name
        for name in re.findall(r"\]\(([^)#]+)\)", (EXAMPLES / "README.md").read_text())
    }
    assert [path for path in listed if not path.exists()] == []
    files = {path for path in EXAMPLES.rglob("*") if path.is_file()}
    files -= {path for path in files if "__pycache__" in path.parts}
    covered = {path for path in files if path in listed or path.parent in listed}
    assert files - covered == {EXAMPLES / "README.md"}
