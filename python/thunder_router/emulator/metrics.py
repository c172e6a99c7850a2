"""`/metrics`: the names and labels of SGLang 0.5.23 that a router or a dashboard reads.

Gauges are fresh, where the real ones may be thirty seconds old. Times are virtual.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from thunder_router._core import EngineCounts, EngineLoads
from thunder_router.emulator.info import hit_rate
from thunder_router.emulator.tally import Histogram
from thunder_router.emulator.worker import Worker

__all__ = ["render"]


def render(worker: Worker) -> bytes:
    """The metrics page."""
    registry = CollectorRegistry()
    registry.register(_Page(worker))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.tokenizer = {"engine_type": "unified", "model_name": worker.options.model}
        self.scheduler = self.tokenizer | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}

    def collect(self) -> Iterator[Metric]:
        """All families, computed now."""
        yield from self._requests()
        yield from self._engines()

    def _requests(self) -> Iterator[Metric]:
        tally = self.worker.tally
        counters = {
            "prompt_tokens": tally.prompt_tokens,
            "generation_tokens": tally.generation_tokens,
            "num_aborted_requests": tally.aborted,
        }
        for name, value in counters.items():
            yield _counter(name, [(self.tokenizer, value)])
        streaming = [
            (self.tokenizer | {"is_streaming": str(stream).lower(), "priority": ""}, count)
            for stream, count in tally.requests.items()
        ]
        yield _counter("num_requests", streaming)
        cached = {"device": tally.cached_device_tokens, "host": tally.cached_host_tokens}
        sources = [(self.tokenizer | {"cache_source": tier}, n) for tier, n in cached.items()]
        yield _counter("cached_tokens", sources)
        histograms = {
            "time_to_first_token_seconds": tally.time_to_first_token,
            "e2e_request_latency_seconds": tally.e2e_request_latency,
            "inter_token_latency_seconds": tally.inter_token_latency,
            "queue_time_seconds": tally.queue_time,
            "prompt_tokens_histogram": tally.prompt_lengths,
            "generation_tokens_histogram": tally.output_lengths,
        }
        for name, histogram in histograms.items():
            yield _histogram(name, self.tokenizer, histogram)

    def _engines(self) -> Iterator[Metric]:
        ranks = [
            (self._rank_labels(rank), load, engine.counts())
            for rank, (load, engine) in enumerate(
                zip(self.worker.loads(), self.worker.engines, strict=True)
            )
        ]
        gauges = [self._gauges(rank, load, counts) for rank, (_, load, counts) in enumerate(ranks)]
        for name in gauges[0]:
            family = GaugeMetricFamily(f"sglang:{name}", _words(name), labels=list(ranks[0][0]))
            for (labels, _, _), values in zip(ranks, gauges, strict=True):
                family.add_metric(list(labels.values()), values[name])
            yield family
        cache = {"cache_type": "EmulatedRadixCache", "pool": "kv"}
        for name in ("evicted_tokens", "load_back_tokens", "hicache_backup_tokens"):
            yield _counter(name, [(labels | cache, _done(name, c)) for labels, _, c in ranks])
        yield _counter(
            "num_retracted_requests", [(labels, c.retractions) for labels, _, c in ranks]
        )
        modes = [
            (labels | {"mode": mode}, value)
            for labels, _, c in ranks
            for mode, value in (
                ("prefill_compute", c.prefilled_tokens),
                ("prefill_cache", c.cached_device_tokens + c.cached_host_tokens),
                ("decode", c.generated_tokens),
            )
        ]
        yield _counter("realtime_tokens", modes)

    def _rank_labels(self, rank: int) -> dict[str, str]:
        one = self.worker.options.dp_size == 1
        return self.scheduler if one else self.scheduler | {"dp_rank": str(rank)}

    def _gauges(self, rank: int, load: EngineLoads, counts: EngineCounts) -> dict[str, float]:
        options, pool = self.worker.options, self.worker.capacity_tokens
        gauges: dict[str, float] = {
            "max_total_num_tokens": pool,
            "page_size": options.page_size,
            "num_pages": pool // options.page_size,
            "context_len": options.context_length,
            "num_running_reqs": load.running,
            "num_queue_reqs": load.waiting,
            "num_retracted_reqs": load.retracted,
            "num_paused_reqs": 0,
            "gen_throughput": self.worker.throughput(rank),
            "cache_hit_rate": hit_rate(counts),
            "decode_sum_seq_lens": load.decoding_tokens,
            "token_usage": load.used_tokens / pool,
            "full_token_usage": load.used_tokens / pool,
            "num_used_tokens": load.used_tokens,
            "kv_used_tokens": load.used_tokens,
            "kv_evictable_tokens": load.evictable_tokens,
            "kv_available_tokens": load.free_tokens,
            "new_token_ratio": load.new_token_ratio,
            "utilization": 0.0,
        }
        if self.worker.host_capacity_tokens:
            gauges["hicache_host_used_tokens"] = load.host_tokens
            gauges["hicache_host_total_tokens"] = self.worker.host_capacity_tokens
        return gauges


def _done(name: str, counts: EngineCounts) -> int:
    return {
        "evicted_tokens": counts.evicted_tokens,
        "load_back_tokens": counts.loaded_back_tokens,
        "hicache_backup_tokens": counts.backed_up_tokens,
    }[name]


def _counter(name: str, samples: Sequence[tuple[dict[str, str], float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"sglang:{name}", _words(name), labels=list(samples[0][0]))
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family


def _histogram(name: str, labels: dict[str, str], histogram: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"sglang:{name}", _words(name), labels=list(labels))
    below, buckets = 0, []
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((bound, below))
    family.add_metric(list(labels.values()), buckets, histogram.total)
    return family


def _words(name: str) -> str:
    return f"Emulated: {name.replace('_', ' ')}."
