"""Sums and histograms of a worker's finished requests: the tokenizer side of its metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thunder_router._core import Finished
    from thunder_router.emulator.worker import Turn

__all__ = ["Histogram", "Tally"]

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
_LAGS = tuple(0.001 * 1.25**step for step in range(48))
_TOKENS = (100, 300, 500, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3)


@dataclass
class Histogram:
    """Counts of observations by upper bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def quantile(self, share: float) -> float:
        """The least bound that so large a share of the values does not exceed; 0 without any."""
        below, wanted = 0, share * sum(self.counts)
        for bound, count in zip(self.bounds, self.counts, strict=False):
            below += count
            if below >= wanted:
                return bound if below else 0.0
        return float("inf")

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class Tally:
    """Everything since the start. Times are virtual."""

    requests: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    """By whether they stream."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    cached_device_tokens: int = 0
    cached_host_tokens: int = 0
    aborted: int = 0
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    e2e_request_latency: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    inter_token_latency: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    prompt_lengths: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    output_lengths: Histogram = field(default_factory=lambda: Histogram(_TOKENS))

    event_lag: Histogram = field(default_factory=lambda: Histogram(_LAGS))
    """How late the process heard of its engines' events, in virtual seconds."""

    def started(self, stream: bool) -> None:
        """A request was taken."""
        self.requests[stream] += 1

    def finished(self, turn: Turn, event: Finished) -> None:
        """A request is over."""
        self.aborted += event.aborted
        self.prompt_tokens += event.prompt_tokens
        self.generation_tokens += event.completion_tokens
        self.cached_device_tokens += event.cached_device
        self.cached_host_tokens += event.cached_host
        self.prompt_lengths.observe(event.prompt_tokens)
        self.output_lengths.observe(event.completion_tokens)
        self.queue_time.observe(event.queue_us / 1e6)
        self.e2e_request_latency.observe((event.at_us - turn.arrived_us) / 1e6)
        if turn.first_us is not None:
            self.time_to_first_token.observe((turn.first_us - turn.arrived_us) / 1e6)
            if event.completion_tokens > 1:
                steps = event.completion_tokens - 1
                self.inter_token_latency.observe((event.at_us - turn.first_us) / 1e6 / steps)
