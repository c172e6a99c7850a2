"""Whole days in virtual time: what a router would make of a workload on given engines.

The engine model is the emulated worker's, the scheduler is the real one, and a virtual hour takes a
second or so. Every router meets the same programs under the same seed, so differences are its own.
All figures are simulated; none was measured on a GPU.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from thunder_router import _core
from thunder_router._core import Engine, SimulationReport, workloads
from thunder_router.config import SchedulingSettings
from thunder_router.errors import ConfigError
from thunder_router.scheduling.core import scheduler_config

__all__ = [
    "ROUTERS",
    "SimulationOptions",
    "SimulationReport",
    "models",
    "read_sessions",
    "simulate",
    "workloads",
]

Baseline = Literal["pinned", "cache_aware"]
ROUTERS: tuple[str, ...] = ("off", "paper", "adaptive", *get_args(Baseline))
"""The scheduler's policies, and what they are compared with."""


class SimulationOptions(BaseModel):
    """One simulated cluster and what runs on it. The only home of these defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    workload: str = "mini-swe"
    """One of `workloads()`."""
    recorded: Path | None = None
    """Recorded sessions to play instead, as JSON: a list of sessions, each a list of turns, each
    [prompt tokens, output tokens, tokens shared with the turn before, seconds until the next]."""
    model: str = "glm-4.6"
    """One of `models()`."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 1
    """Engines, one rank each."""
    programs: Annotated[int, Field(ge=1, le=1_000_000)] = 96
    """Alive at any time, over all workers."""
    warmup_s: Annotated[int, Field(ge=0)] = 900
    """Virtual seconds before anything counts."""
    measured_s: Annotated[int, Field(ge=1)] = 1800
    """Virtual seconds that count."""
    capacity_tokens: Annotated[int, Field(gt=0)] | None = None
    """KV tokens of a worker; None: the model's own."""
    hicache_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Host tier as a multiple of the device's tokens; 0: none."""
    write_policy: Literal["write_through", "write_back"] = "write_through"
    """When KV is copied to the host tier."""
    page_size: Annotated[int, Field(ge=1)] = 1
    """Tokens of a page."""
    sessions: bool = False
    """Workers run with --enable-session-radix-cache."""
    releases: bool = True
    """Programs say when they end."""
    tool_factor: Annotated[float, Field(ge=0)] = 1.0
    """Tools take so many times as long."""
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    """What requests declare; engines reserve for it."""


def models() -> list[str]:
    """Names of the models whose constants are known."""
    return Engine.models()


def read_sessions(path: Path) -> list[list[tuple[int, int, int, float]]]:
    """Recorded sessions from a file.

    Raises:
        ConfigError: it cannot be read, or is not as `SimulationOptions.recorded` says.
    """
    try:
        sessions = json.loads(path.read_text(encoding="utf-8"))
        return [
            [(int(p), int(o), int(r), float(s)) for p, o, r, s, *_ in session]
            for session in sessions
        ]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: not a list of sessions of turns: {error}") from error


def simulate(
    options: SimulationOptions, router: str, scheduling: SchedulingSettings, *, seed: int
) -> SimulationReport:
    """Plays one day. Blocks for about a second per simulated worker-hour; frees the interpreter.

    Args:
        options: The cluster and its programs.
        router: One of `ROUTERS`.
        scheduling: The scheduler's constants; `router` overrides their policy.
        seed: Which day.

    Raises:
        ConfigError: a name is unknown, or values contradict each other.
    """
    if router not in ROUTERS:
        raise ConfigError(f"no router {router!r}; known: {', '.join(ROUTERS)}")
    chosen: Baseline | _core.SchedulerConfig
    match router:
        case "pinned":
            chosen = "pinned"
        case "cache_aware":
            chosen = "cache_aware"
        case policy:
            chosen = scheduler_config(scheduling.model_copy(update={"policy": policy}))
    return _core.simulate(
        workload=options.workload if options.recorded is None else read_sessions(options.recorded),
        model=options.model,
        router=chosen,
        workers=options.workers,
        programs=options.programs,
        seed=seed,
        warmup_s=options.warmup_s,
        measured_s=options.measured_s,
        capacity_tokens=options.capacity_tokens,
        hicache_ratio=options.hicache_ratio,
        write_policy=options.write_policy,
        page_tokens=options.page_size,
        sessions=options.sessions,
        releases=options.releases,
        tool_factor=options.tool_factor,
        max_tokens=options.max_tokens,
    )
