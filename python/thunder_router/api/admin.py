"""Health, readiness, metrics, and who we are.

`/liveness` says that the process answers, `/readiness` that it takes work: some worker is ready and
the router is not about to stop. `/health` says both to a script (its status) and, to people, how
the scheduler, the workers and the environments are. Probes need no key.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, Response

from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.pool import Pool

__all__ = ["VERSION", "Health", "routes"]

VERSION: Final = version("thunder-router")
_NOT_READY: Final = 503


@dataclass(slots=True)
class Health:
    """What `/health` looks at.

    Attributes:
        driver: The scheduler's shell.
        policy: The policy in force.
        worker_name: A worker's name, by its number.
        rooms: Further parts by name; each gives a JSON object about itself.
        stopping: The router takes no new work any more.
    """

    driver: Driver
    policy: str
    worker_name: Callable[[int], str]
    rooms: dict[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)
    stopping: bool = False

    @property
    def ready(self) -> bool:
        """It takes work."""
        seats = (seat for pool in self.driver.pools for seat in pool.seats)
        return not self.stopping and any(seat.ready for seat in seats)

    def report(self) -> dict[str, Any]:
        """Everything; the first part has ThunderAgent's names."""
        sizes = [pool.look()[0].counts() for pool in self.driver.pools]
        total = {key: sum(size[key] for size in sizes) for key in sizes[0]}
        workers = [view for pool in self.driver.pools for view in _views(pool)]
        return {
            "status": "ok" if self.ready else "stopping" if self.stopping else "no worker is ready",
            "router_mode": "default" if self.policy == "off" else "tr",
            "scheduling_enabled": self.policy != "off",
            "programs_count": total["programs"],
            "reasoning_count": sum(view["reasoning"] for view in workers),
            "acting_count": sum(view["acting"] for view in workers),
            "paused_count": total["paused"],
            "profile_enabled": False,
            "version": VERSION,
            "scheduler": {
                "policy": self.policy,
                **total,
                "core_failures": sum(p.counts["core_failure"] for p in self.driver.pools),
                "served_plainly": sum(p.counts["plain"] for p in self.driver.pools),
            },
            "environments": {"environments": "off"},
            "workers": [{"name": self.worker_name(view["worker"]), **view} for view in workers],
            **{name: room() for name, room in self.rooms.items()},
        }


def routes(health: Health, scrape: Callable[[], bytes], content_type: str) -> APIRouter:
    """The routes. `scrape` gives the metrics as `content_type`."""
    router = APIRouter(tags=["router"])

    @router.get("/")
    async def name() -> dict[str, str]:
        """Name and version."""
        return {"name": "thunder-router", "version": VERSION}

    @router.get("/health")
    async def get_health(response: Response) -> dict[str, Any]:
        """200 where work is taken, else 503; the body says how everything is."""
        if not health.ready:
            response.status_code = _NOT_READY
        return health.report()

    @router.get("/liveness")
    async def liveness() -> dict[str, str]:
        """The process answers."""
        return {"status": "alive"}

    @router.get("/readiness")
    async def readiness(response: Response) -> dict[str, str]:
        """200 where work is taken, else 503."""
        if not health.ready:
            response.status_code = _NOT_READY
        return {"status": "ready" if health.ready else "not ready"}

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus' text format."""
        return Response(scrape(), media_type=content_type)

    return router


_FIELDS: Final = (
    "worker",
    "rank",
    "state",
    "device_tokens",
    "host_tokens",
    "charged_tokens",
    "shared_tokens",
    "free_tokens",
    "margin_tokens",
    "programs",
    "reasoning",
    "acting",
    "in_flight",
)


def _views(pool: Pool) -> list[dict[str, Any]]:
    core, _ = pool.look()
    return [{name: getattr(view, name) for name in _FIELDS} for view in core.workers()]
