"""The processes of one phase: emulated workers and, in front of them, the router under a policy.

The engine's time runs `speed` times faster than the wall's, and the router's with it: see
`bench.scaled`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.processes import Process, console_script, free_port, wait_until_answers
from bench.scaled import scaled_settings

__all__ = ["Policy", "Scale", "fleet"]

Policy = Literal["off", "adaptive"]
MODEL = "glm-4.6"
"""The emulated worker's own preset: on eight H100."""


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    workers: int
    programs: int
    """At any time; one that ends is followed by the next."""
    capacity_tokens: int | None
    """KV cache of each worker; None: that of the emulated model on eight H100."""
    speed: float
    warm_up_s: float
    """Real seconds before counting begins."""
    measure_s: float
    """Real seconds that are counted."""


@contextmanager
def fleet(scale: Scale, policy: Policy, seed: int, folder: Path) -> Iterator[str]:
    """The router's URL, ready, with its workers behind it; all end with the context."""
    folder.mkdir()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_emulated_worker(scale, seed, folder)) for _ in range(scale.workers)
        ]
        settings = folder / "thunder.toml"
        settings.write_text(scaled_settings(workers, MODEL, scale.speed))
        port = free_port()
        command = [
            *(console_script("thunder-router"), "serve", "--config", str(settings)),
            *("--host", "127.0.0.1", "--port", str(port), "--policy", policy),
        ]
        url = f"http://127.0.0.1:{port}"
        router = stack.enter_context(Process(command, log=folder / "router.log"))
        wait_until_answers(f"{url}/readiness", router, timeout_s=30)
        yield url


@contextmanager
def _emulated_worker(scale: Scale, seed: int, folder: Path) -> Iterator[str]:
    port = free_port()
    command = [
        *(console_script("thunder-router"), "emulate", "--port", str(port)),
        *("--speed", str(scale.speed), "--bytes-per-token", "1", "--seed", str(seed)),
    ]
    if scale.capacity_tokens is not None:
        command += ["--capacity-tokens", str(scale.capacity_tokens)]
    url = f"http://127.0.0.1:{port}"
    with Process(command, log=folder / f"worker-{port}.log") as process:
        wait_until_answers(f"{url}/health", process, timeout_s=30)
        yield url
