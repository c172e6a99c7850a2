"""What single answers of a worker say, before they are put together.

The adapters turn bytes into these; `compose` turns the latest of each into a `WorkerReport`. Every
field is optional, for every field is missing from some version's answer. Sizes are in tokens and
per DP rank unless named otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from thunder_router.workers.report import (
    CacheHits,
    Capabilities,
    Engine,
    ModelReport,
    WritePolicy,
)

__all__ = [
    "Facts",
    "Feed",
    "Gauges",
    "HostTier",
    "ModelFacts",
    "Place",
    "RankGauges",
    "RankLoad",
]


@dataclass(frozen=True, slots=True)
class HostTier:
    """The flags that size HiCache."""

    ratio: float | None = None
    size_gb: float | None = None
    """Gigabytes (1e9) per rank; above 0 it overrides the ratio."""
    policy: WritePolicy | None = None
    storage_backend: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is published; without a host, at the worker's own."""

    host: str | None
    port: int


@dataclass(frozen=True, slots=True)
class Feed:
    """What one rank publishes, and where.

    Attributes:
        loads: Its load, on change and every second.
        blocks: What becomes of its blocks of KV.
        replay: Where what was missed of that may be asked for.
    """

    rank: int
    loads: Place | None = None
    loads_topic: bytes = b""
    blocks: Place | None = None
    blocks_topic: bytes = b""
    replay: Place | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change while the engine runs: from `/server_info`, or nearest to it.

    Attributes:
        ranks: Number of DP ranks.
        kv_pool_gib: Size of one rank's KV pool.
        host: `None`: not known; `hicache` False: known to be off.
        incarnation: Differs between two runs of the engine.
    """

    engine: Engine
    version: str | None = None
    models: tuple[ModelReport, ...] = ()
    ranks: int | None = None
    page_size: int | None = None
    device_tokens: tuple[int | None, ...] = ()
    swa_tokens: tuple[int | None, ...] = ()
    kv_pool_gib: float | None = None
    hicache: bool | None = None
    host: HostTier = field(default_factory=HostTier)
    capabilities: Capabilities = field(default_factory=Capabilities)
    weight_version: str | None = None
    incarnation: str | None = None
    disaggregation: str | None = None
    """`prefill` or `decode` where the worker is one half of a pair."""
    feeds: tuple[Feed, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """From `/model_info`."""

    model: str | None = None
    architecture: str | None = None
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class RankLoad:
    """One rank's line of `/v1/loads` or `/get_load`.

    Attributes:
        snapshot_age_s: How old the engine says these numbers were when it answered.
        snapshot_at_s: The engine's own clock when it took them: compare, never subtract ours.
        prefilled_tokens: Tokens prefilled since start, without cached ones.
        prefill_us: Microseconds spent on that.
    """

    rank: int
    running: int | None = None
    waiting: int | None = None
    in_flight_tokens: int | None = None
    device_tokens: int | None = None
    snapshot_age_s: float | None = None
    snapshot_at_s: float | None = None
    prefilled_tokens: int | None = None
    prefill_us: int | None = None


@dataclass(frozen=True, slots=True)
class RankGauges:
    """One rank's gauges of `/metrics`."""

    device_tokens: int | None = None
    page_size: int | None = None
    running: int | None = None
    waiting: int | None = None
    in_flight_tokens: int | None = None
    evictable_tokens: int | None = None
    host_used_tokens: int | None = None
    host_tokens: int | None = None
    swa_tokens: int | None = None
    kv_pool_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Gauges:
    """`/metrics`, read once.

    Attributes:
        ranks: Gauges by DP rank; empty where there are none.
        prompt_tokens: Prompt tokens since start: going backwards means a restart.
    """

    ranks: Mapping[int, RankGauges] = field(default_factory=dict)
    cache_hits: CacheHits | None = None
    retractions: int | None = None
    prompt_tokens: int | None = None
