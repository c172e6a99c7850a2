"""The routers that are compared, and how each is started before workers whose time runs faster.

Every time that a router can be told is divided by the speed. What cannot be told is said here:
sglang-router's and smg's health checks and load monitors keep the wall's time. ThunderAgent is run
from a clone, unmodified but for one default (`published.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import console_script
from bench.scaled import scaled_settings
from bench.systems import METRICS_PORT_OFFSET, SGLANG_ROUTER, UnavailableError, virtual_environment

__all__ = ["ROUTERS", "Router", "Setting"]

SMG = "smg==1.13.0"
PUBLISHED_NEEDS = ("fastapi", "httpx", "uvicorn")
_CHECK_S = 5.0
_EVICTION_S = 60.0


@dataclass(frozen=True)
class Setting:
    """Where a router is started.

    Attributes:
        port: To serve on.
        workers: URLs.
        model: What they serve.
        speed: Engine seconds in a real one.
        scratch: A folder of its own.
        thunderagent: A clone of the public ThunderAgent, or None.
    """

    port: int
    workers: Sequence[str]
    model: str
    speed: float
    scratch: Path
    thunderagent: Path | None


@dataclass(frozen=True)
class Router:
    """One of them.

    Attributes:
        command: What starts it.
        ready: The path that answers 200 once it serves.
        releases: It takes `POST /programs/release`.
    """

    command: Callable[[Setting], list[str]]
    ready: str
    releases: bool


def _thunder_router(policy: str) -> Router:
    def command(setting: Setting) -> list[str]:
        settings = setting.scratch / "thunder.toml"
        settings.write_text(scaled_settings(setting.workers, setting.model, setting.speed))
        return [
            *(console_script("thunder-router"), "serve", "--config", str(settings)),
            *("--host", "127.0.0.1", "--port", str(setting.port)),
            *("--policy", policy, "--log-level", "warning"),
        ]

    return Router(command, "/readiness", releases=True)


def _gateway(requirement: str, *launch: str) -> Router:
    def command(setting: Setting) -> list[str]:
        python = virtual_environment(requirement)
        return [
            *(str(python), *launch),
            *("--host", "127.0.0.1", "--port", str(setting.port), "--policy", "cache_aware"),
            *("--eviction-interval-secs", str(max(1, round(_EVICTION_S / setting.speed)))),
            *("--worker-startup-check-interval", "1", "--log-level", "warn"),
            *("--prometheus-host", "127.0.0.1"),
            *("--prometheus-port", str(setting.port + METRICS_PORT_OFFSET)),
            *("--worker-urls", *setting.workers),
        ]

    return Router(command, "/readiness", releases=False)


def _published(setting: Setting) -> list[str]:
    if setting.thunderagent is None:
        raise UnavailableError("ThunderAgent is not here: clone it, and say --thunderagent FOLDER")
    python = virtual_environment(*PUBLISHED_NEEDS)
    launcher = Path(__file__).with_name("published.py")
    return [
        *(str(python), str(launcher), str(setting.thunderagent.resolve()), str(setting.speed)),
        *("--host", "127.0.0.1", "--port", str(setting.port), "--log-level", "warning"),
        *("--backends", ",".join(setting.workers), "--backend-type", "sglang"),
        *("--metrics", "--metrics-interval", str(_CHECK_S / setting.speed)),
        *("--scheduler-interval", str(_CHECK_S / setting.speed)),
    ]


ROUTERS = {
    "adaptive": _thunder_router("adaptive"),
    "paper": _thunder_router("paper"),
    "off": _thunder_router("off"),
    "sglang-router": _gateway(SGLANG_ROUTER, "-m", "sglang_router.launch_router"),
    "smg": _gateway(SMG, "-m", "smg", "launch"),
    "ThunderAgent": Router(_published, "/health", releases=True),
}
"""By the names that tables use; the first three are thunder-router's policies."""
