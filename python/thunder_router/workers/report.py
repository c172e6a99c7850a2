"""What is known of one worker, and how well.

A worker is asked through several endpoints that answer at different times, know different things
and lie in different ways, so a number alone is worth little. Each measured value is a `Reading`:
the value, the endpoint that said it, when, and whether it may already be out of date. What nobody
said is `None`; it is never 0, because 0 free tokens and "no idea" call for opposite decisions.

KV capacity is per DP rank: a worker with data-parallel attention has one cache, one queue and one
`RankReport` per rank.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = [
    "CacheHits",
    "Capabilities",
    "Engine",
    "ModelReport",
    "RankReport",
    "Reading",
    "Source",
    "WorkerReport",
    "WritePolicy",
]

T_co = TypeVar("T_co", covariant=True)


class Engine(StrEnum):
    """The server behind a URL. SGLang has two front ends, with different sets of endpoints."""

    SGLANG = "sglang"
    SGLANG_RUST = "sglang-rust"
    VLLM = "vllm"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Who said a value."""

    SERVER_INFO = "/server_info"
    LOADS = "/v1/loads"
    GET_LOAD = "/get_load"
    PUBLISHED = "published"
    METRICS = "/metrics"
    MODELS = "/v1/models"
    MODEL_INFO = "/model_info"
    READY = "/ready"
    HEALTH = "/health"
    COMPUTED = "computed"
    SETTINGS = "settings"


class WritePolicy(StrEnum):
    """When HiCache copies KV from the device to the host."""

    WRITE_THROUGH = "write_through"
    WRITE_BACK = "write_back"
    SELECTIVE = "write_through_selective"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """One measured value.

    Attributes:
        value: The value.
        source: Who said it.
        at_s: When it was read, in seconds of the router's monotonic clock.
        stale: The source may not have refreshed it for a while, however recently it was read.
    """

    value: T_co
    source: Source
    at_s: float
    stale: bool = False

    def age_s(self, now_s: float) -> float:
        """Seconds since it was read; at least 0."""
        return max(0.0, now_s - self.at_s)


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A model name that the worker answers to, and its longest context in tokens."""

    id: str
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the router may ask of the worker beside inference. False: absent or not known."""

    session_radix: bool = False
    """`session_id` tags KV with its program, and `/close_session` makes that KV go first."""
    close_session: bool = False
    priority_scheduling: bool = False
    priority_eviction: bool = False
    abort: bool = False
    cache_report: bool = False
    """`usage` says how many prompt tokens were cached."""
    cached_token_details: bool = False
    """A request may ask which tier its cached tokens came from."""
    header_overrides: bool = False
    """`x-override-*` set rid and priority without touching the body."""
    load_publishing: bool = False
    kv_events: bool = False
    metrics: bool = False
    readiness: bool = False
    """`/ready` answers at once, apart from `/health`."""
    anthropic: bool = False
    """Serves `/v1/messages`."""
    pause: bool = False
    data_parallel_header: bool = False


@dataclass(frozen=True, slots=True)
class CacheHits:
    """Prompt tokens found in a cache since the engine started, by tier."""

    device: int | None
    host: int | None
    storage: int | None


@dataclass(frozen=True, slots=True)
class RankReport:
    """One DP rank. All sizes in tokens.

    Attributes:
        rank: DP rank, from 0.
        device_tokens: KV cache capacity on the device.
        page_size: Allocation unit.
        running: Requests being prefilled or decoded.
        waiting: Requests in the engine's own queue.
        in_flight_tokens: KV held by running requests. Cached KV between turns counts as 0 here.
        evictable_tokens: Cached KV that no running request holds.
        host_used_tokens: HiCache host tier in use.
        host_tokens: HiCache host tier in all; a reading of 0 where HiCache is off.
        swa_tokens: Capacity of the sliding-window pool of a hybrid model.
    """

    rank: int
    device_tokens: Reading[int] | None = None
    page_size: Reading[int] | None = None
    running: Reading[int] | None = None
    waiting: Reading[int] | None = None
    in_flight_tokens: Reading[int] | None = None
    evictable_tokens: Reading[int] | None = None
    host_used_tokens: Reading[int] | None = None
    host_tokens: Reading[int] | None = None
    swa_tokens: Reading[int] | None = None
    reach_tokens: Reading[int] | None = None
    """Tokens of KV that can be had again without recomputing: see `hicache.reach_tokens`."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Everything known of one worker.

    Attributes:
        ready: It takes new work. `None`: it has no way to say so.
        prefill_us_per_token: Measured mean cost of prefill, where the engine counts it.
        incarnation: Differs between two runs of the engine behind the same URL.
        disaggregation: `prefill` or `decode` where the worker is one half of a pair.
    """

    engine: Engine = Engine.UNKNOWN
    version: str | None = None
    models: tuple[ModelReport, ...] = ()
    architecture: str | None = None
    ranks: tuple[RankReport, ...] = ()
    write_policy: WritePolicy | None = None
    storage_backend: str | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    cache_hits: Reading[CacheHits] | None = None
    retractions: Reading[int] | None = None
    prefill_us_per_token: Reading[float] | None = None
    ready: Reading[bool] | None = None
    weight_version: Reading[str] | None = None
    incarnation: str | None = None
    disaggregation: str | None = None
