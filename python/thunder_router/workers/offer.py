"""What the scheduler is told of a worker: one offer per DP rank."""

from dataclasses import dataclass
from typing import Protocol

from thunder_router.config import WorkerEntry
from thunder_router.workers.costs import Costs, costs_of
from thunder_router.workers.report import WorkerReport, WritePolicy

__all__ = ["Offer", "SchedulerEvents", "offers_of"]


class SchedulerEvents(Protocol):
    """The scheduler's ear: what the driver does with worker life. Each call returns at once."""

    def worker_up(
        self,
        worker: int,
        rank: int,
        *,
        models: tuple[str, ...],
        device_tokens: int | None,
        host_tokens: int,
        write_back: bool,
        prefill_us_per_token: float,
        prefill_ns_per_token2: float,
        load_back_us_per_token: float,
        sessions: bool,
    ) -> None:
        """The rank serves, with this capacity; said again when any of it changes."""
        ...

    def worker_unready(self, worker: int) -> None:
        """It takes nothing new for now; its programs keep their places."""
        ...

    def worker_draining(self, worker: int) -> None:
        """Its programs leave as they turn."""
        ...

    def worker_down(self, worker: int) -> None:
        """Gone: its programs go elsewhere."""
        ...

    def kv_flushed(self, worker: int) -> None:
        """It dropped its KV cache."""
        ...

    def weight_sync_begin(self) -> None:
        """Admit nothing until the end."""
        ...

    def weight_sync_end(self) -> None:
        """Proceed, with no KV anywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One rank's capacity and costs, as `worker_up` takes them.

    Attributes:
        models: Names it answers to; empty where it could not say.
        device_tokens: KV cache capacity; `None`: not known.
        host_tokens: Host tier that can be counted on; 0 without one.
        write_back: The host tier adds to the device instead of mirroring it.
        sessions: The engine can be told which program's KV to drop first.
    """

    rank: int
    models: tuple[str, ...]
    device_tokens: int | None
    host_tokens: int
    write_back: bool
    costs: Costs
    sessions: bool

    def announce(self, worker: int, to: SchedulerEvents) -> None:
        """Tells the scheduler."""
        to.worker_up(
            worker,
            self.rank,
            models=self.models,
            device_tokens=self.device_tokens,
            host_tokens=self.host_tokens,
            write_back=self.write_back,
            prefill_us_per_token=self.costs.prefill_us_per_token,
            prefill_ns_per_token2=self.costs.prefill_ns_per_token2,
            load_back_us_per_token=self.costs.load_back_us_per_token,
            sessions=self.sessions,
        )


def offers_of(report: WorkerReport, entry: WorkerEntry) -> tuple[Offer, ...]:
    """The offers of a worker, in the order of its ranks.

    A host tier under `write_through_selective` holds what happened to be hit twice; counting on it
    would be a guess, so it offers none.
    """
    costs = costs_of(report, entry)
    models = tuple(model.id for model in report.models)
    sure = report.write_policy is not WritePolicy.SELECTIVE
    return tuple(
        Offer(
            rank=rank.rank,
            models=models,
            device_tokens=rank.device_tokens.value if rank.device_tokens else None,
            host_tokens=rank.host_tokens.value if rank.host_tokens and sure else 0,
            write_back=report.write_policy is WritePolicy.WRITE_BACK,
            costs=costs,
            sessions=report.capabilities.session_radix,
        )
        for rank in report.ranks
    )
