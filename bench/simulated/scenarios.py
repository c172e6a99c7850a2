"""What is played: single scenarios, and sweeps over the number of programs or workers.

The loads are the paper's (arXiv 2602.13692, Fig. 4, 8, A.4 and Table 2), and what goes wrong in
practice. The model is GLM-4.6 on one worker, 96 programs, where nothing is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder_router.emulator.simulation import SimulationOptions

__all__ = ["DAY", "SWEEPS", "Scenario", "Sweep", "scenarios"]

DAY = SimulationOptions(warmup_s=900, measured_s=2700)
"""Long enough to see a hold of half an hour."""


@dataclass(frozen=True)
class Scenario:
    """One cluster and its load: what differs from `DAY`."""

    name: str
    differs: Mapping[str, Any]

    @property
    def day(self) -> SimulationOptions:
        """Its options."""
        return SimulationOptions.model_validate(DAY.model_dump() | dict(self.differs))


@dataclass(frozen=True)
class Sweep:
    """The same load at several sizes, drawn as one picture."""

    name: str
    title: str
    workload: str
    sizes: tuple[int, ...]
    differs: Mapping[str, Any] = field(default_factory=dict)
    axis: str = "programs"
    """What a size counts: programs, or workers with 72 programs each."""
    routers: tuple[str, ...] = ("adaptive", "paper", "thunder_agent", "ttl", "cache_aware", "bound")
    published: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What the paper reports of steps per minute at these sizes."""

    def scenarios(self) -> Iterator[tuple[int, Scenario]]:
        """One for each size."""
        for size in self.sizes:
            load = {"workers": size, "programs": PER_WORKER * size}
            scale = load if self.axis == "workers" else {"programs": size}
            differs = {"workload": self.workload, **self.differs, **scale}
            yield size, Scenario(f"{self.title}, {size} {self.axis}", differs)


PER_WORKER = 72


def scenarios(claude_code: str) -> tuple[Scenario, ...]:
    """All single scenarios.

    Args:
        claude_code: The workload that stands for Claude Code: a file of recorded sessions, or the
            fitted one.
    """
    two = {"workers": 2, "programs": 144}
    return (
        Scenario("mini-SWE, 96", {}),
        Scenario("OpenHands, 96", {"workload": "openhands"}),
        Scenario("ScienceAgent, 96", {"workload": "science"}),
        Scenario(
            "ToolOrchestra, Qwen3-8B, 48",
            {"workload": "toolorchestra", "model": "qwen3-8b", "programs": 48},
        ),
        Scenario("OSWorld (5 s tools), 96", {"workload": "osworld"}),
        Scenario("OpenHands, tools 8× slower, 96", {"workload": "openhands", "tool_scale": 8}),
        Scenario(
            "Claude Code, Qwen3-Coder-30B, 64",
            {"workload": claude_code, "model": "qwen3-coder-30b", "programs": 64},
        ),
        Scenario("Claude Code, GLM-4.6, 64", {"workload": claude_code, "programs": 64}),
        Scenario("mini-SWE, 2 workers, 144", two),
        Scenario("OpenHands, 2 workers, 144", {"workload": "openhands", **two}),
        Scenario(
            "Claude Code, Qwen3-Coder-30B, 4 workers, 256",
            {
                "workload": claude_code,
                "model": "qwen3-coder-30b",
                "workers": 4,
                "programs": 256,
            },
        ),
        Scenario("mini-SWE, never released, 96", {"never_release": True}),
        Scenario(
            "OpenHands, 2 workers, one lost for 5 min, 144",
            {"workload": "openhands", **two, "lose_worker": "1200:1500"},
        ),
        Scenario(
            "OpenHands, 2 workers of 615k and 308k tokens, 108",
            {
                "workload": "openhands",
                "workers": 2,
                "programs": 108,
                "worker_capacity": "615000,307500",
            },
        ),
    )


SWEEPS = (
    Sweep(
        "mini-swe",
        "mini-SWE, GLM-4.6",
        "mini-swe",
        (24, 48, 72, 96),
        published={
            "ThunderAgent, published": (220, 349, 382, 371),
            "vLLM, published": (222, 275, 162, 140),
        },
    ),
    Sweep(
        "openhands",
        "OpenHands, GLM-4.6",
        "openhands",
        (24, 48, 72, 96),
        published={
            "ThunderAgent, published": (155, 190, 188, 187),
            "vLLM, published": (153, 55, 46, 52),
        },
    ),
    Sweep(
        "science",
        "ScienceAgent, GLM-4.6",
        "science",
        (48, 72, 96, 120),
        published={
            "ThunderAgent, published": (40, 47, 50, 50),
            "vLLM, published": (40, 38, 39, 40),
        },
    ),
    Sweep(
        "toolorchestra",
        "ToolOrchestra, Qwen3-8B",
        "toolorchestra",
        (24, 32, 40, 48),
        {"model": "qwen3-8b"},
        published={
            "ThunderAgent, published": (6.1, 6.5, 7.0, 7.1),
            "vLLM, published": (5.1, 5.2, 5.5, 4.8),
        },
    ),
    Sweep(
        "hicache",
        "OpenHands, MiniMax-M2.5, HiCache 2×",
        "openhands",
        (64, 96, 128, 160, 192),
        {"model": "minimax-m2.5", "hicache_ratio": 2.0},
    ),
    Sweep(
        "workers",
        "mini-SWE, GLM-4.6, 72 programs a worker",
        "mini-swe",
        (2, 4, 8),
        # So many programs tell in half an hour what 96 tell in an hour.
        {"warmup_s": 600, "measured_s": 900},
        axis="workers",
        routers=("adaptive", "paper", "thunder_agent", "cache_aware", "bound"),
    ),
)
