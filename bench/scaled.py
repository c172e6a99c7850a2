"""The router's settings for engines whose time runs faster than the wall's.

The router's own times are of the wall, so they are divided by the speed: a lease of 30 s must mean
30 s to the programs. So is what prefill and load-back cost, which it weighs against waiting.
"""

from collections.abc import Iterable

from thunder_router.config import SchedulingSettings, WorkerSettings
from thunder_router.emulator.models import engine_model

__all__ = ["scaled_settings"]

ASKED_EVERY_S = 0.05
"""Workers are asked for their loads and health no more often, whatever the speed."""
_WORKER_TIMES = (
    *("loads_interval_s", "ready_interval_s", "metrics_interval_s", "retry_interval_s"),
    *("down_after_s", "hung_after_s", "unready_limit_s", "breaker_open_s"),
)
_COSTS = ("prefill_us_per_token", "prefill_ns_per_token2", "load_back_us_per_token")


def scaled_settings(workers: Iterable[str], model: str, speed: float) -> str:
    """A `thunder.toml` for workers at these URLs.

    Args:
        workers: URLs.
        model: Whose costs they have, as `engine_model` knows it.
        speed: Engine seconds in a real one.

    Raises:
        ConfigError: no such model.
    """
    scheduling = SchedulingSettings().model_dump()
    asking = WorkerSettings().model_dump()
    costs = engine_model(model)
    lines = ["[scheduling]"]
    lines += [
        f"{name} = {value / speed}"
        for name, value in scheduling.items()
        if name.endswith("_s") and value is not None
    ]
    lines.append("[workers]")
    lines += [f"{name} = {max(ASKED_EVERY_S, asking[name] / speed)}" for name in _WORKER_TIMES]
    for url in workers:
        lines += ["[[workers.entries]]", f'url = "{url}"']
        lines += [f"{name} = {getattr(costs, name) / speed}" for name in _COSTS]
    return "\n".join(lines) + "\n"
