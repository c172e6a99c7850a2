"""A full cluster loses a part of its KV memory and gets it back: what must be paused and restored.

It is the one thing that every program-aware scheduler does, so it is what ours is compared in with
others. All are given the same programs; all run a tool when the memory goes, and all want to go on
when it is back.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from bench.town import CAPACITY, announce, scheduler
from thunder_router.scheduling.core import Admit, Pause, Scheduler

__all__ = ["SHARE", "Relief", "full_cluster", "relief"]

SHARE = 0.2
"""Of the capacity, what goes away and comes back."""
_FULL = 0.87
"""Of the capacity, what the programs hold: all that admission lets in under every policy."""
_PAUSE_MS = 10_000
"""Virtual time between the parts, so that the paper's policy is due at each of them."""


@dataclass(frozen=True)
class Relief:
    """Seconds of one relief and one refill of a whole cluster, and how many programs moved."""

    pause_s: float
    paused: int
    restore_s: float
    restored: int

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.pause_s + self.restore_s


def full_cluster(workers: int, programs_each: int) -> list[list[int]]:
    """Tokens of every program, worker by worker; all of them fit."""
    dice = random.Random(11)
    cluster = []
    for _ in range(workers):
        sizes = [dice.uniform(2_000, 14_000) for _ in range(programs_each)]
        scale = _FULL * CAPACITY / sum(sizes)
        cluster.append([int(size * scale) for size in sizes])
    return cluster


def relief(policy: str, cluster: Sequence[Sequence[int]]) -> Relief:
    """One relief and one refill by our scheduler under that policy.

    The paper's policy counts idle programs in full here, as ThunderAgent's code does unless told
    otherwise: decayed ones would leave nothing to do.
    """
    core = scheduler(policy, paper_half_life_s=1e6)
    workers = len(cluster)
    sizes = _move_in(core, cluster)
    now_ms = _PAUSE_MS
    core.tick(now_ms)
    now_ms += _PAUSE_MS
    before = perf_counter()
    announce(core, workers, round(CAPACITY * (1 - SHARE)), now_ms)
    decisions = core.tick(now_ms)
    pause_s = perf_counter() - before
    paused = [decision.program for decision in decisions if isinstance(decision, Pause)]
    for request, name in enumerate(paused, start=len(sizes)):
        core.arrive(request, program=name, prompt_tokens=sizes[name], now_ms=now_ms)
    core.tick(now_ms)
    now_ms += _PAUSE_MS
    before = perf_counter()
    announce(core, workers, CAPACITY, now_ms)
    decisions = core.tick(now_ms)
    restore_s = perf_counter() - before
    restored = sum(isinstance(decision, Admit) for decision in decisions)
    return Relief(pause_s, len(paused), restore_s, restored)


def _move_in(core: Scheduler, cluster: Sequence[Sequence[int]]) -> dict[str, int]:
    """Every program has had a turn and runs a tool. Returns their tokens by name."""
    sizes: dict[str, int] = {}
    for worker, contexts in enumerate(cluster):
        announce(core, 1, CAPACITY, 0, first=worker)
        for index, tokens in enumerate(contexts):
            name, request = f"{worker}/{index}", len(sizes)
            sizes[name] = tokens
            core.arrive(request, program=name, prompt_tokens=tokens, now_ms=0)
            core.tick(0)
            core.finished(request, prompt_tokens=tokens, completion_tokens=0, now_ms=0)
    return sizes
