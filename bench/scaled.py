"""The router's settings for engines whose time runs faster than the wall's.

The scheduler's own times are of the wall, so they are divided by the speed: a lease of 30 s must
mean 30 s to the programs. So is what prefill and load-back cost, which it weighs against waiting.
"""

from collections.abc import Iterable
from dataclasses import asdict

from thunder_router.config import SchedulingSettings
from thunder_router.workers.costs import family_costs

__all__ = ["scaled_settings"]


def scaled_settings(workers: Iterable[str], model: str, speed: float) -> str:
    """A `thunder.toml` for workers at these URLs.

    Args:
        workers: URLs.
        model: Whose costs they have, by its name.
        speed: Engine seconds in a real one.

    Raises:
        ValueError: nothing is known of the model's costs.
    """
    costs = family_costs(model)
    if costs is None:
        raise ValueError(f"no costs are known of {model!r}")
    defaults = SchedulingSettings().model_dump()
    times = {
        name: value / speed
        for name, value in defaults.items()
        if name.endswith("_s") and value is not None
    }
    lines = ["[scheduling]", *(f"{name} = {value}" for name, value in times.items())]
    lines += ["[workers]", "loads_interval_s = 0.1"]
    for url in workers:
        lines += ["[[workers.entries]]", f'url = "{url}"']
        lines += [f"{name} = {value / speed}" for name, value in asdict(costs).items()]
    return "\n".join(lines) + "\n"
