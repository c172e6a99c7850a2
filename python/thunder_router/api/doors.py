"""The worker registry as the relay wants it: where workers listen, and what they must not get."""

from thunder_router.relay.contract import Endpoint, Fault
from thunder_router.workers import endpoint as known
from thunder_router.workers.registry import Registry

__all__ = ["Doors"]


class Doors:
    """`relay.contract.Workers` over a registry. One endpoint object per worker until it changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[int, tuple[known.Endpoint, Endpoint]] = {}
        self.answered = registry.answered

    def endpoint(self, worker: int) -> Endpoint:
        """Where this worker listens.

        Raises:
            NoWorkerError: the worker is gone.
        """
        current = self._registry.endpoint(worker)
        made = self._made.get(worker)
        if made is None or made[0] is not current:
            made = self._made[worker] = (current, _for_relay(current))
        return made[1]

    def faulted(self, worker: int, fault: Fault) -> None:
        """It broke its side, as `fault` says."""
        self._registry.faulted(worker, fault)


def _for_relay(endpoint: known.Endpoint) -> Endpoint:
    return Endpoint(
        host=endpoint.host,
        port=endpoint.port,
        tls=endpoint.tls,
        prefix=endpoint.prefix,
        host_header=endpoint.host_header,
        authorization=endpoint.authorization,
        ranks=endpoint.ranks,
        drops=endpoint.drops,
        aborts_by_rid=endpoint.aborts_by_rid,
    )
