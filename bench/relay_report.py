"""The relay's tables: cost per request and per chunk, latency, memory, and the targets."""

from bench.measure import SCENARIOS, Sample
from bench.results import Results
from bench.tables import figure, table

__all__ = ["TARGETS", "report"]

OURS = "thunder-router adaptive"
DIRECT = "direct"
ROUND_ROBIN = "sglang-router round_robin"
CACHE_AWARE = "sglang-router cache_aware"

TARGETS = (
    ("CPU of a small request, 64 in flight", "small-64", ROUND_ROBIN, 0.75),
    ("CPU of a 100 KB request, 32 in flight", "100k-32", CACHE_AWARE, 0.28),
    ("CPU of a paced SSE chunk, 200 streams", "sse-200", ROUND_ROBIN, 1.10),
)
"""What, in which scenario, against whom, and the ratio not to pass."""
CHUNK_DELAY_LIMIT_US = 500
RESIDENT_LIMIT_MB = 150


def _cpu_us(sample: Sample) -> float | None:
    return sample.cpu_us


def _per_second(sample: Sample) -> float:
    return sample.per_second


def _p50_us(sample: Sample) -> float:
    return sample.p50_us


def _p99_us(sample: Sample) -> float:
    return sample.p99_us


def report(results: Results) -> str:
    """All tables as Markdown."""
    parts = [
        f"{results.origin}. Medians of {results.rounds} interleaved rounds of "
        f"{results.seconds:g} s each; ratios are taken within a round.",
        _costs(results),
        _latencies(results),
        _targets(results),
    ]
    notes = [f"Not measured: {name} ({why})." for name, why in results.missing.items()]
    notes += [
        f"{failures:,} requests to {name} were not answered 200."
        for name in results.systems()
        if (failures := results.failures(name))
    ]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def _measured(results: Results) -> list[str]:
    """The names of the scenarios that ran."""
    ran = {scenario for _, _, scenario in results.samples}
    return [scenario.name for scenario in SCENARIOS if scenario.name in ran]


def _costs(results: Results) -> str:
    busy = [name for name in _measured(results) if not name.endswith("-1")]
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    head = ["CPU µs of the router for one", *(titles[name] for name in busy)]
    rows = []
    for system in results.systems():
        if system == DIRECT:
            continue
        cells = []
        for name in busy:
            cpu = figure(results.median(system, name, _cpu_us), 1)
            to = CACHE_AWARE if name.startswith(("100k", "conversation")) else ROUND_ROBIN
            ratio = results.ratio(system, to, name, _cpu_us)
            cells.append(f"{cpu} ({figure(ratio, 2)}×)" if ratio is not None else cpu)
        rows.append([system, *cells])
    note = (
        "In brackets the ratio to sglang-router: round_robin for small requests and chunks, "
        "cache_aware for 100 KB and conversations."
    )
    return f"{table(head, rows)}\n\n{note}"


def _latencies(results: Results) -> str:
    head = [
        *("", "small, 64 in flight, req/s", "100 KB, 32 in flight, req/s"),
        *("added p50 µs, small", "added p50 µs, 100 KB"),
        *("chunk delay µs, p50", "p99"),
        f"resident MB after {results.memory_prompts:,} different 100 KB prompts",
    ]
    rows = []
    for system in results.systems():
        resident = results.resident_bytes.get(system)
        rows.append(
            [
                system,
                figure(results.median(system, "small-64", _per_second)),
                figure(results.median(system, "100k-32", _per_second)),
                _added(results, system, "small-1"),
                _added(results, system, "100k-1"),
                figure(results.median(system, "sse-200", _p50_us)),
                figure(results.median(system, "sse-200", _p99_us)),
                f"{resident[1] / 1e6:,.0f} (idle {resident[0] / 1e6:,.0f})" if resident else "–",
            ]
        )
    return table(head, rows)


def _added(results: Results, system: str, scenario: str) -> str:
    if system == DIRECT:
        return "–"
    return figure(results.added(system, DIRECT, scenario, _p50_us))


def _targets(results: Results) -> str:
    rows = []
    for what, scenario, peer, limit in TARGETS:
        ratio = results.ratio(OURS, peer, scenario, _cpu_us)
        rows.append(_target(f"{what}, of {peer}'s", f"≤ {limit}×", ratio, limit, 2, "×"))
    rows += [
        _latency_target(results, "small-1", "small"),
        _latency_target(results, "100k-1", "100 KB"),
    ]
    delay = results.median(OURS, "sse-200", _p99_us)
    limit_text = f"≤ {CHUNK_DELAY_LIMIT_US} µs"
    rows.append(
        _target("p99 chunk delay, 200 streams", limit_text, delay, CHUNK_DELAY_LIMIT_US, 0, " µs")
    )
    resident = results.resident_bytes.get(OURS)
    megabytes = resident[1] / 1e6 if resident else None
    limit_text = f"≤ {RESIDENT_LIMIT_MB} MB"
    rows.append(_target("resident memory", limit_text, megabytes, RESIDENT_LIMIT_MB, 0, " MB"))
    return table([f"target for {OURS}", "limit", "measured", "met"], rows)


def _latency_target(results: Results, scenario: str, what: str) -> list[str]:
    peers = (ROUND_ROBIN, CACHE_AWARE)
    theirs = [results.added(peer, DIRECT, scenario, _p50_us) for peer in peers]
    limit = min((value for value in theirs if value is not None), default=None)
    ours = results.added(OURS, DIRECT, scenario, _p50_us)
    what = f"added p50, {what}: no more than the faster of its policies"
    return _target(what, f"≤ {figure(limit)} µs", ours, limit, 0, " µs")


def _target(
    what: str, limit_text: str, value: float | None, limit: float | None, digits: int, unit: str
) -> list[str]:
    if value is None or limit is None:
        return [what, limit_text, "–", "–"]
    return [what, limit_text, figure(value, digits) + unit, "yes" if value <= limit else "no"]
