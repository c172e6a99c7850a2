"""The driver's and its cores' figures as metric families, read when somebody scrapes."""

from collections.abc import Iterator

from thunder_router.observe.metrics import Gauge, Sample
from thunder_router.scheduling.driver import Driver

__all__ = ["of"]


def of(driver: Driver) -> list[Gauge]:
    """All families over this driver."""

    def decisions() -> Iterator[Sample]:
        for pool in driver.pools:
            for kind, count in pool.counts.items():
                yield Sample((pool.name, kind), count)

    def sizes(what: str) -> Gauge:
        def read() -> Iterator[Sample]:
            for pool in driver.pools:
                yield Sample((pool.name,), pool.look()[0].counts()[what])

        return Gauge(what, _SIZES[what], ("model",), read)

    def seats(name: str, field: str, about: str) -> Gauge:
        def read() -> Iterator[Sample]:
            for pool in driver.pools:
                for view in pool.look()[0].workers():
                    value = getattr(view, field)
                    if value is not None:
                        labels = (pool.name, str(view.worker), str(view.rank))
                        yield Sample(labels, float(value))

        return Gauge(name, about, ("model", "worker", "rank"), read)

    def tenants(name: str, field: str, about: str) -> Gauge:
        def read() -> Iterator[Sample]:
            for pool in driver.pools:
                for view in pool.look()[0].tenants():
                    if view.tenant is not None:
                        yield Sample((pool.name, view.tenant), float(getattr(view, field)))

        return Gauge(name, about, ("model", "tenant"), read)

    return [
        Gauge(
            "decisions",
            "What the scheduler decided, and what went wrong in deciding, by kind.",
            ("model", "kind"),
            decisions,
            counter=True,
        ),
        *(sizes(what) for what in _SIZES),
        *(seats(*row) for row in _SEATS),
        *(tenants(*row) for row in _TENANTS),
    ]


_SIZES = {
    "programs": "Programs known.",
    "active": "Programs that have a place.",
    "paused": "Programs that had one and wait for their next.",
    "waiting": "Requests held.",
    "in_flight": "Requests at a worker.",
    "workers": "Workers' DP ranks that are not down.",
}
_TENANTS = (
    ("tenant_charged_tokens", "charged_tokens", "Tokens charged to a tenant's programs."),
    ("tenant_programs", "programs", "Programs of a tenant."),
    ("tenant_waiting", "waiting", "Programs of a tenant in the global queue."),
)
_SEATS = (
    ("worker_capacity_tokens", "device_tokens", "KV cache capacity of the device, in tokens."),
    ("worker_host_tokens", "host_tokens", "Host tier's capacity, in tokens."),
    ("worker_charged_tokens", "charged_tokens", "Tokens charged to programs."),
    ("worker_shared_tokens", "shared_tokens", "Of those, prefixes that programs share."),
    ("worker_free_tokens", "free_tokens", "Capacity that nobody is charged for, in tokens."),
    ("worker_margin_tokens", "margin_tokens", "Kept free for growth, in tokens."),
    ("worker_programs", "programs", "Programs that have their place here."),
    ("worker_in_flight", "in_flight", "Requests in flight here."),
)
