"""What a worker says of itself: `/server_info`, `/model_info`, `/v1/models`, `/v1/loads`."""

import time
from datetime import UTC, datetime
from typing import Any

from thunder_router._core import EngineCounts, EngineLoads
from thunder_router.emulator.options import VERSION
from thunder_router.emulator.worker import Worker

__all__ = ["get_load", "loads", "model_card", "model_info", "server_info"]

_SECTIONS = ("memory", "disaggregation", "queues")


def server_info(worker: Worker) -> dict[str, Any]:
    """The settings that matter to a router, by SGLang's names. Keys included, as SGLang does."""
    options, pool = worker.options, worker.capacity_tokens
    arguments: dict[str, Any] = {
        "model_path": options.model,
        "tokenizer_path": options.model,
        "served_model_name": options.model,
        "context_length": options.context_length,
        "host": options.host,
        "port": worker.port,
        "tp_size": 1,
        "dp_size": options.dp_size,
        "page_size": options.page_size,
        "max_running_requests": options.max_running,
        "max_queued_requests": options.max_queued,
        "max_total_tokens": options.capacity_tokens,
        "chunked_prefill_size": 8192,
        "schedule_policy": "fcfs",
        "schedule_conservativeness": 1.0,
        "enable_priority_scheduling": options.priority_scheduling,
        "schedule_low_priority_values_first": False,
        "radix_eviction_policy": "lru",
        "disable_radix_cache": False,
        "enable_hierarchical_cache": worker.host_capacity_tokens > 0,
        "hicache_ratio": options.hicache_ratio,
        "hicache_size": 0,
        "hicache_write_policy": options.write_policy,
        "hicache_storage_backend": None,
        "hicache_storage_prefetch_policy": "timeout",
        "hicache_host_memory_mode": "cache",
        "disaggregation_mode": "null",
        "enable_session_radix_cache": options.session_radix,
        "enable_streaming_session": False,
        "enable_cache_report": options.cache_report,
        "enable_metrics": True,
        "reasoning_parser": None,
        "tool_call_parser": None,
        "weight_version": "default",
        "random_seed": options.seed,
        "api_key": options.api_key,
        "admin_api_key": options.admin_api_key,
        "kv_events_config": None,
        "load_publish_endpoint": None,
        "load_balance_method": "round_robin",
        "device": "emulated",
    }
    state = {
        **arguments,
        "world_size": 1,
        "effective_max_running_requests_per_dp": options.max_running,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 0.0,
            "kvcache": 0.0,
            "startup_available": 0.0,
            "token_capacity": pool,
            "token_capacity_swa": None,
            "graph": {},
        },
    }
    return {
        **arguments,
        "status": "ready",
        "max_total_num_tokens": pool,
        "max_req_input_len": worker.engines[0].max_prompt_tokens,
        "startup_time": {},
        "kv_events": None,
        "internal_states": [state] * options.dp_size,
        "version": VERSION,
        "frontend": "python",
        "launch_command": "thunder-router emulate",
        "hicache_object_layout": {"enabled": False},
        "emulated": {
            "preset": options.preset,
            "speed": options.speed,
            # Late events make a fast emulation slower than it says: see that this stays small.
            "event_lag_p99_s": worker.tally.event_lag.quantile(0.99),
        },
    }


def model_info(worker: Worker) -> dict[str, Any]:
    """The model, such as it is."""
    return {
        "model_path": worker.options.model,
        "served_model_name": worker.options.model,
        "tokenizer_path": worker.options.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "emulated",
        "architectures": ["EmulatedForCausalLM"],
        "emulated": {"preset": worker.options.preset, "speed": worker.options.speed},
    }


def model_card(worker: Worker) -> dict[str, Any]:
    """The one entry of `/v1/models`."""
    return {
        "id": worker.options.model,
        "object": "model",
        "created": int(worker.started_at),
        "owned_by": "sglang-emulated",
        "root": worker.options.model,
        "parent": None,
        "max_model_len": worker.options.context_length,
    }


def loads(worker: Worker, include: set[str], rank: int | None) -> dict[str, Any]:
    """`/v1/loads`: one item a rank."""
    everything = not include or "all" in include
    wanted = [name for name in _SECTIONS if everything or name in include]
    items = [
        _load_item(worker, index, load, wanted)
        for index, load in enumerate(worker.loads())
        if rank is None or rank == index
    ]
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": items,
    }


def _load_item(worker: Worker, rank: int, load: EngineLoads, wanted: list[str]) -> dict[str, Any]:
    counts = worker.engines[rank].counts()
    pool = worker.capacity_tokens
    total = load.used_tokens + load.waiting_tokens
    item: dict[str, Any] = {
        "timestamp": worker.paused_at or time.time(),
        "dp_rank": rank,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_uncached_tokens,
        "num_used_tokens": load.used_tokens,
        "num_total_tokens": total,
        "num_active_tokens": total,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": pool,
        "max_running_requests": worker.options.max_running,
        "token_usage": round(load.used_tokens / pool, 4),
        "gen_throughput": round(worker.throughput(rank), 2),
        "cache_hit_rate": round(hit_rate(counts), 4),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": counts.prefilled_tokens,
        "total_prefill_busy_us": counts.prefill_busy_us,
        "decode_moments": [0.0] * 6,
    }
    sections = {
        "memory": {
            "weight_gb": 0.0,
            "kv_cache_gb": 0.0,
            "graph_gb": 0.0,
            "token_capacity": pool,
        },
        "disaggregation": {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        },
        "queues": {
            "waiting": load.waiting,
            "grammar": 0,
            "paused": 0,
            "retracted": load.retracted,
            "prealloc_ready": 0,
        },
    }
    return item | {name: sections[name] for name in wanted}


def get_load(worker: Worker) -> list[dict[str, Any]]:
    """`/get_load` of releases before 0.5.22, for what still asks."""
    return [
        {
            "dp_rank": rank,
            "num_reqs": load.running + load.waiting,
            "num_waiting_reqs": load.waiting,
            "num_tokens": load.used_tokens + load.waiting_tokens,
            "num_pending_tokens": load.waiting_uncached_tokens,
            "ts_tic": time.time(),
        }
        for rank, load in enumerate(worker.loads())
    ]


def hit_rate(counts: EngineCounts) -> float:
    """Share of all prompt tokens that some cache had."""
    cached = counts.cached_device_tokens + counts.cached_host_tokens
    return cached / counts.prompt_tokens if counts.prompt_tokens else 0.0
