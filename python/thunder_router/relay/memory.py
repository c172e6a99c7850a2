"""What becomes of memory that was freed."""

import ctypes
from typing import Final

__all__ = ["keep_freed"]

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 * 1024 * 1024
_AHEAD_BYTES: Final = 1024 * 1024


def keep_freed() -> bool:
    """Keeps up to 32 MiB of freed memory for the next request's body.

    glibc gives memory at the top of its heap back as soon as 128 KiB of it are free, which is one
    agent's prompt: the pages of every third 100 KB body were given back, taken again, and zeroed by
    the kernel on the way.

    Returns:
        Whether this C library could be told.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    told = [
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES),
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES),
        mallopt(_TOP_PAD, _AHEAD_BYTES),
    ]
    return all(told)
