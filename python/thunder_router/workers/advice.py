"""What an operator should know of a worker: what is off and which flag switches it on, what is odd.

Only what this router makes use of is missed; a flag that would change nothing here is not advised.
"""

from dataclasses import dataclass
from enum import StrEnum

from thunder_router.workers.feeds import EXTRA
from thunder_router.workers.report import Engine, RankReport, Source, WorkerReport, WritePolicy
from thunder_router.workers.sglang import version_tuple

__all__ = ["Finding", "Level", "findings"]

OLDEST = (0, 5, 6)
NEWEST = (0, 5, 23)
"""SGLang versions that were looked at; see sglang.py."""


class Level(StrEnum):
    """How much a finding matters."""

    ON = "on"
    OFF = "off"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know.

    Attributes:
        flag: The engine's flag that switches it on, where there is one.
    """

    level: Level
    text: str
    flag: str | None = None


def findings(report: WorkerReport, *, listens: bool = True) -> tuple[Finding, ...]:
    """Everything worth saying of a worker: what is on, what is off, what is odd.

    Args:
        report: The worker.
        listens: This router has what it takes to hear what workers publish.
    """
    found: list[Finding] = []
    if report.engine in (Engine.SGLANG, Engine.SGLANG_RUST):
        found += _switches(report)
        found += _sglang_warnings(report)
    elif report.engine is Engine.VLLM:
        found += _vllm(report)
    else:
        found.append(_warn("neither SGLang nor vLLM: requests pass through, nothing is scheduled"))
    if report.capabilities.load_publishing:
        found.append(_publishes("load publishing: loads come by themselves", listens=listens))
    if report.capabilities.kv_events:
        found.append(_publishes("KV events: whose KV lies where is known", listens=listens))
    for rank in report.ranks:
        found += _rank_warnings(
            report, rank, f"rank {rank.rank}: " if len(report.ranks) > 1 else ""
        )
    return tuple(dict.fromkeys(found))


def _publishes(text: str, *, listens: bool) -> Finding:
    if listens:
        return Finding(Level.ON, text)
    return Finding(Level.OFF, f"{text} (here)", f"pip install '{EXTRA}'")


def _warn(text: str) -> Finding:
    return Finding(Level.WARNING, text)


def _switch(on: bool, text: str, flag: str) -> Finding:
    return Finding(Level.ON, text) if on else Finding(Level.OFF, text, flag)


def _switches(report: WorkerReport) -> list[Finding]:
    able, python = report.capabilities, report.engine is Engine.SGLANG
    version = version_tuple(report.version) or NEWEST
    hicache = any(rank.host_tokens and rank.host_tokens.value for rank in report.ranks)
    found = [
        _switch(
            able.metrics, "metrics: evictable tokens, host tier, cache hits", "--enable-metrics"
        ),
        _switch(
            hicache,
            "HiCache: a paused program's KV is loaded back instead of computed again",
            "--enable-hierarchical-cache --hicache-ratio 2 --page-size 64",
        ),
    ]
    if python:
        found.append(
            _switch(
                able.cache_report,
                "cache report: answers say how much of a prompt was cached",
                "--enable-cache-report",
            )
        )
    if python and version >= (0, 5, 16):
        found.append(
            _switch(
                able.session_radix,
                "session radix cache: KV of paused and ended programs goes first",
                "--enable-session-radix-cache",
            )
        )
    if python and version >= (0, 5, 6):
        found.append(
            _switch(
                able.priority_scheduling,
                "priority scheduling: returning turns pass newcomers in the engine's queue",
                "--enable-priority-scheduling",
            )
        )
    return found


def _sglang_warnings(report: WorkerReport) -> list[Finding]:
    found = []
    version = version_tuple(report.version)
    if version is None:
        found.append(_warn("it does not say its version"))
    elif version < OLDEST:
        found.append(_warn(f"SGLang {report.version} is older than 0.5.6, the oldest looked at"))
    elif version > NEWEST:
        found.append(_warn(f"SGLang {report.version} is newer than 0.5.23; read leniently"))
    if report.engine is Engine.SGLANG_RUST:
        found.append(
            _warn("Rust front end: no sessions, /ready, cache report, pausing or /v1/messages")
        )
    if report.write_policy is WritePolicy.SELECTIVE:
        found.append(
            _warn(
                "write_through_selective keeps what was hit twice: the host tier is not counted on"
            )
        )
    if report.disaggregation is not None:
        found.append(_warn(f"{report.disaggregation} half of a pair: pairs are not served"))
    return found


def _vllm(report: WorkerReport) -> list[Finding]:
    found = [
        _switch(
            report.capabilities.metrics,
            "metrics: capacity and load are nowhere else",
            "without --disable-log-stats",
        ),
        Finding(
            Level.OFF,
            "cache report: answers say how much of a prompt was cached (cannot be seen from here)",
            "--enable-prompt-tokens-details",
        ),
    ]
    found.append(_warn("vLLM cannot be told whose KV to drop first"))
    return found


def _rank_warnings(report: WorkerReport, rank: RankReport, where: str) -> list[Finding]:
    found = []
    device, host, page = rank.device_tokens, rank.host_tokens, rank.page_size
    if device is None:
        return [_warn(f"{where}capacity unknown: requests pass through, nothing is scheduled")]
    if rank.swa_tokens is not None:
        found.append(
            _warn(
                f"{where}hybrid model: its sliding-window pool of {rank.swa_tokens.value} tokens"
                f" may fill before the {device.value} counted here"
            )
        )
    longest = max((model.max_model_len or 0 for model in report.models), default=0)
    if longest > device.value:
        found.append(
            _warn(
                f"{where}capacity of {device.value} tokens is below the model's context of"
                f" {longest}: longer programs are refused"
            )
        )
    if host is not None and host.value > 0:
        if host.source is Source.COMPUTED:
            found.append(
                _warn(f"{where}host tier of {host.value} tokens is computed, an upper bound")
            )
        if page is not None and page.value == 1:
            found.append(
                _warn(f"{where}HiCache with pages of 1 token copies slowly: --page-size 64")
            )
        if report.write_policy is WritePolicy.WRITE_THROUGH and host.value <= device.value:
            found.append(
                _warn(f"{where}a write-through host tier no larger than the device adds nothing")
            )
    return found
