"""Reads SGLang's answers, from 0.5.6 up, of both front ends.

Nothing here asks: bytes come in, what they say comes out, and no bytes make it raise. A version
newer than any known is read by the fields it still has.

Source: SGLANG.md §1 and sglang-versions.md, from the published wheels 0.5.4 to 0.5.23 and answers
recorded from real servers.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime

from thunder_router.workers.exposition import Sample, samples
from thunder_router.workers.feeds import sglang_feeds
from thunder_router.workers.lenient import count, flag, items, mapping, number, parse_json, text
from thunder_router.workers.observations import (
    Facts,
    Gauges,
    HostTier,
    ModelFacts,
    RankGauges,
    RankLoad,
)
from thunder_router.workers.report import (
    CacheHits,
    Capabilities,
    Engine,
    ModelReport,
    WritePolicy,
)

__all__ = ["facts", "gauges", "get_load", "loads", "model_facts", "version_tuple"]

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)

MAX_RANKS = 1024
"""More DP ranks than this are garbage."""


def version_tuple(version: str | None) -> tuple[int, ...] | None:
    """`0.5.23.post1` as `(0, 5, 23)`; `None` for what does not begin with three numbers."""
    found = _VERSION.match(version or "")
    return tuple(int(part) for part in found.groups()) if found else None


def facts(body: bytes) -> Facts | None:
    """`/server_info` or `/get_server_info`; `None` if it is not SGLang's.

    The answer carries the worker's API keys in clear. Only named fields leave this function.
    """
    args = mapping(parse_json(body))
    if not {"model_path", "max_total_num_tokens", "internal_states"} & args.keys():
        return None
    rust = args.get("frontend") == "rust"
    engine = Engine.SGLANG_RUST if rust else Engine.SGLANG
    version = text(args.get("version"))
    states = list(items(args.get("internal_states")))[:MAX_RANKS]
    memory = [mapping(state.get("memory_usage")) for state in states]
    each = count(args.get("max_total_num_tokens"))
    ranks = count(args.get("dp_size")) or len(states) or None
    name = text(args.get("served_model_name")) or text(args.get("model_path"))
    disaggregation = text(args.get("disaggregation_mode"))
    return Facts(
        engine=engine,
        version=version,
        models=(ModelReport(name, count(args.get("context_length"))),) if name else (),
        ranks=min(ranks, MAX_RANKS) if ranks else None,
        page_size=count(args.get("page_size")) or None,
        device_tokens=tuple((count(m.get("token_capacity")) or each) or None for m in memory)
        or ((each or None,) if each else ()),
        swa_tokens=tuple(count(m.get("token_capacity_swa")) or None for m in memory),
        kv_pool_gib=next((number(m.get("kvcache")) for m in memory), None) or None,
        hicache=flag(args.get("enable_hierarchical_cache")),
        host=_host_tier(args),
        capabilities=_capabilities(args, rust=rust, version=version_tuple(version)),
        weight_version=text(args.get("weight_version")),
        incarnation=_incarnation(args.get("startup_time")),
        disaggregation=None if disaggregation == "null" else disaggregation,
        feeds=sglang_feeds(args, ranks or 1),
    )


def _host_tier(args: Mapping[str, object]) -> HostTier:
    policy = args.get("hicache_write_policy")
    staging_only = args.get("hicache_host_memory_mode") == "buffer_only"
    return HostTier(
        ratio=0.0 if staging_only else number(args.get("hicache_ratio")),
        size_gb=None if staging_only else number(args.get("hicache_size")) or None,
        policy=next((known for known in WritePolicy if known == policy), None),
        storage_backend=text(args.get("hicache_storage_backend")),
    )


def _capabilities(
    args: Mapping[str, object], *, rust: bool, version: tuple[int, ...] | None
) -> Capabilities:
    python = not rust
    since = version or ()
    events = mapping(args.get("kv_events"))
    sessions = python and flag(args.get("enable_session_radix_cache")) is True
    return Capabilities(
        session_radix=sessions,
        close_session=sessions,
        priority_scheduling=flag(args.get("enable_priority_scheduling")) is True,
        priority_eviction=args.get("radix_eviction_policy") == "priority",
        abort=True,
        cache_report=python and flag(args.get("enable_cache_report")) is True,
        cached_token_details=python and since >= (0, 5, 9),
        load_publishing=count(events.get("load_endpoint_port_base")) is not None,
        kv_events=bool(events) or text(args.get("kv_events_config")) is not None,
        metrics=flag(args.get("enable_metrics")) is True,
        anthropic=python and since >= (0, 5, 9),
        pause=python,
        data_parallel_header=since >= (0, 5, 10),
    )


def _incarnation(startup: object) -> str | None:
    """The measured start-up times differ between any two starts to the nanosecond."""
    if not isinstance(startup, dict) or not startup:
        return None
    try:
        whole = json.dumps(startup, sort_keys=True)
    except (RecursionError, ValueError):
        return None
    return hashlib.blake2s(whole.encode("utf-8", "replace"), digest_size=8).hexdigest()


def model_facts(body: bytes) -> ModelFacts:
    """`/model_info` or `/get_model_info`."""
    found = mapping(parse_json(body))
    listed = found.get("architectures")
    return ModelFacts(
        model=text(found.get("served_model_name")) or text(found.get("model_path")),
        architecture=text(listed[0] if isinstance(listed, list) and listed else None),
        weight_version=text(found.get("weight_version")),
    )


def _epoch_s(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(text(stamp) or "").timestamp()
    except (ValueError, OverflowError):
        return None


def loads(body: bytes) -> tuple[RankLoad, ...] | None:
    """`/v1/loads`, ranks in order; `None` if it is not that."""
    answer = parse_json(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("loads"), list):
        return None
    answered_at_s = _epoch_s(answer.get("timestamp"))
    found: dict[int, RankLoad] = {}
    for place, item in enumerate(items(answer["loads"])):
        rank = count(item.get("dp_rank"))
        rank = place if rank is None else rank
        if rank >= MAX_RANKS:
            continue
        taken_at_s = number(item.get("timestamp"))
        age_s = None
        if taken_at_s is not None and answered_at_s is not None:
            age_s = max(0.0, answered_at_s - taken_at_s)
        found[rank] = RankLoad(
            rank=rank,
            running=count(item.get("num_running_reqs")),
            waiting=count(item.get("num_waiting_reqs")),
            in_flight_tokens=count(item.get("num_used_tokens")),
            device_tokens=count(item.get("max_total_num_tokens")) or None,
            snapshot_age_s=age_s,
            snapshot_at_s=taken_at_s,
            prefilled_tokens=count(item.get("total_prefill_uncached_tokens")),
            prefill_us=count(item.get("total_prefill_busy_us")),
        )
    return tuple(found[rank] for rank in sorted(found))


def get_load(body: bytes) -> tuple[RankLoad, ...] | None:
    """The older `/get_load`; `None` if it is not that.

    Its `num_reqs` counts waiting requests too, and `num_tokens` their prompts, so tokens in flight
    are known only while nothing waits.
    """
    answer = parse_json(body)
    if not isinstance(answer, list):
        return None
    found: dict[int, RankLoad] = {}
    for place, item in enumerate(items(answer)):
        rank = count(item.get("dp_rank"))
        rank = place if rank is None else rank
        if rank >= MAX_RANKS:
            continue
        both, waiting = count(item.get("num_reqs")), count(item.get("num_waiting_reqs"))
        running = both - waiting if both is not None and waiting is not None else None
        found[rank] = RankLoad(
            rank=rank,
            running=running if running is None or running >= 0 else None,
            waiting=waiting,
            in_flight_tokens=count(item.get("num_tokens")) if waiting == 0 else None,
        )
    return tuple(found[rank] for rank in sorted(found))


_GAUGES = {
    "sglang:max_total_num_tokens": "device_tokens",
    "sglang:page_size": "page_size",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:num_used_tokens": "in_flight_tokens",
    "sglang:kv_evictable_tokens": "evictable_tokens",
    "sglang:hicache_host_used_tokens": "host_used_tokens",
    "sglang:hicache_host_total_tokens": "host_tokens",
    "sglang:max_total_num_tokens_swa": "swa_tokens",
}
_POOL = "sglang:kv_cache_memory_usage_gb"
_CONFIG = "sglang:cache_config_info"
_CACHED = "sglang:cached_tokens_total"
_RETRACTED = "sglang:num_retracted_requests_total"
_PROMPTS = "sglang:prompt_tokens_total"
_WANTED = frozenset({*_GAUGES, _POOL, _CONFIG, _CACHED, _RETRACTED, _PROMPTS})


def gauges(body: bytes) -> Gauges:
    """`/metrics`; empty where nothing in it is SGLang's."""
    found = samples(body, _WANTED)
    ranks: dict[int, dict[str, int]] = {}
    pools: dict[int, float] = {}
    for name, field in _GAUGES.items():
        for rank, value in _by_rank(found.get(name, [])).items():
            if (whole := count(value)) is not None:
                ranks.setdefault(rank, {})[field] = whole
    for rank, value in _by_rank(found.get(_POOL, [])).items():
        if value > 0:
            pools[rank] = value
    for sample in found.get(_CONFIG, []):  # 0.5.10 says the page size only here
        if (page := count(sample.labels.get("page_size"))) is not None:
            for known in ranks.values():
                known.setdefault("page_size", page)
    return Gauges(
        ranks={
            rank: RankGauges(
                **{k: v for k, v in known.items() if v or k not in _NEVER_ZERO},
                kv_pool_gib=pools.get(rank),
            )
            for rank, known in sorted(ranks.items())
        },
        cache_hits=_cache_hits(found.get(_CACHED, [])),
        retractions=_total(found.get(_RETRACTED, [])),
        prompt_tokens=_total(found.get(_PROMPTS, [])),
    )


_NEVER_ZERO = frozenset({"device_tokens", "page_size", "swa_tokens"})


def _by_rank(lines: list[Sample]) -> dict[int, float]:
    """One value per DP rank: that of its first TP and PP rank, over all priorities.

    With priority scheduling each gauge comes once per priority and once, with an empty label, in
    all. TP and PP ranks of one DP rank hold shards of the same tokens, so they never add up.
    """
    best: dict[int, tuple[tuple[int, int], float]] = {}
    for line in lines:
        if line.labels.get("priority", ""):
            continue
        rank = count(line.labels.get("dp_rank", "0"))
        if rank is None or rank >= MAX_RANKS:
            continue
        shard = (
            count(line.labels.get("pp_rank", "0")) or 0,
            count(line.labels.get("tp_rank", "0")) or 0,
        )
        if rank not in best or shard < best[rank][0]:
            best[rank] = (shard, line.value)
    return {rank: value for rank, (_, value) in best.items()}


def _total(lines: list[Sample]) -> int | None:
    return count(sum(line.value for line in lines)) if lines else None


def _cache_hits(lines: list[Sample]) -> CacheHits | None:
    if not lines:
        return None
    tiers: dict[str, list[Sample]] = {}
    for line in lines:  # before 0.5.10 there was one unlabelled tier
        tiers.setdefault(line.labels.get("cache_source", "device"), []).append(line)
    return CacheHits(
        device=_total(tiers.get("device", [])),
        host=_total(tiers.get("host", [])),
        storage=_total(tiers.get("storage", [])),
    )
