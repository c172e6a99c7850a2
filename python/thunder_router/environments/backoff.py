"""How long to wait before trying again."""

import random
from typing import Final

__all__ = ["CAP_MS", "FIRST_MS", "delay_ms"]

FIRST_MS: Final = 500
CAP_MS: Final = 60_000


def delay_ms(attempts: int, dice: random.Random) -> int:
    """Milliseconds before the next try, after `attempts` ≥ 1 that failed.

    Full jitter: anywhere between 0 and the exponential bound, so that many teardowns that failed
    together do not come back together.

    Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    bound = min(CAP_MS, FIRST_MS << min(attempts - 1, 16))
    return dice.randint(0, bound)
