"""The routers that are compared, and how each is started before workers whose time runs faster.

Every time that a router can be told is divided by the speed; the gateways take whole seconds, one
at least. ThunderAgent is run from a clone, unmodified but for one default (`published.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import console_script
from bench.scaled import scaled_settings
from bench.systems import METRICS_PORT_OFFSET, SGLANG_ROUTER, UnavailableError, virtual_environment

__all__ = ["ROUTERS", "Router", "Setting"]

SMG = "smg==1.13.0"
PUBLISHED_NEEDS = ("fastapi", "httpx", "uvicorn")
PUBLISHED_CHECK_S = 5.0
GATEWAY_TIMES = {
    "--eviction-interval-secs": 60.0,
    "--health-check-interval-secs": 60.0,
    "--cb-timeout-duration-secs": 60.0,
    "--cb-window-duration-secs": 120.0,
}
"""Defaults of both gateways, seconds."""
SMG_TIMES = GATEWAY_TIMES | {"--load-monitor-interval": 10.0}


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
        pace: Of the scenario's speed: what its CPU time for a step leaves it.
    """

    command: Callable[[Setting], list[str]]
    ready: str
    releases: bool
    pace: float = 1.0


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


def _gateway(requirement: str, launch: Sequence[str], defaults_s: Mapping[str, float]) -> Router:
    def command(setting: Setting) -> list[str]:
        python = virtual_environment(requirement)
        times = [
            word
            for flag, seconds in defaults_s.items()
            for word in (flag, str(max(1, round(seconds / setting.speed))))
        ]
        return [
            *(str(python), *launch),
            *("--host", "127.0.0.1", "--port", str(setting.port), "--policy", "cache_aware"),
            *("--worker-startup-check-interval", "1", "--log-level", "warn", *times),
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
    check_s = PUBLISHED_CHECK_S / setting.speed
    return [
        *(str(python), str(launcher), str(setting.thunderagent.resolve()), str(setting.speed)),
        *("--host", "127.0.0.1", "--port", str(setting.port), "--log-level", "warning"),
        *("--backends", ",".join(setting.workers), "--backend-type", "sglang"),
        *("--metrics", "--metrics-interval", str(check_s), "--scheduler-interval", str(check_s)),
    ]


ROUTERS = {
    "adaptive": _thunder_router("adaptive"),
    "paper": _thunder_router("paper"),
    "off": _thunder_router("off"),
    "sglang-router": _gateway(SGLANG_ROUTER, ["-m", "sglang_router.launch_router"], GATEWAY_TIMES),
    "smg": _gateway(SMG, ["-m", "smg", "launch"], SMG_TIMES),
    "ThunderAgent": Router(_published, "/health", releases=True, pace=0.5),
}
"""By the names that tables use; the first three are thunder-router's policies."""
