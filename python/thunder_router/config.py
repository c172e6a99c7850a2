"""Settings: one frozen model, and the only home of default values.

Read in this order, later wins: `thunder.toml` (or `--config FILE`), `THUNDER_*` environment
variables (`THUNDER_SCHEDULING__TICK_S=0.5`), flags. Names carry their unit. Every field is
described in docs/configuration.md; a test compares the two.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.errors import ConfigError
from thunder_router.sections import Fraction, Seconds, Section

__all__ = [
    "EnvironmentSettings",
    "FairnessSettings",
    "IdentitySettings",
    "JournalSettings",
    "PolicyName",
    "RelaySettings",
    "SchedulingSettings",
    "Settings",
    "WorkerEntry",
    "WorkerSettings",
    "load",
]

PolicyName = Literal["off", "paper", "adaptive"]


class SchedulingSettings(Section):
    """The scheduler's constants. `None` or a zero switches a piece off where so noted."""

    policy: PolicyName = "adaptive"
    tick_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Adaptive: seconds between refreshes; freed capacity is used at once all the same."""

    queue_limit: Annotated[int, Field(ge=1)] = 100_000
    """Held requests above which newcomers are answered 429."""
    hold_limit_s: Seconds = 3600.0
    """A request held longer is answered 429; nothing is ever admitted past capacity instead."""
    no_worker_limit_s: Seconds = 30.0
    """While no worker is up: requests wait this long for one, then they are answered 503."""

    # policy = "paper": arXiv 2602.13692, equations 7, 10, 11.
    paper_tick_s: Annotated[float, Field(gt=0)] = 5.0
    paper_half_life_s: Annotated[float, Field(gt=0)] = 1.0
    paper_lambda_max: Annotated[float, Field(gt=0, le=1)] = 1.0
    paper_lambda_min: Annotated[float, Field(gt=0, le=1)] = 1.0

    # policy = "adaptive": each piece has its own switch, so that its effect can be measured.
    event_driven: bool = True
    shared_prefix: bool = True
    origin_affinity: bool = True
    growth_steps_paused: Annotated[float, Field(ge=0)] = 1.5
    growth_steps_new: Annotated[float, Field(ge=0)] = 2.5
    margin_min: Fraction = 0.03
    margin_max: Fraction = 0.10
    displacement_eta: Annotated[float, Field(ge=0)] = 0.5
    """0 never displaces an idle program for a waiting one."""
    lease_s: Seconds = 30.0
    lease_min_s: Seconds = 60.0
    idle_timeout_s: Seconds = 3600.0
    aimd: bool = True
    aimd_raise_above: Fraction = 0.06
    aimd_lower_below: Fraction = 0.03
    aimd_cap: Fraction = 0.20
    reservation_s: Seconds | None = 60.0
    """After this wait the oldest waiter's room is kept for it. `None` switches it off."""
    time_slice_s: Seconds | None = 600.0
    time_slice_restore_factor: Annotated[float, Field(ge=0)] = 100.0
    mark_running_above: Annotated[float, Field(gt=0, le=1)] = 0.97
    host_tier: bool = True
    """Count HiCache's host tier as reach when deciding what a restore costs."""
    weight_sync_timeout_s: Seconds = 300.0


class RelaySettings(Section):
    """The byte relay."""

    max_body_bytes: Annotated[int, Field(gt=0)] = 64 * 1024 * 1024
    connect_timeout_s: Seconds = 5.0
    pool_idle_s: Seconds = 3.0
    """Shorter than uvicorn's 5 s keep-alive, so that the worker rarely closes first."""
    first_byte_timeout_s: Seconds | None = None
    stream_idle_timeout_s: Seconds | None = None
    request_read_timeout_s: Seconds = 60.0
    """A client that takes longer to send its headers, or stalls this long in a body, is cut."""
    keepalive_comment_s: Seconds | None = None
    """Held streams get an SSE comment this often. `None`: no early 200."""
    buffer_bytes: Annotated[int, Field(gt=0)] = 256 * 1024
    """Bytes of an answer held for a slow client before its worker is paused."""
    requests_per_connection: Annotated[int, Field(ge=1)] | None = None
    """A connection is closed after this many requests, on either side. `None`: never."""
    passthrough_paths: tuple[str, ...] = (
        "/v1/embeddings",
        "/v1/rerank",
        "/rerank",
        "/v1/classify",
        "/classify",
        "/v1/score",
        "/encode",
        "/v1/tokenize",
        "/tokenize",
        "/v1/detokenize",
        "/detokenize",
        "/v1/messages/count_tokens",
        "/v1/audio/transcriptions",
    )
    """Paths handed to a worker untouched, besides the inference routes."""


class WorkerEntry(Section):
    """One worker, and what its operator knows better than it does.

    A number given here overrides whatever the worker says, per DP rank.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/\s]")]
    api_key: SecretStr | None = None
    """Sent with inference and questions. `None`: that of the section."""
    admin_api_key: SecretStr | None = None
    """Sent with control calls (flush, pause, weights). `None`: the section's, else `api_key`."""
    model: str | None = None
    """The model it serves, where it cannot say."""
    capacity_tokens: Annotated[int, Field(gt=0)] | None = None
    host_tokens: Annotated[int, Field(ge=0)] | None = None
    prefill_us_per_token: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    prefill_ns_per_token2: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    load_back_us_per_token: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    header_overrides: bool = False
    """It runs with SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES=1, which no answer of it shows."""
    labels: dict[str, str] = Field(default_factory=dict)
    """For people and dashboards."""


class WorkerSettings(Section):
    """Worker knowledge."""

    urls: tuple[str, ...] = ()
    entries: tuple[WorkerEntry, ...] = ()
    """Workers with settings of their own, besides `urls`."""
    api_key: SecretStr | None = None
    admin_api_key: SecretStr | None = None
    strict_models: bool = False
    """Where all workers serve one model, a request for another is a 404 too."""
    probe_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    control_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """For a control call to all workers (weights, profiles, flushes), on each of them."""
    loads_interval_s: Annotated[float, Field(gt=0)] = 0.25
    ready_interval_s: Annotated[float, Field(gt=0)] = 1.0
    metrics_interval_s: Annotated[float, Field(gt=0)] = 5.0
    retry_interval_s: Annotated[float, Field(gt=0)] = 1.0
    """A worker that did not answer, or takes no work, is asked again this often."""
    down_after_s: Seconds = 10.0
    """Unreachable this long, a worker is down and its programs move; a flap is shorter."""
    hung_after_s: Seconds = 30.0
    """Reachable but silent this long, and passing nothing on either, a worker is down."""
    unready_limit_s: Seconds = 300.0
    """Alive but not ready this long (a forgotten pause), a worker is down."""
    drain_limit_s: Seconds = 600.0
    """A draining worker is removed after this long, whatever still runs on it."""
    breaker_failures: Annotated[int, Field(ge=1)] = 5
    """So many failures in a row open a worker's circuit."""
    breaker_open_s: Annotated[float, Field(gt=0)] = 5.0
    """An open circuit lets one probe through after this long; doubled at each failure, to 60 s."""
    capacity_tokens: Annotated[int, Field(gt=0)] | None = None
    """Overrides what workers say of their KV cache, per DP rank."""
    listen: bool = True
    """Hear what workers publish over ZeroMQ, where they do and `thunder-router[events]` is here."""
    residency_blocks: Annotated[int, Field(ge=0)] = 262_144
    """KV blocks remembered per rank of a worker that publishes KV events. 0: none."""
    dns_urls: tuple[str, ...] = ()
    """URLs whose host name stands for several workers, one per address."""
    discovery_file: Path | None = None
    """Lists workers; read again when it changes."""
    kubernetes_selector: str | None = None
    """Label selector of the EndpointSlices whose endpoints are workers. `None`: no discovery."""
    kubernetes_namespace: str | None = None
    """`None`: that of the router's own pod."""
    kubernetes_port: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    """Number or name of the workers' port. `None`: the only one that the slices have."""
    discovery_interval_s: Annotated[float, Field(gt=0)] = 2.0

    def complete(self, entry: WorkerEntry) -> WorkerEntry:
        """`entry`, with what the section says for all workers where it says nothing itself."""
        shared = {
            name: getattr(self, name)
            for name in ("api_key", "admin_api_key", "capacity_tokens")
            if getattr(entry, name) is None
        }
        return entry.model_copy(update=shared)


class IdentitySettings(Section):
    """Which program a request belongs to, beyond the forms that are always understood."""

    weak_hints: tuple[
        Literal["prompt_cache_key", "user", "previous_response_id", "bearer"], ...
    ] = ()
    """Name a user or a conversation rather than a program, so each is opt-in; asked in order."""


class FairnessSettings(Section):
    """Room shared among tenants; `policy = "adaptive"` only."""

    by: Literal["key", "header", "group"] | None = None
    """What a tenant is: a client's API key, what a header says, a program's group. `None`: off."""
    header: str = "x-thunder-tenant"
    """The header of `by = "header"`."""
    weights: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default_factory=dict)
    """By tenant; whoever is not listed weighs 1."""


class JournalSettings(Section):
    """What is written down: events and decisions, and the programs that a restart takes over."""

    path: Path | None = None
    """JSON lines of every event and decision, for `thunder-router replay`. `None`: not written."""
    max_bytes: Annotated[int, Field(ge=4096)] = 64 * 1024 * 1024
    """The file is set aside at this size and a new one begun."""
    files: Annotated[int, Field(ge=1)] = 4
    """So many files are kept, the one being written included."""
    snapshot: Path | None = None
    """Programs, sizes and places, taken over at the next start. `None`: every start is fresh."""
    snapshot_interval_s: Annotated[float, Field(gt=0)] = 5.0


class Settings(BaseSettings):
    """All settings of one router."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="THUNDER_", env_nested_delimiter="__"
    )

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 30000
    api_key: SecretStr | None = None
    admin_key: SecretStr | None = None
    tls_cert: FilePath | None = None
    """Serves https with this certificate chain (PEM). `None`: plain http."""
    tls_key: FilePath | None = None
    """The certificate's key. `None`: it is in the same file."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    shutdown_delay_s: Seconds = 1.0
    """After SIGTERM readiness says 503 at once; this much later the socket closes."""
    shutdown_grace_s: Seconds = 30.0
    scheduling: SchedulingSettings = SchedulingSettings()
    relay: RelaySettings = RelaySettings()
    workers: WorkerSettings = WorkerSettings()
    environments: EnvironmentSettings = EnvironmentSettings()
    identity: IdentitySettings = IdentitySettings()
    fairness: FairnessSettings = FairnessSettings()
    journal: JournalSettings = JournalSettings()

    @field_validator("tls_key")
    @classmethod
    def _has_a_certificate(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if key is not None and info.data.get("tls_cert") is None:
            raise ValueError("it needs a tls_cert")
        return key

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags over environment over `thunder.toml`."""
        del dotenv_settings, file_secret_settings
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls, cls.model_config.get("toml_file")),
        )


def load(toml: Path | None = None, **flags: Any) -> Settings:
    """Settings from `toml` (default: `thunder.toml` where it exists), environment and flags.

    Raises:
        ConfigError: a value is unknown or out of range; the message names it.
    """
    if toml is not None and not toml.is_file():
        raise ConfigError(f"no such file: {toml}")

    class _Located(Settings):
        model_config = SettingsConfigDict(toml_file=toml or Path("thunder.toml"))

    try:
        return _Located(**flags)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{toml or 'thunder.toml'}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {first['msg']}") from error
