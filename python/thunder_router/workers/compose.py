"""Puts the latest answers of a worker together into one `WorkerReport`.

Several endpoints say the same thing; the freshest and most specific wins, in this order: the
operator, `/v1/loads` (or `/get_load`), `/server_info`, `/metrics`, arithmetic. An idle engine
refreshes its gauges only every 30 s, so those of an idle rank are marked stale.

Source: SGLANG.md §1.3 and §2 (measured: a gauge kept 501 tokens for 30 s after its request ended
while `/v1/loads` said 0 at once).
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from thunder_router.config import WorkerEntry
from thunder_router.workers.hicache import (
    bytes_per_token,
    host_tokens_by_ratio,
    host_tokens_by_size,
    reach_tokens,
)
from thunder_router.workers.observations import Facts, Gauges, ModelFacts, RankGauges, RankLoad
from thunder_router.workers.report import (
    Engine,
    ModelReport,
    RankReport,
    Reading,
    Source,
    WorkerReport,
)

__all__ = ["SNAPSHOT_FRESH_S", "Seen", "compose"]

SNAPSHOT_FRESH_S = 2.0
"""A load snapshot older than this when the engine answered is stale: it takes one every step."""

PREFILL_SAMPLE_TOKENS = 50_000
"""Prefilled tokens below which the engine's own prefill clock is mostly start-up noise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """The latest answer of each endpoint."""

    facts: Reading[Facts] | None = None
    models: Reading[tuple[ModelReport, ...]] | None = None
    model_facts: Reading[ModelFacts] | None = None
    loads: Reading[tuple[RankLoad, ...]] | None = None
    gauges: Reading[Gauges] | None = None
    ready: Reading[bool] | None = None


def compose(seen: Seen, entry: WorkerEntry) -> WorkerReport:
    """The report that `seen` adds up to, with the operator's own numbers of `entry` on top."""
    facts = seen.facts.value if seen.facts else Facts(engine=Engine.UNKNOWN)
    gauges = seen.gauges.value if seen.gauges else Gauges()
    model = seen.model_facts.value if seen.model_facts else ModelFacts()
    loads = {load.rank: load for load in (seen.loads.value if seen.loads else ())}
    count = max(facts.ranks or 0, *(rank + 1 for rank in [*loads, *gauges.ranks]), 1)
    models = (seen.models.value if seen.models else ()) or facts.models
    if entry.model is not None and entry.model not in {model.id for model in models}:
        models = (ModelReport(entry.model, models[0].max_model_len if models else None), *models)
    report = WorkerReport(
        engine=facts.engine,
        version=facts.version,
        models=models,
        architecture=model.architecture,
        ranks=tuple(
            _rank(rank, seen, facts, loads.get(rank), gauges.ranks.get(rank), entry)
            for rank in range(count)
        ),
        write_policy=facts.host.policy if facts.hicache else None,
        storage_backend=facts.host.storage_backend if facts.hicache else None,
        capabilities=facts.capabilities,
        cache_hits=_reading(gauges.cache_hits, seen.gauges),
        retractions=_reading(gauges.retractions, seen.gauges),
        prefill_us_per_token=_prefill_cost(seen),
        ready=seen.ready,
        weight_version=_first(
            _reading(model.weight_version, seen.model_facts),
            _reading(facts.weight_version, seen.facts),
        ),
        incarnation=facts.incarnation,
        disaggregation=facts.disaggregation,
    )
    extra = replace(
        report.capabilities,
        header_overrides=report.capabilities.header_overrides or entry.header_overrides,
        readiness=seen.ready is not None and seen.ready.source is Source.READY,
    )
    return replace(report, capabilities=extra)


def _reading(
    value: T | None, origin: Reading[object] | None, *, stale: bool = False
) -> Reading[T] | None:
    """`value` as read from where `origin` was read."""
    if value is None or origin is None:
        return None
    return Reading(value, origin.source, origin.at_s, stale)


def _first(*readings: Reading[T] | None) -> Reading[T] | None:
    return next((reading for reading in readings if reading is not None), None)


def _at(values: tuple[int | None, ...], rank: int) -> int | None:
    """What is said of `rank`; what is said once holds for every rank."""
    if len(values) == 1:
        return values[0]
    return values[rank] if rank < len(values) else None


def _rank(
    rank: int,
    seen: Seen,
    facts: Facts,
    load: RankLoad | None,
    gauge: RankGauges | None,
    entry: WorkerEntry,
) -> RankReport:
    load, gauge = load or RankLoad(rank), gauge or RankGauges()
    frozen = load.snapshot_age_s is not None and load.snapshot_age_s > SNAPSHOT_FRESH_S
    lazy = facts.engine is not Engine.VLLM  # vLLM refreshes its gauges at every scrape
    idle = lazy and load.running in (0, None) and load.waiting in (0, None)
    page = _first(_reading(facts.page_size, seen.facts), _reading(gauge.page_size, seen.gauges))
    device = _first(
        _override(entry.capacity_tokens, seen),
        _reading(load.device_tokens, seen.loads),
        _reading(_at(facts.device_tokens, rank), seen.facts),
        _reading(gauge.device_tokens, seen.gauges),
    )
    host = _first(
        _override(entry.host_tokens, seen),
        _reading(gauge.host_tokens, seen.gauges),
        _host_by_flags(seen, facts, gauge, device, page),
    )
    reach = None
    if device is not None and host is not None:
        tokens = reach_tokens(device.value, host.value, facts.host.policy)
        if tokens is not None:
            reach = Reading(tokens, Source.COMPUTED, min(device.at_s, host.at_s))
    return RankReport(
        rank=rank,
        device_tokens=device,
        page_size=page,
        running=_first(
            _reading(load.running, seen.loads, stale=frozen),
            _reading(gauge.running, seen.gauges, stale=lazy),
        ),
        waiting=_first(
            _reading(load.waiting, seen.loads, stale=frozen),
            _reading(gauge.waiting, seen.gauges, stale=lazy),
        ),
        in_flight_tokens=_first(
            _reading(load.in_flight_tokens, seen.loads, stale=frozen),
            _reading(gauge.in_flight_tokens, seen.gauges, stale=lazy),
        ),
        evictable_tokens=_reading(gauge.evictable_tokens, seen.gauges, stale=idle),
        host_used_tokens=_reading(gauge.host_used_tokens, seen.gauges, stale=idle),
        host_tokens=host,
        swa_tokens=_first(
            _reading(_at(facts.swa_tokens, rank), seen.facts),
            _reading(gauge.swa_tokens, seen.gauges),
        ),
        reach_tokens=reach,
    )


def _override(value: int | None, seen: Seen) -> Reading[int] | None:
    at_s = seen.facts.at_s if seen.facts else 0.0
    return None if value is None else Reading(value, Source.SETTINGS, at_s)


def _host_by_flags(
    seen: Seen,
    facts: Facts,
    gauge: RankGauges,
    device: Reading[int] | None,
    page: Reading[int] | None,
) -> Reading[int] | None:
    """The host tier from the flags that size it: 0 where it is known to be off."""
    if seen.facts is None or facts.hicache is None:
        return None
    if not facts.hicache or facts.host.ratio == 0:
        return Reading(0, seen.facts.source, seen.facts.at_s)
    if device is None:
        return None
    page_size = page.value if page else 1
    tokens: int | None = None
    pool_gib = gauge.kv_pool_gib or facts.kv_pool_gib
    if facts.host.size_gb is not None:
        if pool_gib:
            each = bytes_per_token(pool_gib, device.value, page_size)
            tokens = host_tokens_by_size(facts.host.size_gb, each, page_size)
    elif facts.host.ratio is not None and facts.host.ratio > 0:
        tokens = host_tokens_by_ratio(device.value, facts.host.ratio, page_size)
    return None if tokens is None else Reading(tokens, Source.COMPUTED, seen.facts.at_s)


def _prefill_cost(seen: Seen) -> Reading[float] | None:
    """Mean µs per prefilled token, as the engine counted it since its start."""
    lines = seen.loads.value if seen.loads else ()
    tokens = sum(line.prefilled_tokens or 0 for line in lines)
    spent_us = sum(line.prefill_us or 0 for line in lines)
    if seen.loads is None or tokens < PREFILL_SAMPLE_TOKENS or spent_us == 0:
        return None
    return Reading(spent_us / tokens, seen.loads.source, seen.loads.at_s)
