"""No bytes a worker may send make an adapter raise, and what it reads is always in range.

The recorded answers are mutated: fields go missing, others appear, types change, numbers become NaN
or huge, lines are cut. A version not written yet looks like that too.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from fake_worker import CAPTURES, FILES
from thunder_router.config import WorkerEntry
from thunder_router.workers import sglang, vllm
from thunder_router.workers.clock import MonotonicClock
from thunder_router.workers.compose import Seen, compose
from thunder_router.workers.http import Answer
from thunder_router.workers.offer import offers_of
from thunder_router.workers.probe import Door, probe
from thunder_router.workers.report import Reading, Source, WorkerReport

BODIES = {path: path.read_bytes() for path in sorted(CAPTURES.glob("*/*.body"))}
JSONS = [path for path, body in BODIES.items() if body.lstrip()[:1] in (b"{", b"[")]
METRICS = [path for path in BODIES if path.name.startswith("metrics")]

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.sampled_from(["", " ", "0.0.0", "nan", "inf", "1e400", "9" * 400, "\ud800", "-1", "4096"]),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just({"a": {"b": []}}),
    st.just([[[[1]]]]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything in a JSON value."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any, *, cut: bool) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        if cut:
            del copy[path[0]]
        else:
            copy[path[0]] = new
    else:
        copy[path[0]] = put(value[path[0]], path[1:], new, cut=cut)
    return copy


@st.composite
def mutated_json(draw: st.DrawFn) -> bytes:
    value = json.loads(BODIES[draw(st.sampled_from(JSONS))])
    for _ in range(draw(st.integers(1, 4))):
        ways = places(value)
        interesting = [way for way in ways if INTERESTING & {str(part) for part in way}] or ways
        way = draw(st.sampled_from(interesting))
        value = put(value, way, draw(ODD), cut=draw(st.booleans()))
    return json.dumps(value).encode("utf-8", "surrogatepass")


INTERESTING = {
    "loads", "internal_states", "memory_usage", "timestamp", "dp_rank", "max_total_num_tokens",
    "page_size", "dp_size", "version", "startup_time", "kv_events", "architectures", "data",
    "max_model_len", "id", "hicache_ratio", "hicache_size", "hicache_write_policy", "num_reqs",
    "num_tokens", "num_waiting_reqs", "total_prefill_busy_us", "enable_hierarchical_cache",
}  # fmt: skip


@st.composite
def mutated_metrics(draw: st.DrawFn) -> bytes:
    lines = BODIES[draw(st.sampled_from(METRICS))].decode().splitlines()
    names = gauge_names(lines)
    wanted = [n for n, line in enumerate(lines) if line.partition("{")[0] in names]
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.sampled_from(wanted))
        old = lines[place]
        value = draw(st.sampled_from(["NaN", "+Inf", "-1", "1e300", "0.5", "", "x", "4096.0 17"]))
        lines[place] = draw(
            st.sampled_from(
                [
                    "",
                    old[: len(old) // 2],
                    old.rsplit(" ", 1)[0] + " " + value,
                    old.replace('dp_rank="0"', 'dp_rank="-3"'),
                    old.replace('dp_rank="0"', 'dp_rank="99999999999"'),
                    old.replace('="', '="\\"'),
                    old.replace("{", "{dp_rank=\"1\","),
                    old.replace("{", ""),
                    old + old,
                ]
            )
        )  # fmt: skip
    return "\n".join(lines).encode()


def gauge_names(lines: list[str]) -> set[str]:
    """The series that a reader may look at."""
    names = {line.partition("{")[0] for line in lines}
    pieces = ("_tokens", "_reqs", "page_size", "cache_config", "usage", "requests_", "_hits")
    return {name for name in names if any(piece in name for piece in pieces)}


def check(report: WorkerReport) -> None:
    """Whatever was read, it is of the type and in the range that the report promises."""
    for offer in offers_of(report, WorkerEntry(url="http://w")):
        assert offer.device_tokens is None or 0 < offer.device_tokens <= 1 << 53
        assert offer.host_tokens >= 0
        assert math.isfinite(offer.costs.prefill_us_per_token)
    assert [rank.rank for rank in report.ranks] == list(range(len(report.ranks)))
    assert 1 <= len(report.ranks) <= 1024
    for rank in report.ranks:
        for name in ("running", "waiting", "in_flight_tokens", "evictable_tokens"):
            reading = getattr(rank, name)
            assert reading is None or (type(reading.value) is int and reading.value >= 0)


READERS: list[Callable[[bytes], object]] = [
    sglang.facts,
    sglang.model_facts,
    sglang.loads,
    sglang.get_load,
    sglang.gauges,
    vllm.version,
    vllm.gauges,
    lambda body: vllm.facts(None, metrics=True, kv_events=body),
]


@settings(max_examples=150, deadline=None)
@given(st.one_of(mutated_json(), mutated_metrics(), st.binary(max_size=200)))
def test_no_reader_raises_whatever_it_reads(body: bytes) -> None:
    for read in READERS:
        read(body)


@settings(max_examples=150, deadline=None)
@given(mutated_json(), mutated_json(), mutated_metrics())
def test_a_report_of_mutated_answers_stays_in_range(info: bytes, load: bytes, page: bytes) -> None:
    facts, lines = sglang.facts(info), sglang.loads(load) or sglang.get_load(load)
    check(
        compose(
            Seen(
                facts=Reading(facts, Source.SERVER_INFO, 0.0) if facts else None,
                loads=Reading(lines, Source.LOADS, 0.0) if lines else None,
                gauges=Reading(sglang.gauges(page), Source.METRICS, 0.0),
                model_facts=Reading(sglang.model_facts(info), Source.MODEL_INFO, 0.0),
            ),
            WorkerEntry(url="http://w"),
        )
    )


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"loads":' * 50_000, b"1" * 5000, b"\xff\xfe", b"null", b"{}", b"[]", b""],
)
def test_hostile_json_reads_as_nothing(body: bytes) -> None:
    assert sglang.facts(body) is None
    assert not sglang.loads(body)


class Noise:
    """A server that answers every question with the same status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    async def ask(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        key: SecretStr | None = None,
        body: bytes | None = None,
    ) -> Answer:
        return Answer(self.status, self.body)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([200, 204, 301, 401, 404, 418, 500, 503]),
    st.one_of(mutated_json(), mutated_metrics(), st.binary(max_size=50)),
)
async def test_a_probe_of_a_server_that_talks_nonsense_ends(status: int, body: bytes) -> None:
    found = await probe(Door("http://w", None, Noise(status, body), MonotonicClock(), 1.0))
    check(compose(found.seen, WorkerEntry(url="http://w")))
    known = found.seen.facts is not None or found.seen.models is not None
    known = known and status != 401
    assert known == (found.problem is None)


def test_every_recorded_answer_is_read_by_somebody() -> None:
    names = {path.stem for path in BODIES} - {"metrics_exercise", "metrics_overload"}
    assert names <= set(FILES.values())
