"""The typed face of the native scheduler: the only scheduling module that imports `_core`.

What crosses here: settings become a `SchedulerConfig` in one place, and the seven decisions are one
union, to be handled with `match` and `assert_never` so that a new one does not type-check until it
is dealt with.
"""

from typing import assert_never

from thunder_router._core import (
    Admit,
    Expire,
    Hold,
    Pause,
    Prepare,
    ProgramView,
    Reject,
    Restore,
    Scheduler,
    SchedulerConfig,
    TenantView,
    WorkerView,
)
from thunder_router.config import SchedulingSettings
from thunder_router.errors import NoWorkerError, OversizeError, RejectedError, ThunderError

__all__ = [
    "Admit",
    "Decision",
    "Expire",
    "Hold",
    "Pause",
    "Prepare",
    "ProgramView",
    "Reject",
    "Restore",
    "Scheduler",
    "SchedulerConfig",
    "TenantView",
    "WorkerView",
    "new_scheduler",
    "rejection",
    "scheduler_config",
]

Decision = Admit | Hold | Reject | Pause | Restore | Prepare | Expire


def new_scheduler(settings: SchedulingSettings) -> Scheduler:
    """A scheduler that knows no program and no worker yet.

    Raises:
        ConfigError: two settings contradict each other.
    """
    return Scheduler(scheduler_config(settings))


def scheduler_config(settings: SchedulingSettings) -> SchedulerConfig:
    """Seconds become milliseconds; everything else keeps its name and value.

    Raises:
        ConfigError: two settings contradict each other.
    """
    return SchedulerConfig(
        policy=settings.policy,
        tick_ms=_ms(settings.tick_s),
        queue_limit=settings.queue_limit,
        hold_limit_ms=_ms(settings.hold_limit_s),
        no_worker_limit_ms=_ms(settings.no_worker_limit_s),
        paper_tick_ms=_ms(settings.paper_tick_s),
        paper_half_life_ms=_ms(settings.paper_half_life_s),
        paper_lambda_max=settings.paper_lambda_max,
        paper_lambda_min=settings.paper_lambda_min,
        event_driven=settings.event_driven,
        shared_prefix=settings.shared_prefix,
        origin_affinity=settings.origin_affinity,
        growth_steps_paused=settings.growth_steps_paused,
        growth_steps_new=settings.growth_steps_new,
        margin_min=settings.margin_min,
        margin_max=settings.margin_max,
        displacement_eta=settings.displacement_eta,
        lease_ms=_ms(settings.lease_s),
        lease_min_ms=_ms(settings.lease_min_s),
        idle_timeout_ms=_ms(settings.idle_timeout_s),
        aimd=settings.aimd,
        aimd_raise_above=settings.aimd_raise_above,
        aimd_lower_below=settings.aimd_lower_below,
        aimd_cap=settings.aimd_cap,
        reservation_ms=_ms_or_off(settings.reservation_s),
        time_slice_ms=_ms_or_off(settings.time_slice_s),
        time_slice_restore_factor=settings.time_slice_restore_factor,
        mark_running_above=settings.mark_running_above,
        host_tier=settings.host_tier,
        weight_sync_timeout_ms=_ms(settings.weight_sync_timeout_s),
    )


def rejection(decision: Reject) -> ThunderError:
    """What a rejected request raises."""
    match decision.kind:
        case "queue_full" | "hold_limit":
            return RejectedError(decision.reason, retry_after_s=decision.retry_after_ms / 1000)
        case "oversize":
            return OversizeError(decision.reason)
        case "no_worker":
            return NoWorkerError(decision.reason)
        case _:
            assert_never(decision.kind)


def _ms(seconds: float) -> int:
    """Whole milliseconds; what is not zero stays at least one."""
    return max(1, round(seconds * 1000)) if seconds > 0 else 0


def _ms_or_off(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(seconds)
