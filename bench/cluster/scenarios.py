"""What is played: a cluster of emulated workers and the programs on it.

The days are those of `thunder-router simulate`, so every scenario can be simulated as well. Loads
are the paper's (arXiv 2602.13692, Fig. 4, 8, A.4 and Table 2), and what goes wrong in practice.
"""

from dataclasses import dataclass

from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["QUICK", "SCENARIOS", "Scenario"]


@dataclass(frozen=True)
class Scenario:
    """A day on a cluster.

    Attributes:
        title: As tables name it.
        day: Workload, engines and programs.
        speed: Engine seconds in a real one, unless told otherwise: what two cores keep up with.
    """

    title: str
    day: SimulationOptions
    speed: float = 20.0


_Named = dict[str, Scenario]


def _day(**differs: object) -> SimulationOptions:
    return SimulationOptions.model_validate({"warmup_s": 300, "measured_s": 660, **differs})


def _figure_4(letter: str, name: str, workload: str, model: str, sizes: tuple[int, ...]) -> _Named:
    return {
        f"fig4{letter}-{programs}": Scenario(
            f"{name}, {programs}", _day(workload=workload, model=model, programs=programs)
        )
        for programs in sizes
    }


def _claude_code(workers: int) -> Scenario:
    day = _day(
        workload="claude-code",
        model="qwen3-coder-30b",
        workers=workers,
        programs=64 * workers,
        warmup_s=900,
        measured_s=2700,
    )
    # Bodies of half a megabyte.
    return Scenario(f"Claude Code, {workers} workers of 64", day, 10.0)


SCENARIOS: _Named = {
    "mini-2": Scenario(
        "mini-SWE, 2 workers, 144",
        _day(workers=2, programs=144, warmup_s=240, measured_s=480),
        15.0,
    ),
    "openhands-2": Scenario(
        "OpenHands, 2 workers, 144",
        _day(workload="openhands", workers=2, programs=144, warmup_s=480, measured_s=480),
    ),
    **_figure_4("a", "mini-SWE", "mini-swe", "glm-4.6", (24, 48, 72, 96)),
    **_figure_4("b", "OpenHands", "openhands", "glm-4.6", (24, 48, 72, 96)),
    **_figure_4("c", "ToolOrchestra", "toolorchestra", "qwen3-8b", (24, 32, 40, 48)),
    **_figure_4("f", "ScienceAgent", "science", "glm-4.6", (48, 72, 96, 120)),
    "scale-2": Scenario("mini-SWE, 2 workers of 72", _day(workers=2, programs=144), 10.0),
    "scale-4": Scenario("mini-SWE, 4 workers of 72", _day(workers=4, programs=288), 8.0),
    "scale-8": Scenario("mini-SWE, 8 workers of 72", _day(workers=8, programs=576), 4.0),
    **{
        f"hicache-{programs}": Scenario(
            f"OpenHands, MiniMax-M2.5, HiCache 2×, {programs}",
            _day(workload="openhands", model="minimax-m2.5", hicache_ratio=2, programs=programs),
        )
        for programs in (64, 96, 128, 160, 192)
    },
    "claude-code-1": _claude_code(1),
    "claude-code-4": _claude_code(4),
    "slow-tools": Scenario(
        "OpenHands, tools 8× slower, 96", _day(workload="openhands", tool_scale=8)
    ),
    "osworld": Scenario("OSWorld (5 s tools), 96", _day(workload="osworld")),
    "never-released": Scenario("mini-SWE, never released, 96", _day(never_release=True)),
    "worker-lost": Scenario(
        "OpenHands, 2 workers, one lost for 5 min, 144",
        _day(workload="openhands", workers=2, programs=144, lose_worker=((420, 720),)),
    ),
    "unequal": Scenario(
        "OpenHands, workers of 615k and 308k tokens, 108",
        _day(workload="openhands", workers=2, programs=108, worker_capacity=(615_000, 307_500)),
    ),
}
"""By name. The model is GLM-4.6 on one worker where nothing is said."""

QUICK = ("mini-2", "openhands-2")
