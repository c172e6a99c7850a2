"""A real SGLang on this machine's CPU, with a model that is made here.

The engine lives in a virtual environment of its own (`make test-engine` installs it; 3 to 6 GB), by
default under `.engine/` in this repository: `THUNDER_ENGINE_VENV` names another. Recipe, stubs and
model maker are in `tests/engine/recipe`.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from bench.processes import Process, free_port, wait_until_answers

__all__ = ["CAPACITY_TOKENS", "HICACHE", "MODEL", "SESSIONS", "SGLang", "lacking", "sglang"]

HERE = Path(__file__).parent.parent
ENGINE = HERE / ".engine"
VENV = Path(os.environ.get("THUNDER_ENGINE_VENV") or ENGINE / "venv").absolute()
RECIPE = HERE / "tests" / "engine" / "recipe"

MODEL = "real-model"
CAPACITY_TOKENS = 4096
"""KV pool: small, so that a few programs fill it."""
START_S = 240.0
"""It takes half a minute on two idle cores."""

HICACHE = (
    *("--enable-hierarchical-cache", "--hicache-ratio", "2"),
    *("--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first"),
)
SESSIONS = ("--enable-session-radix-cache",)

Shape = Literal["tiny", "mid"]


def lacking() -> str | None:
    """What is missing here for a real engine; None where all is there."""
    return None if (VENV / "bin" / "python").exists() else f"no SGLang in {VENV}"


class SGLang:
    """A server that runs."""

    def __init__(self, url: str, process: Process) -> None:
        self.url = url
        self.process = process

    def ask(self, path: str, body: object = None, *, timeout_s: float = 30) -> Any:
        """Asks the engine itself, past any router: GET, or POST with a body.

        Raises:
            OSError: it is not there, or did not answer 200.
        """
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            text = answer.read()
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()

    def running(self) -> int:
        """Requests in its scheduler now, by its own account: running and waiting."""
        (rank,) = self.ask("/v1/loads?include=core")["loads"]
        return int(rank["num_running_reqs"] + rank["num_waiting_reqs"])


@contextmanager
def sglang(
    folder: Path,
    *options: str,
    shape: Shape = "tiny",
    port: int | None = None,
    cores: Sequence[int] | None = None,
) -> Iterator[SGLang]:
    """One server, ready; `options`: flags of SGLang's on top of what a CPU needs.

    Raises:
        RuntimeError: it did not start; the message has its last words.
    """
    port = port or free_port()
    command = [
        *(str(VENV / "bin" / "python"), "-m", "sglang.launch_server"),
        *("--model-path", str(_model(shape)), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native"),
        *("--sampling-backend", "pytorch", "--max-total-tokens", str(CAPACITY_TOKENS)),
        *("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
        *("--sleep-on-idle", "--enable-metrics", "--enable-cache-report"),
        *options,
    ]
    environment = {
        "PATH": f"{VENV / 'bin'}:{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(RECIPE / "stubs"),
        "HF_HUB_OFFLINE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        # A closed connection is looked for this often; the router must not depend on it.
        "SGLANG_REQUEST_STATE_WAIT_TIMEOUT": "60",
    }
    url = f"http://127.0.0.1:{port}"
    log = folder / f"sglang-{port}.log"
    with Process(command, log=log, cores=cores, environment=environment) as process:
        wait_until_answers(f"{url}/ready", process, timeout_s=START_S)
        yield SGLang(url, process)


def _model(shape: Shape) -> Path:
    """The model's folder, made if it is not there yet."""
    folder = ENGINE / "models" / shape
    if not (folder / "model.safetensors").exists():
        subprocess.run(
            [VENV / "bin" / "python", RECIPE / "make_model.py", shape, folder],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(RECIPE / "stubs"), "HF_HUB_OFFLINE": "1"},
        )
    return folder
