"""What the adapter makes of a live SGLang's own answers, and of its load while it works."""

import asyncio

import httpx

from bench.sglang_server import CAPACITY_TOKENS, MODEL, SGLang
from engine.agent import body, eventually
from thunder_router.config import WorkerEntry
from thunder_router.workers.clock import MonotonicClock
from thunder_router.workers.compose import compose
from thunder_router.workers.http import AiohttpClient
from thunder_router.workers.probe import Door, probe
from thunder_router.workers.report import Engine, ModelReport, Source, WritePolicy


async def test_a_live_engine_is_known_with_both_its_tiers(engine: SGLang) -> None:
    async with AiohttpClient() as client:
        door = Door(engine.url, None, client, MonotonicClock(), timeout_s=10)
        found = await probe(door)
    report = compose(found.seen, WorkerEntry(url=engine.url))

    assert found.complete
    assert found.loads is Source.LOADS
    assert (report.engine, report.version) == (Engine.SGLANG, "0.5.23")
    assert report.models == (ModelReport(MODEL, 32_768),)
    assert report.architecture == "Qwen3ForCausalLM"
    assert report.write_policy is WritePolicy.WRITE_THROUGH
    assert report.ready is not None
    assert (report.ready.value, report.ready.source) == (True, Source.READY)
    (rank,) = report.ranks
    read = {
        name: (reading.value, reading.source)
        for name in ("device_tokens", "page_size", "running", "host_tokens", "reach_tokens")
        if (reading := getattr(rank, name)) is not None
    }
    host = CAPACITY_TOKENS * 2 + 1  # a ratio of 2, in pages of 1, and a page more
    assert read == {
        "device_tokens": (CAPACITY_TOKENS, Source.LOADS),
        "page_size": (1, Source.SERVER_INFO),
        "running": (0, Source.LOADS),
        "host_tokens": (host, Source.METRICS),
        "reach_tokens": (host, Source.COMPUTED),
    }
    able = report.capabilities
    assert able.session_radix
    assert able.close_session
    assert able.cache_report
    assert able.cached_token_details
    assert able.abort
    assert able.pause
    assert able.readiness
    assert able.metrics
    assert able.anthropic
    assert not able.priority_scheduling
    assert not able.kv_events
    assert not able.load_publishing


async def test_its_load_is_seen_while_it_decodes(engine: SGLang) -> None:
    asked = [{"role": "user", "content": "count to a thousand"}]
    async with (
        AiohttpClient() as ours,
        httpx.AsyncClient(base_url=engine.url, timeout=60, trust_env=False) as client,
    ):
        door = Door(engine.url, None, ours, MonotonicClock(), timeout_s=10)
        async with client.stream(
            "POST", "/v1/chat/completions", json=body(asked, tokens=2000, stream=True)
        ) as stream:
            await anext(stream.aiter_lines())
            await eventually(lambda: engine.running() == 1, "it runs")
            async with asyncio.timeout(20):
                while True:
                    _, reading = await door.loads(Source.LOADS)
                    assert reading is not None
                    (load,) = reading.value
                    if load.in_flight_tokens:
                        break
            assert (load.running, load.waiting) == (1, 0)
            assert load.snapshot_age_s is not None
            assert load.snapshot_age_s < 5
        await eventually(lambda: engine.running() == 0, "a stream that is left ends")
