"""What is played: a cluster of emulated workers and the programs on it.

The days are those of `thunder-router simulate`, so every scenario can be simulated as well.
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
    speed: float = 15.0


_Named = dict[str, Scenario]


def _day(**differs: object) -> SimulationOptions:
    return SimulationOptions.model_validate({"warmup_s": 300, "measured_s": 900, **differs})


def _figure_4(letter: str, name: str, workload: str, model: str, sizes: tuple[int, ...]) -> _Named:
    return {
        f"fig4{letter}-{programs}": Scenario(
            f"{name}, {programs}", _day(workload=workload, model=model, programs=programs)
        )
        for programs in sizes
    }


SCENARIOS: _Named = {
    "mini-2": Scenario("mini-SWE, 144 on two workers", _day(workers=2, programs=144)),
    "openhands-2": Scenario(
        "OpenHands, 144 on two workers", _day(workload="openhands", workers=2, programs=144)
    ),
    **_figure_4("a", "mini-SWE", "mini-swe", "glm-4.6", (24, 48, 72, 96)),
    **_figure_4("b", "OpenHands", "openhands", "glm-4.6", (24, 48, 72, 96)),
    **_figure_4("c", "ToolOrchestra", "orchestra", "qwen3-8b", (24, 32, 40, 48)),
    **_figure_4("f", "ScienceAgent", "science", "glm-4.6", (48, 72, 96, 120)),
    "scale-2": Scenario("mini-SWE, 72 a worker, 2 workers", _day(workers=2, programs=144)),
    "scale-4": Scenario("mini-SWE, 72 a worker, 4 workers", _day(workers=4, programs=288), 8.0),
    "scale-8": Scenario("mini-SWE, 72 a worker, 8 workers", _day(workers=8, programs=576), 4.0),
    **{
        f"hicache-{programs}": Scenario(
            f"OpenHands, {programs}, MiniMax, HiCache 2×",
            _day(workload="openhands", model="minimax-m2.5", hicache_ratio=2, programs=programs),
        )
        for programs in (64, 96, 128, 160, 192)
    },
    "slow-tools": Scenario(
        "OpenHands, 96, tools 8× slower", _day(workload="openhands", tool_scale=8)
    ),
    "osworld": Scenario("OSWorld, 96, tools of 5 s", _day(workload="osworld")),
    "never-released": Scenario("mini-SWE, 96, never released", _day(never_release=True)),
    "worker-lost": Scenario(
        "mini-SWE, 144 on two workers, one lost for 2 min",
        _day(workers=2, programs=144, lose_worker=((600, 720),)),
    ),
    "unequal": Scenario(
        "mini-SWE, 144, workers of 410,000 and 820,000 tokens",
        _day(workers=2, programs=144, worker_capacity=(410_000, 820_000)),
    ),
}
"""By name. The model is GLM-4.6 on one worker where nothing is said."""

QUICK = ("mini-2", "openhands-2")
