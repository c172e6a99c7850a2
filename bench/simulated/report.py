"""The tables of README.md, and the pictures in results/."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.simulated.days import Days
from bench.simulated.scenarios import DAY, Scenario, Sweep
from bench.tables import figure, table
from thunder_router.emulator.comparison import charts
from thunder_router.plot import Line, Point, svg

__all__ = ["ROUTERS", "TARGETS", "Target", "describe", "picture", "report"]

ROUTERS = ("cache_aware", "ttl", "thunder_agent", "paper", "adaptive", "bound")
"""Of a single scenario, from left to right."""
SIMULATED = "Simulated; nothing here was measured on a GPU."


@dataclass(frozen=True)
class Target:
    """A ratio that the adaptive policy is to reach in a scenario."""

    scenario: str
    to: str
    least: float


TARGETS = (
    Target("mini-SWE, 2 workers, 144", "cache_aware", 2.0),
    Target("OpenHands, 2 workers, 144", "cache_aware", 3.5),
    Target("Claude Code, Qwen3-Coder-30B, 4 workers, 256", "cache_aware", 2.4),
    Target("mini-SWE, 2 workers, 144", "thunder_agent", 1.13),
    Target("OpenHands, 2 workers, 144", "thunder_agent", 1.18),
    Target("mini-SWE, 96", "paper", 1.05),
    Target("OpenHands, 96", "paper", 1.12),
    Target("Claude Code, Qwen3-Coder-30B, 64", "paper", 2.3),
)
NEVER_BELOW = Target("", "thunder_agent", 0.97)
"""Of the public ThunderAgent, in every scenario."""
LONGEST_HOLD = ("Claude Code, Qwen3-Coder-30B, 4 workers, 256", 1_300.0)
"""Seconds."""
LINEAR_WITHIN = 0.05


def report(days: Days, scenarios: Sequence[Scenario], sweeps: Sequence[Sweep], origin: str) -> str:
    """The section of README.md."""
    names = [scenario.name for scenario in scenarios]
    seeds = ", ".join(map(str, days.seeds))
    parts = [
        origin,
        f"Simulated, {DAY.measured_s // 60} virtual minutes after {DAY.warmup_s // 60} to warm up "
        f"(15 after 10 where workers are swept), seeds {seeds}. "
        "Ratios are of steps per minute, with their 95 % intervals.",
    ]
    if names:
        parts += [_throughput(days, names), _waiting(days, names)]
    aims = list(_targets(days, names, sweeps))
    if aims:
        parts.append(table(["target for adaptive", "limit", "simulated", "met"], aims))
    for sweep in sweeps:
        parts.append(f"![{sweep.title}, simulated](results/simulated-{sweep.name}.svg)")
    return "\n\n".join(parts)


def _throughput(days: Days, names: Sequence[str]) -> str:
    head = ["simulated, steps/min", *ROUTERS, "adaptive / cache_aware"]
    head += ["/ thunder_agent", "/ paper", "/ bound"]
    rows = [
        [
            name,
            *(_rate(days.steps(name, router).mean) for router in ROUTERS),
            *(
                str(days.ratio(name, "adaptive", to))
                for to in ("cache_aware", "thunder_agent", "paper", "bound")
            ),
        ]
        for name in names
    ]
    return table(head, rows)


def _waiting(days: Days, names: Sequence[str]) -> str:
    head = ["adaptive, and thunder_agent in brackets", "programs/h", "hit rate"]
    head += ["turn p50, s", "hold p99, s", "longest hold, s"]

    def cells(name: str, router: str) -> list[str]:
        return [
            figure(days.mean(name, router, lambda day: day.programs_per_hour)),
            f"{days.mean(name, router, lambda day: day.hit_rate):.2f}",
            figure(days.mean(name, router, lambda day: day.turn_p50_ms) / 1e3, 1),
            figure(days.mean(name, router, lambda day: day.hold_p99_ms) / 1e3),
            figure(days.most(name, router, lambda day: day.hold_max_ms) / 1e3),
        ]

    rows = [
        [
            name,
            *(
                f"{ours} ({theirs})"
                for ours, theirs in zip(
                    cells(name, "adaptive"), cells(name, "thunder_agent"), strict=True
                )
            ),
        ]
        for name in names
    ]
    return table(head, rows)


def _targets(days: Days, names: Sequence[str], sweeps: Sequence[Sweep]) -> Iterator[list[str]]:
    for target in TARGETS:
        if target.scenario in names:
            ratio = days.ratio(target.scenario, "adaptive", target.to)
            met = ratio.mean >= target.least
            name = f"{target.scenario}: of {target.to}"
            yield [name, f"≥ {target.least:.2f}×", str(ratio), "yes" if met else "no"]
    ratios = {name: days.ratio(name, "adaptive", NEVER_BELOW.to) for name in names}
    if ratios:
        worst = min(ratios, key=lambda name: ratios[name].mean)
        met = ratios[worst].mean >= NEVER_BELOW.least
        name = f"every scenario: of {NEVER_BELOW.to}; least in {worst}"
        yield [name, f"≥ {NEVER_BELOW.least}×", str(ratios[worst]), "yes" if met else "no"]
    scenario, limit = LONGEST_HOLD
    if scenario in names:
        longest = days.most(scenario, "adaptive", lambda day: day.hold_max_ms) / 1e3
        met = longest <= limit
        cells = [f"≤ {figure(limit)} s", f"{figure(longest)} s", "yes" if met else "no"]
        yield [f"{scenario}: longest hold", *cells]
    for sweep in sweeps:
        if sweep.axis == "workers":
            off = max(abs(each - 1) for each in _per_worker(days, sweep))
            met = off <= LINEAR_WITHIN
            cells = [f"within {LINEAR_WITHIN:.0%}", f"{off:.1%}", "yes" if met else "no"]
            yield [f"{sweep.sizes[0]} to {sweep.sizes[-1]} workers: linear", *cells]


def _per_worker(days: Days, sweep: Sweep) -> Iterator[float]:
    """Steps per minute and worker at each size, beside the smallest's."""
    rates = [
        days.steps(scenario.name, "adaptive").mean / size for size, scenario in sweep.scenarios()
    ]
    return (rate / rates[0] for rate in rates[1:])


def picture(days: Days, sweep: Sweep, origin: str) -> str:
    """Throughput beside what was published, hit rate, turns and holds against the load."""
    played = {
        router: [(size, days.played[one.name, router]) for size, one in sweep.scenarios()]
        for router in sweep.routers
    }
    throughput, *others = charts(sweep.axis, played)
    published = [
        Line(name, [Point(size, rate) for size, rate in zip(sweep.sizes, rates, strict=True)])
        for name, rates in sweep.published.items()
    ]
    throughput = replace(throughput, lines=[*throughput.lines, *published])
    return svg(f"{sweep.title}, simulated", [throughput, *others], caption=f"{SIMULATED} {origin}")


def describe(days: Days, name: str, routers: Sequence[str]) -> str:
    """One line for those who wait."""
    rates = (f"{router} {_rate(days.steps(name, router).mean)}" for router in routers)
    return f"{name}: {', '.join(rates)}"


def _rate(steps_per_min: float) -> str:
    return figure(steps_per_min, 0 if steps_per_min >= 20 else 1)
