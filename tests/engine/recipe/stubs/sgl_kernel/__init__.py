"""Stands in for SGLang's CUDA kernels, whose wheel cannot be imported without CUDA.

SGLang imports names from here on a CPU too, and does not call them for a plain model on a processor
without AMX. Each name is a function that raises, so nothing is computed by this stub.
"""

from collections.abc import Callable
from typing import NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    """A kernel that is not there."""

    def kernel(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} was called on a CPU")

    return kernel


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(name)
