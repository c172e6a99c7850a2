"""A town of agents around one scheduler: the events that a cluster would bring, without a cluster.

Each program asks, is answered, runs a tool and asks again; after 26 turns (mini-SWE-agent's mean)
another takes its place. There are more programs than the workers' KV memory holds, so some always
wait. Time is virtual and goes on with the events, so that a scheduler of any speed meets the same
town; the dice are seeded. Every call into the core is timed alone: the town's own work is not in
the figures, the binding's is.
"""

import random
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns

from thunder_router.config import SchedulingSettings
from thunder_router.scheduling.core import Admit, Reject, Scheduler, scheduler_config

__all__ = ["CAPACITY", "TURNS", "Costs", "Town", "announce", "scheduler"]

CAPACITY = 615_000
"""Tokens of KV cache: GLM-4.6 FP8 on eight H100."""
TURNS = 26
_EVENTS_PER_PROGRAM = 4
"""Events before anything is measured, so that every program has had a turn or two."""


@dataclass
class Costs:
    """Nanoseconds of every call, in the order in which they were made."""

    event: "array[int]" = field(default_factory=lambda: array("q"))
    tick: "array[int]" = field(default_factory=lambda: array("q"))
    seconds: float = 0.0
    """Virtual seconds that these events span."""


def scheduler(policy: str, **settings: float) -> Scheduler:
    """One that holds as many as come, and some settings that are not the default."""
    chosen = {"policy": policy, "queue_limit": 10_000_000, "hold_limit_s": 3600, **settings}
    return Scheduler(scheduler_config(SchedulingSettings.model_validate(chosen)))


def announce(core: Scheduler, workers: int, tokens: int, now_ms: int, *, first: int = 0) -> None:
    """So many workers have that much KV memory from now on."""
    for worker in range(first, first + workers):
        core.worker_up(
            worker,
            0,
            device_tokens=tokens,
            host_tokens=2 * tokens,
            prefill_us_per_token=50.0,
            prefill_ns_per_token2=1.0,
            load_back_us_per_token=1.05,
            sessions=True,
            now_ms=now_ms,
        )


class Town:
    """Programs that live on `workers` workers.

    Attributes:
        core: The scheduler they all go through.
        now_ms: Virtual time.
    """

    def __init__(
        self, workers: int, programs: int, *, events_per_second: int, policy: str = "adaptive"
    ) -> None:
        self.core = scheduler(policy)
        self.now_ms = 1
        announce(self.core, workers, CAPACITY, self.now_ms)
        self._dice = random.Random(7)
        self._ms_per_event = 1000 / events_per_second
        self._clock = 1.0
        self._born = 0
        self._next_request = 0
        self._names: list[str] = []
        self._contexts: list[int] = []
        self._turns: list[int] = []
        for _ in range(programs):
            self._names.append("")
            self._contexts.append(0)
            self._turns.append(0)
            self._move_in(len(self._names) - 1)
        self._acting = deque(range(programs))
        self._running: deque[tuple[int, int]] = deque()
        self._asked: dict[int, int] = {}
        self.live(_EVENTS_PER_PROGRAM * programs)

    def live(self, events: int) -> Costs:
        """So many events, each followed by a tick, as the router does it."""
        costs = Costs()
        event, tick = costs.event.append, costs.tick.append
        core, since = self.core, self._clock
        for _ in range(events):
            self._clock += self._ms_per_event
            self.now_ms = int(self._clock)
            call = self._happens()
            if call is None:
                continue
            before = perf_counter_ns()
            call()
            between = perf_counter_ns()
            decisions = core.tick(self.now_ms)
            after = perf_counter_ns()
            event(between - before)
            tick(after - between)
            for decision in decisions:
                if isinstance(decision, Admit):
                    self._running.append((decision.request, self._asked.pop(decision.request)))
                elif isinstance(decision, Reject):
                    self._acting.append(self._asked.pop(decision.request))
        costs.seconds = (self._clock - since) / 1000
        return costs

    def _happens(self) -> Callable[[], object] | None:
        """What comes next: two questions and two answers to one report of progress."""
        match self._dice.randrange(5):
            case 0 | 1:
                return self._ask() or self._answer()
            case 2:
                return self._decode()
            case _:
                return self._answer() or self._ask()

    def _ask(self) -> Callable[[], object] | None:
        if not self._acting:
            return None
        agent = self._acting.popleft()
        request = self._next_request
        self._next_request += 1
        self._asked[request] = agent
        name, context, now = self._names[agent], self._contexts[agent], self.now_ms
        arrive = self.core.arrive
        return lambda: arrive(request, program=name, prompt_tokens=context, prefix=1, now_ms=now)

    def _decode(self) -> Callable[[], object] | None:
        if not self._running:
            return None
        request, _ = self._running[0]
        progress, now = self.core.progress, self.now_ms
        return lambda: progress(request, 100, now)

    def _answer(self) -> Callable[[], object] | None:
        if not self._running:
            return None
        request, agent = self._running.popleft()
        self._acting.append(agent)
        context, now = self._contexts[agent], self.now_ms
        self._contexts[agent] = context + 250 + 150
        self._turns[agent] += 1
        finished, release = self.core.finished, self.core.release
        gone = None
        if self._turns[agent] == TURNS:
            gone = self._names[agent]
            self._move_in(agent)

        def answered() -> None:
            finished(
                request,
                prompt_tokens=context,
                completion_tokens=250,
                cached_tokens=min(context, 1_600),
                tool="bash",
                now_ms=now,
            )
            if gone is not None:
                release(gone, now)

        return answered

    def _move_in(self, agent: int) -> None:
        self._born += 1
        self._names[agent] = f"agent-{self._born}"
        self._contexts[agent] = 2_000 + self._dice.randrange(12_000)
        self._turns[agent] = 0
