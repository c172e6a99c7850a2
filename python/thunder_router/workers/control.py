"""Sends one control call to every worker, and keeps the books straight while it runs.

RL trainers pause generation, load new weights and go on; operators flush caches and profile. Such a
call is for all workers: one that got it and one that did not would serve two models under one name.
So it goes to every worker that is not gone, absent ones included, and succeeds only if all say so.

A flush or a change of weights empties KV caches, and while generation is paused nobody may be
admitted; the scheduler hears of both.
"""

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from thunder_router.errors import UpstreamError
from thunder_router.workers.http import Answer
from thunder_router.workers.lenient import mapping, parse_json
from thunder_router.workers.registry import Registry
from thunder_router.workers.watch import Watch

__all__ = ["CALLS", "Call", "Meaning", "Result", "broadcast"]

log = logging.getLogger(__name__)

SHOWN_CHARACTERS = 16 * 1024
"""Of a worker's answer to a control call."""


class Meaning(Enum):
    """What a control call does to what the scheduler believes."""

    NONE = "none"
    FLUSHES = "flushes"
    """Each worker that says yes has an empty cache."""
    PAUSES = "pauses"
    """From before the first worker hears it, nobody is admitted."""
    CONTINUES = "continues"
    """Once all have heard it, admission goes on, with empty caches."""


@dataclass(frozen=True, slots=True)
class Call:
    """A control call that workers know: where, how, and what it means."""

    method: str
    path: str
    meaning: Meaning = Meaning.NONE


_N, _F = Meaning.NONE, Meaning.FLUSHES

CALLS = MappingProxyType(
    {
        (call.method, call.path): call
        for call in (
            Call("POST", "/flush_cache", _F),
            Call("GET", "/flush_cache", _F),
            Call("POST", "/abort_request", _N),
            Call("POST", "/pause_generation", Meaning.PAUSES),
            Call("POST", "/continue_generation", Meaning.CONTINUES),
            Call("POST", "/release_memory_occupation", Meaning.PAUSES),
            Call("POST", "/resume_memory_occupation", Meaning.CONTINUES),
            Call("POST", "/update_weights_from_disk", _F),
            Call("POST", "/update_weights_from_tensor", _F),
            Call("POST", "/update_weights_from_distributed", _F),
            Call("POST", "/update_weights_from_ipc", _F),
            Call("POST", "/init_weights_update_group", _N),
            Call("POST", "/destroy_weights_update_group", _N),
            Call("POST", "/begin_weight_update", _N),
            Call("POST", "/end_weight_update", _F),
            Call("POST", "/update_weight_version", _F),
            Call("POST", "/start_profile", _N),
            Call("POST", "/stop_profile", _N),
            Call("GET", "/hicache/storage-backend", _N),
            Call("PUT", "/hicache/storage-backend", _N),
            Call("DELETE", "/hicache/storage-backend", _N),
            Call("POST", "/hicache/storage-backend/clear", _N),
            Call("POST", "/clear_hicache_storage_backend", _N),
        )
    }
)
"""By method and path. Source: SGLANG.md §1.5; what is not here is never broadcast."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one worker took the call.

    Attributes:
        status: Its HTTP status, or `None` where it did not answer.
        text: Its answer, cut and with keys blotted out; or why there is none.
    """

    worker: int
    url: str
    status: int | None
    text: str

    @property
    def ok(self) -> bool:
        """It did what it was told."""
        return self.status is not None and 200 <= self.status < 300


async def broadcast(
    registry: Registry, call: Call, *, query: str = "", body: bytes | None = None
) -> list[Result]:
    """Sends `call` to all workers at once; the results are in the order of their numbers."""
    if call.meaning is Meaning.PAUSES:
        registry.events.weight_sync_begin()
    watches = sorted(registry, key=lambda watch: watch.id)
    results = await asyncio.gather(*(_send(registry, w, call, query, body) for w in watches))
    refused = not any(result.ok for result in results)
    ends = call.meaning is Meaning.CONTINUES and _brings_kv_back(body)
    if ends or (call.meaning is Meaning.PAUSES and refused):
        registry.events.weight_sync_end()
    for watch, result in zip(watches, results, strict=True):
        if result.ok and call.meaning is Meaning.FLUSHES:
            watch.flushed()
        if call.meaning is not Meaning.NONE:
            watch.look_again()
    log.info(
        "event=broadcast path=%s workers=%d ok=%d",
        call.path,
        len(results),
        sum(result.ok for result in results),
    )
    return results


def _brings_kv_back(body: bytes | None) -> bool:
    """Whether requests can run after this call.

    Trainers that share GPUs with the engines resume the weights first, load new ones, and resume
    the KV cache last: `resume_memory_occupation` says which in `tags`.
    """
    tags = mapping(parse_json(body or b"")).get("tags")
    return not isinstance(tags, list) or "kv_cache" in tags


async def _send(
    registry: Registry, watch: Watch, call: Call, query: str, body: bytes | None
) -> Result:
    target = watch.door.url + call.path + (f"?{query}" if query else "")
    key = registry.control_key(watch)
    try:
        answer = await registry.client.ask(
            call.method,
            target,
            timeout_s=registry.settings.control_timeout_s,
            key=key,
            body=body,
        )
    except TimeoutError as error:
        return Result(watch.id, watch.door.url, None, str(error))
    except UpstreamError as error:
        return Result(watch.id, watch.door.url, None, f"no answer ({error})")
    return Result(watch.id, watch.door.url, answer.status, _shown(registry, watch, answer))


def _shown(registry: Registry, watch: Watch, answer: Answer) -> str:
    """A worker's answer as it may be shown: whatever it says, never a key."""
    text = answer.body.decode("utf-8", "replace")
    for key in (watch.door.key, registry.control_key(watch)):
        if key is not None and key.get_secret_value():
            text = text.replace(key.get_secret_value(), "***")
    return text[:SHOWN_CHARACTERS]
