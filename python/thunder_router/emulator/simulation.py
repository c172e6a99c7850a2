"""Whole days in virtual time: what a router would make of a workload on given engines.

The engine model is the emulated worker's, the scheduler is the real one, and a virtual hour takes a
second or so. Every router meets the same programs under the same seed, so differences are its own.
All figures are simulated; none was measured on a GPU.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from thunder_router import _core
from thunder_router._core import SimulationReport, workloads
from thunder_router.config import SchedulingSettings
from thunder_router.emulator.models import engine_model, models
from thunder_router.emulator.traces import Session, load
from thunder_router.errors import ConfigError
from thunder_router.scheduling.core import scheduler_config

__all__ = [
    "ROUTERS",
    "SimulationOptions",
    "SimulationReport",
    "check_router",
    "models",
    "simulate",
    "workloads",
]

ROUTERS: Final = {
    "off": "the scheduler's own gateway: a program stays on its worker, nothing is held",
    "paper": "the scheduler as published (arXiv 2602.13692)",
    "adaptive": "the scheduler's default",
    "pinned": "first come, first served on the worker that a program began on, as vLLM",
    "cache_aware": "longest prefix unless load is uneven, as sglang-router's cache_aware",
    "thunder_agent": "the public code of ThunderAgent",
    "ttl": "KV is pinned for a second after a turn, whoever waits, as Continuum",
    "bound": "no router: what it would be if restores were free",
}
"""The scheduler's policies, and what they are compared with."""


def _numbers(value: Any) -> Any:
    """`1,2` as a flag gives it."""
    return value.split(",") if isinstance(value, str) else value


def _spans(value: Any) -> Any:
    """`600:900,1200:1500` as a flag gives it."""
    if not isinstance(value, str):
        return value
    return [tuple(span.split(":")) for span in value.split(",")]


Seconds = Annotated[int, Field(ge=0)]


class SimulationOptions(BaseModel):
    """One simulated cluster and what runs on it. The only home of these defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    workload: str = "mini-swe"
    """One of `workloads()`, or a file: a trace, a journal, a request log."""
    model: str = "glm-4.6"
    """One of `models()`, or a TOML file of constants."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 1
    """Engines, one rank each."""
    programs: Annotated[int, Field(ge=1, le=1_000_000)] = 96
    """Alive at any time, over all workers. The command takes several: 24,48,96."""
    warmup_s: Annotated[int, Field(ge=0)] = 900
    """Virtual seconds before anything counts."""
    measured_s: Annotated[int, Field(ge=1)] = 1800
    """Virtual seconds that count."""
    worker_capacity: Annotated[
        tuple[Annotated[int, Field(gt=0)], ...], BeforeValidator(_numbers)
    ] = ()
    """KV tokens: one number for all workers, or one for each, as in 615000,300000; none: the
    model's own."""
    lose_worker: Annotated[tuple[tuple[Seconds, Seconds], ...], BeforeValidator(_spans)] = ()
    """The last worker is lost and comes back empty, as in 900:1200: virtual seconds from the
    beginning."""
    hicache_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Host tier as a multiple of the device's tokens; 0: none."""
    write_policy: Literal["write_through", "write_back"] = "write_through"
    """When KV is copied to the host tier."""
    page_size: Annotated[int, Field(ge=1)] = 1
    """Tokens of a page."""
    sessions: bool = False
    """Workers run with --enable-session-radix-cache."""
    never_release: bool = False
    """Programs do not say when they end."""
    tool_scale: Annotated[float, Field(ge=0)] = 1.0
    """Tools take so many times as long."""
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    """What requests declare; engines reserve for it."""

    @field_validator("worker_capacity")
    @classmethod
    def _one_or_one_each(cls, given: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        workers = info.data.get("workers", len(given))
        if len(given) not in (0, 1, workers):
            raise ValueError(f"{len(given)} given for {workers} workers")
        return given

    @property
    def capacities(self) -> list[int]:
        """KV tokens of each worker; empty: the model's own."""
        given = list(self.worker_capacity)
        return given * self.workers if len(given) == 1 else given


def check_router(router: str) -> None:
    """Passes one of `ROUTERS`.

    Raises:
        ConfigError: it is none.
    """
    if router not in ROUTERS:
        raise ConfigError(f"no router {router!r}; known: {', '.join(ROUTERS)}")


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
    check_router(router)
    chosen: str | _core.SchedulerConfig = router
    if router not in _core.baselines():
        chosen = scheduler_config(scheduling.model_copy(update={"policy": router}))
    return _core.simulate(
        workload=_workload(options.workload),
        model=engine_model(options.model),
        router=chosen,
        workers=options.workers,
        capacities=options.capacities,
        outages=[(options.workers - 1, lost, back) for lost, back in options.lose_worker],
        programs=options.programs,
        seed=seed,
        warmup_s=options.warmup_s,
        measured_s=options.measured_s,
        hicache_ratio=options.hicache_ratio,
        write_policy=options.write_policy,
        page_tokens=options.page_size,
        sessions=options.sessions,
        releases=not options.never_release,
        tool_scale=options.tool_scale,
        max_tokens=options.max_tokens,
    )


def _workload(workload: str) -> str | list[Session]:
    path = Path(workload)
    if workload in workloads():
        return workload
    if not path.suffix and not path.exists():
        known = ", ".join(workloads())
        raise ConfigError(f"no workload {workload!r}; known: {known}, or a file")
    return load(path).sessions
