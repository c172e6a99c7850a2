"""Finds out what stands behind a URL, and then asks it the little that changes.

`probe` runs once per engine start: it tries what SGLang and vLLM offer, all at once, and remembers
which questions are worth asking again. Those are the methods of `Door`. All of them read leniently
and raise only what `HttpClient.ask` raises.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

from thunder_router.errors import UpstreamError
from thunder_router.workers import sglang, vllm
from thunder_router.workers.clock import Clock
from thunder_router.workers.compose import Seen
from thunder_router.workers.http import Answer, HttpClient
from thunder_router.workers.lenient import count, items, mapping, parse_json, text
from thunder_router.workers.observations import Facts, Gauges, ModelFacts, RankLoad
from thunder_router.workers.report import Engine, ModelReport, Reading, Source

__all__ = ["Door", "Found", "probe"]

_LOADS = "/v1/loads?include=core"

_QUESTIONS = ("/server_info", "/version", "/metrics", "/ready", _LOADS, "/model_info")

HEALTH_TIMEOUT_S = 25.0
"""SGLang's own SGLANG_HEALTH_CHECK_TIMEOUT is 20 s. Source: SGLANG.md §1.2."""


@dataclass(frozen=True, slots=True)
class Door:
    """One worker, to be asked."""

    url: str
    key: SecretStr | None = field(repr=False)
    client: HttpClient
    clock: Clock
    timeout_s: float

    async def get(self, path: str, timeout_s: float | None = None) -> Answer:
        """GET `path`; raises as `HttpClient.ask` does."""
        return await self.client.ask(
            "GET", self.url + path, timeout_s=timeout_s or self.timeout_s, key=self.key
        )

    async def loads(self, source: Source) -> tuple[Answer, Reading[tuple[RankLoad, ...]] | None]:
        """`/v1/loads` or `/get_load`, as `source` says; no reading where it is not that."""
        path, read = (
            (_LOADS, sglang.loads) if source is Source.LOADS else ("/get_load", sglang.get_load)
        )
        answer = await self.get(path)
        lines = read(answer.body) if answer.ok else None
        return answer, Reading(lines, source, self.clock.now_s()) if lines else None

    async def gauges(self, engine: Engine) -> tuple[Answer, Reading[Gauges] | None]:
        """`/metrics`; no reading where it holds none of that engine's gauges."""
        answer = await self.get("/metrics")
        read = vllm.gauges if engine is Engine.VLLM else sglang.gauges
        gauges = read(answer.body) if answer.ok else Gauges()
        known = gauges != Gauges()
        return answer, Reading(gauges, Source.METRICS, self.clock.now_s()) if known else None

    async def readiness(self, source: Source) -> Reading[bool] | None:
        """`/ready` or `/health`: 200 is yes, 503 is no, anything else says nothing.

        A paused SGLang answers `/health` only after 20 s, so that one is waited for.
        """
        timeout_s = max(self.timeout_s, HEALTH_TIMEOUT_S) if source is Source.HEALTH else None
        answer = await self.get(source.value, timeout_s)
        if answer.status not in (200, 503):
            return None
        return Reading(answer.status == 200, source, self.clock.now_s())

    async def model_facts(self) -> Reading[ModelFacts] | None:
        """`/model_info`, for the weight version."""
        answer = await self.get("/model_info")
        if not answer.ok:
            return None
        return Reading(sglang.model_facts(answer.body), Source.MODEL_INFO, self.clock.now_s())


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe found.

    Attributes:
        loads: The endpoint to poll for loads; `None`: only `/metrics` shows them.
        readiness: The endpoint that says whether it takes work.
        complete: Nothing failed in a way that another try may mend.
        problem: Why nothing can be known of it, in words for an operator.
    """

    seen: Seen
    loads: Source | None = None
    readiness: Source | None = None
    complete: bool = False
    problem: str | None = None


async def _attempt(question: Awaitable[Answer]) -> Answer | None:
    """The answer, or `None` where none came."""
    try:
        return await question
    except (TimeoutError, UpstreamError):
        return None


async def probe(door: Door) -> Found:
    """Everything that one round of questions tells.

    The first question goes alone: most probes are of workers that are away, and that costs least.

    Raises:
        ConnectError: nobody listens.
        TimeoutError: somebody listens and says nothing.
        UpstreamError: the connection broke off.
    """
    answers = {"/v1/models": await door.get("/v1/models")}
    rest = await asyncio.gather(*(_attempt(door.get(path)) for path in _QUESTIONS))
    for path, answer in zip(_QUESTIONS, rest, strict=True):
        if answer is not None:
            answers[path] = answer
    silent = len(answers) <= len(_QUESTIONS)
    await _fall_back(door, answers)
    seen = await _read(door, answers, door.clock.now_s())
    readiness = await _readiness(door, answers, seen)
    asks_ready = answers.get("/ready", _NOTHING).status in (200, 503)
    asks_health = not asks_ready and seen.facts is not None
    locked = any(answer.status in (401, 403) for answer in answers.values())
    known = not locked and (seen.facts is not None or seen.models is not None)
    return Found(
        seen=replace(seen, ready=readiness),
        loads=seen.loads.source if seen.loads else None,
        readiness=Source.READY if asks_ready else Source.HEALTH if asks_health else None,
        complete=known and not silent and not _starting(answers),
        problem=None if known else _problem(answers),
    )


async def _fall_back(door: Door, answers: dict[str, Answer]) -> None:
    """The older names, where the newer ones are missing or broken."""
    for path, older in (("/server_info", "/get_server_info"), (_LOADS, "/get_load")):
        if path in answers and not answers[path].ok:
            answer = await _attempt(door.get(older))
            if answer is not None and answer.ok:
                answers[older] = answer


_NOTHING = Answer(404)


def _body(answers: dict[str, Answer], path: str) -> bytes:
    answer = answers.get(path)
    return answer.body if answer is not None and answer.ok else b""


async def _read(door: Door, answers: dict[str, Answer], at_s: float) -> Seen:
    facts: Facts | None = None
    for path in ("/server_info", "/get_server_info"):
        facts = facts or sglang.facts(_body(answers, path))
    metrics = b"\n" + _body(answers, "/metrics")
    source = Source.SERVER_INFO
    owner, models = _models(_body(answers, "/v1/models"))
    if facts is None and (owner == "vllm" or b"\nvllm:" in metrics):
        events = await _attempt(door.get("/kv_event_sources"))
        facts = vllm.facts(
            vllm.version(_body(answers, "/version")),
            metrics=b"\nvllm:" in metrics,
            kv_events=events.body if events is not None and events.ok else b"",
        )
        source = Source.METRICS
    if facts is None and (owner == "sglang" or b"\nsglang:" in metrics):
        facts = Facts(engine=Engine.SGLANG)
        source = Source.MODELS
    gauges = (
        vllm.gauges(metrics) if facts and facts.engine is Engine.VLLM else (sglang.gauges(metrics))
    )
    lines = sglang.loads(_body(answers, _LOADS))
    from_loads = Source.LOADS
    if not lines:
        lines, from_loads = sglang.get_load(_body(answers, "/get_load")), Source.GET_LOAD
    info = _body(answers, "/model_info")
    return Seen(
        facts=Reading(facts, source, at_s) if facts else None,
        models=Reading(models, Source.MODELS, at_s) if models else None,
        model_facts=Reading(sglang.model_facts(info), Source.MODEL_INFO, at_s) if info else None,
        loads=Reading(lines, from_loads, at_s) if lines else None,
        gauges=Reading(gauges, Source.METRICS, at_s) if gauges != Gauges() else None,
    )


def _models(body: bytes) -> tuple[str | None, tuple[ModelReport, ...]]:
    """Who serves, and the models of an OpenAI `/v1/models`."""
    found = list(items(mapping(parse_json(body)).get("data")))
    models = tuple(
        ModelReport(name, count(item.get("max_model_len")) or None)
        for item in found
        if (name := text(item.get("id"))) is not None
    )
    return next((text(item.get("owned_by")) for item in found), None), models


async def _readiness(door: Door, answers: dict[str, Answer], seen: Seen) -> Reading[bool] | None:
    """From `/ready`, else from `/health`: that one takes SGLang a second and a generated token."""
    ready = answers.get("/ready")
    if ready is not None and ready.status in (200, 503):
        return Reading(ready.status == 200, Source.READY, door.clock.now_s())
    if seen.facts is None:
        return None
    answer = await _attempt(door.get("/health"))
    if answer is None or answer.status not in (200, 503):
        return None
    return Reading(answer.status == 200, Source.HEALTH, door.clock.now_s())


def _starting(answers: dict[str, Answer]) -> bool:
    """Something was answered as a server does that is not done starting: ask again."""
    return any(answers[path].status >= 500 for path in ("/server_info", "/v1/models"))


def _problem(answers: dict[str, Answer]) -> str:
    """Why a worker that answers cannot be used; `/metrics` is open to all, so it proves nothing."""
    statuses = {answer.status for answer in answers.values()}
    if statuses & {401, 403}:
        return "the worker refuses our api_key"
    if any(status >= 500 for status in statuses):
        return "the worker answers, but only with errors"
    return "the worker speaks neither SGLang's nor vLLM's language"
