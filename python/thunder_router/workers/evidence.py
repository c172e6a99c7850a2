"""What two looks at a worker, one after the other, prove about it."""

from thunder_router.workers.compose import Seen
from thunder_router.workers.observations import RankLoad
from thunder_router.workers.report import WorkerReport

__all__ = ["idle_at", "newest_snapshot", "same_engine", "work_done"]


def same_engine(before: Seen, after: Seen) -> bool | None:
    """Whether the same run of the engine gave both answers; `None` where nothing tells.

    A run says its start-up times from SGLang 0.5.16 on; before that, counters that went back give a
    restart away, and ones that went on prove nothing.
    """
    for old, new in _counters(before, after):
        if new < old:
            return False
    first = before.facts.value.incarnation if before.facts else None
    second = after.facts.value.incarnation if after.facts else None
    if first is None or second is None:
        return None
    return first == second


def _counters(before: Seen, after: Seen) -> list[tuple[int, int]]:
    """Counters that only grow while an engine runs, old and new.

    What was published may come a little later than what was asked for, so each is compared with its
    own kind only.
    """
    pairs: list[tuple[int | None, int | None]] = []
    if before.loads and after.loads and before.loads.source is after.loads.source:
        old = {line.rank: line.prefilled_tokens for line in before.loads.value}
        pairs += [(old.get(line.rank), line.prefilled_tokens) for line in after.loads.value]
    if before.gauges and after.gauges:
        pairs.append((before.gauges.value.prompt_tokens, after.gauges.value.prompt_tokens))
    return [(old, new) for old, new in pairs if old is not None and new is not None]


def newest_snapshot(lines: tuple[RankLoad, ...]) -> float | None:
    """When the newest of these load snapshots was taken, by the engine's clock."""
    return max((n.snapshot_at_s for n in lines if n.snapshot_at_s is not None), default=None)


def work_done(lines: tuple[RankLoad, ...]) -> tuple[object, ...] | None:
    """Something that changes whenever tokens are computed; `None` where nothing runs."""
    if not any(line.running for line in lines):
        return None
    return tuple((line.in_flight_tokens, line.prefilled_tokens) for line in lines)


def idle_at(report: WorkerReport) -> float | None:
    """When it was seen to run nothing and to hold nothing waiting; `None` if that is not so now."""
    seen_at: list[float] = []
    for rank in report.ranks:
        for part in (rank.running, rank.waiting):
            if part is None or part.value != 0 or part.stale:
                return None
            seen_at.append(part.at_s)
    return min(seen_at, default=None)
