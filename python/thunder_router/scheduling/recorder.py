"""A core that writes down what goes in and what comes out.

`Recorder` has the core's event methods, calls them, and hands each accepted event to a sink as one
record: milliseconds, name, arguments. A tick's record carries the decisions. The same records fed
to an empty core give the same decisions, which is what `replay` relies on. An event that the core
refuses changed nothing, so it is not written.
"""

from collections.abc import Callable
from typing import Final, assert_never

from thunder_router.scheduling.core import (
    Admit,
    Decision,
    Expire,
    Hold,
    Pause,
    Prepare,
    ProgramView,
    Reject,
    Restore,
    Scheduler,
    TenantView,
    WorkerView,
)

__all__ = ["BEGIN", "TICK", "Core", "Record", "Recorder", "as_row", "retell"]

Scalar = str | int | float | bool | None
Row = list[Scalar]
Record = tuple[int, str, dict[str, Scalar] | list[Row]]
"""Milliseconds, event name, and its arguments; for `tick`, the decisions instead."""

BEGIN: Final = "begin"
TICK: Final = "tick"


def as_row(decision: Decision) -> Row:
    """One decision as a flat list: its kind, its fields, its reason."""
    match decision:
        case Admit(request, worker, rank):
            return ["admit", request, worker, rank, decision.reason]
        case Hold(request):
            return ["hold", request, decision.reason]
        case Reject(request, kind, retry_after_ms):
            return ["reject", request, kind, retry_after_ms, decision.reason]
        case Pause(program, worker, rank):
            return ["pause", program, worker, rank, decision.reason]
        case Restore(program, worker, rank):
            return ["restore", program, worker, rank, decision.reason]
        case Prepare(program, expected_wait_ms):
            return ["prepare", program, expected_wait_ms, decision.reason]
        case Expire(program):
            return ["expire", program, decision.reason]
        case _:
            assert_never(decision)


class Recorder:
    """A scheduler whose events and decisions go to `write` as well.

    It begins with a record of its own: from there on the core is a fresh one.
    """

    def __init__(self, core: Scheduler, write: Callable[[Record], None]) -> None:
        self._core = core
        self._write = write
        write((0, BEGIN, {}))

    # The methods below are those of `Scheduler`; `_core.pyi` is their manual.

    def worker_up(
        self,
        worker: int,
        rank: int,
        *,
        device_tokens: int | None,
        host_tokens: int = 0,
        write_back: bool = False,
        prefill_us_per_token: float,
        prefill_ns_per_token2: float,
        load_back_us_per_token: float,
        sessions: bool,
        now_ms: int,
    ) -> None:
        """See `Scheduler.worker_up`."""
        arguments: dict[str, Scalar] = {
            "worker": worker,
            "rank": rank,
            "device_tokens": device_tokens,
            "host_tokens": host_tokens,
            "write_back": write_back,
            "prefill_us_per_token": prefill_us_per_token,
            "prefill_ns_per_token2": prefill_ns_per_token2,
            "load_back_us_per_token": load_back_us_per_token,
            "sessions": sessions,
        }
        self._core.worker_up(
            worker,
            rank,
            device_tokens=device_tokens,
            host_tokens=host_tokens,
            write_back=write_back,
            prefill_us_per_token=prefill_us_per_token,
            prefill_ns_per_token2=prefill_ns_per_token2,
            load_back_us_per_token=load_back_us_per_token,
            sessions=sessions,
            now_ms=now_ms,
        )
        self._write((now_ms, "worker_up", arguments))

    def worker_unready(self, worker: int, now_ms: int) -> None:
        """See `Scheduler.worker_unready`."""
        self._core.worker_unready(worker, now_ms)
        self._write((now_ms, "worker_unready", {"worker": worker}))

    def worker_draining(self, worker: int, now_ms: int) -> None:
        """See `Scheduler.worker_draining`."""
        self._core.worker_draining(worker, now_ms)
        self._write((now_ms, "worker_draining", {"worker": worker}))

    def worker_down(self, worker: int, now_ms: int) -> None:
        """See `Scheduler.worker_down`."""
        self._core.worker_down(worker, now_ms)
        self._write((now_ms, "worker_down", {"worker": worker}))

    def kv_flushed(self, worker: int, now_ms: int) -> None:
        """See `Scheduler.kv_flushed`."""
        self._core.kv_flushed(worker, now_ms)
        self._write((now_ms, "kv_flushed", {"worker": worker}))

    def weight_sync_begin(self, now_ms: int) -> None:
        """See `Scheduler.weight_sync_begin`."""
        self._core.weight_sync_begin(now_ms)
        self._write((now_ms, "weight_sync_begin", {}))

    def weight_sync_end(self, now_ms: int) -> None:
        """See `Scheduler.weight_sync_end`."""
        self._core.weight_sync_end(now_ms)
        self._write((now_ms, "weight_sync_end", {}))

    def arrive(
        self,
        request: int,
        *,
        program: str | None,
        group: str | None = None,
        tenant: str | None = None,
        weight: int = 1,
        prompt_tokens: int,
        prefix: int | None = None,
        now_ms: int,
    ) -> None:
        """See `Scheduler.arrive`."""
        self._core.arrive(
            request,
            program=program,
            group=group,
            tenant=tenant,
            weight=weight,
            prompt_tokens=prompt_tokens,
            prefix=prefix,
            now_ms=now_ms,
        )
        arguments: dict[str, Scalar] = {
            "request": request,
            "program": program,
            "group": group,
            "prompt_tokens": prompt_tokens,
            "prefix": prefix,
        }
        if tenant is not None:
            arguments |= {"tenant": tenant, "weight": weight}
        self._write((now_ms, "arrive", arguments))

    def bounced(self, request: int, now_ms: int) -> None:
        """See `Scheduler.bounced`."""
        self._core.bounced(request, now_ms)
        self._write((now_ms, "bounced", {"request": request}))

    def progress(self, request: int, decoded_tokens: int, now_ms: int) -> None:
        """See `Scheduler.progress`."""
        self._core.progress(request, decoded_tokens, now_ms)
        self._write((now_ms, "progress", {"request": request, "decoded_tokens": decoded_tokens}))

    def finished(
        self,
        request: int,
        *,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None = None,
        cached_host_tokens: int | None = None,
        tool: str | None = None,
        now_ms: int,
    ) -> None:
        """See `Scheduler.finished`."""
        self._core.finished(
            request,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            cached_host_tokens=cached_host_tokens,
            tool=tool,
            now_ms=now_ms,
        )
        arguments: dict[str, Scalar] = {
            "request": request,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "cached_tokens": cached_tokens,
            "cached_host_tokens": cached_host_tokens,
            "tool": tool,
        }
        self._write((now_ms, "finished", arguments))

    def failed(self, request: int, now_ms: int) -> None:
        """See `Scheduler.failed`."""
        self._core.failed(request, now_ms)
        self._write((now_ms, "failed", {"request": request}))

    def cancelled(self, request: int, now_ms: int) -> None:
        """See `Scheduler.cancelled`."""
        self._core.cancelled(request, now_ms)
        self._write((now_ms, "cancelled", {"request": request}))

    def release(self, program: str, now_ms: int) -> bool:
        """See `Scheduler.release`."""
        known = self._core.release(program, now_ms)
        self._write((now_ms, "release", {"program": program}))
        return known

    def pause(self, program: str, now_ms: int) -> None:
        """See `Scheduler.pause`."""
        self._core.pause(program, now_ms)
        self._write((now_ms, "pause", {"program": program}))

    def restore(self, program: str, now_ms: int) -> None:
        """See `Scheduler.restore`."""
        self._core.restore(program, now_ms)
        self._write((now_ms, "restore", {"program": program}))

    def remember(
        self,
        program: str,
        *,
        group: str | None,
        context_tokens: int,
        worker: int | None,
        rank: int | None,
        idle_ms: int,
        operator: bool = False,
        now_ms: int,
    ) -> None:
        """See `Scheduler.remember`."""
        self._core.remember(
            program,
            group=group,
            context_tokens=context_tokens,
            worker=worker,
            rank=rank,
            idle_ms=idle_ms,
            operator=operator,
            now_ms=now_ms,
        )
        arguments: dict[str, Scalar] = {
            "program": program,
            "group": group,
            "context_tokens": context_tokens,
            "worker": worker,
            "rank": rank,
            "idle_ms": idle_ms,
            "operator": operator,
        }
        self._write((now_ms, "remember", arguments))

    def tick(self, now_ms: int) -> list[Decision]:
        """See `Scheduler.tick`. Ticks that decide nothing are written too: they are events."""
        decisions = self._core.tick(now_ms)
        self._write((now_ms, TICK, [as_row(decision) for decision in decisions]))
        return decisions

    def next_tick_ms(self, now_ms: int) -> int | None:
        """See `Scheduler.next_tick_ms`."""
        return self._core.next_tick_ms(now_ms)

    def program(self, program: str, now_ms: int) -> ProgramView | None:
        """See `Scheduler.program`."""
        return self._core.program(program, now_ms)

    def programs(self, now_ms: int) -> list[ProgramView]:
        """See `Scheduler.programs`."""
        return self._core.programs(now_ms)

    def workers(self) -> list[WorkerView]:
        """See `Scheduler.workers`."""
        return self._core.workers()

    def tenants(self) -> list[TenantView]:
        """See `Scheduler.tenants`."""
        return self._core.tenants()

    def counts(self) -> dict[str, int]:
        """See `Scheduler.counts`."""
        return self._core.counts()

    def check(self) -> None:
        """See `Scheduler.check`."""
        self._core.check()


Core = Scheduler | Recorder


def retell(view: ProgramView, core: Core, now_ms: int) -> None:
    """Tells a core of a program as another core knew it."""
    core.remember(
        view.program,
        group=view.group,
        context_tokens=view.context_tokens,
        worker=view.worker,
        rank=view.rank,
        idle_ms=view.idle_ms,
        operator=view.operator,
        now_ms=now_ms,
    )
