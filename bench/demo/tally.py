"""What one phase of the demo counted, in the emulated engine's own time."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Tally"]


@dataclass
class Tally:
    """Sums since the warm-up ended."""

    steps: int = 0
    programs_finished: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    longest_wait_s: float = 0.0
    measured_s: float = 0.0

    @classmethod
    def total(cls, tallies: Iterable["Tally"]) -> "Tally":
        """Of several agents."""
        whole = cls()
        for tally in tallies:
            whole.steps += tally.steps
            whole.programs_finished += tally.programs_finished
            whole.prompt_tokens += tally.prompt_tokens
            whole.cached_tokens += tally.cached_tokens
            whole.recomputed_tokens += tally.recomputed_tokens
            whole.still_waiting(tally.longest_wait_s)
        return whole

    def step_ended(
        self, *, waited_s: float, prompt_tokens: int, cached_tokens: int, known_tokens: int
    ) -> None:
        """A turn was answered.

        Args:
            waited_s: From sending the request to the whole answer, virtual.
            prompt_tokens: Of this turn.
            cached_tokens: Of these, found in the KV cache.
            known_tokens: The program's context after its last turn: what need not have been
                computed again. 0 in its first turn.
        """
        self.steps += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.recomputed_tokens += max(0, min(known_tokens, prompt_tokens) - cached_tokens)
        self.still_waiting(waited_s)

    def still_waiting(self, waited_s: float) -> None:
        """A wait of this length was seen, whether or not it is over."""
        self.longest_wait_s = max(self.longest_wait_s, waited_s)

    @property
    def steps_per_minute(self) -> float:
        """Virtual."""
        return self.steps / self.measured_s * 60 if self.measured_s else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens found cached."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def recomputed_per_step(self) -> float:
        """Tokens that the engine had computed for the program before, and computed again."""
        return self.recomputed_tokens / self.steps if self.steps else 0.0
