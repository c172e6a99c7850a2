"""An SGLang plugin that lets HiCache run on a CPU.

The tree, the write policies, eviction, load-back, metrics and events are SGLang's own code. Only
what touches CUDA in the `direct` and `layer_first` path of plain attention is replaced: page-locked
memory by plain memory, the copy between pools by torch's indexing, stream events by events that
have always happened. So which tokens are where is true, and how long a copy takes is not.

Source: SGLang 0.5.23, srt/mem_cache/pool_host and srt/plugins.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def register() -> None:
    """Called by SGLang in each of its processes, through the entry point."""
    from sglang.srt.mem_cache.pool_host import base, common, mha

    common.ALLOC_MEMORY_FUNCS["cpu"] = allocate
    mha.transfer_kv_direct = transfer
    base.HostKVCache._allocate_host_buffer = unpinned(base.HostKVCache._allocate_host_buffer)
    torch.cpu.Event = Event
    stream = type(torch.cpu.current_stream())
    for name in ("wait_event", "wait_stream", "synchronize", "record_event"):
        if not hasattr(stream, name):
            setattr(stream, name, nothing)


def allocate(
    dims: Sequence[int],
    dtype: torch.dtype,
    device: str,
    pin_memory: bool,
    allocator: Any,
    registration_granularity_bytes: int | None = None,
) -> torch.Tensor:
    """Host memory, not registered with a driver that is not there."""
    del pin_memory, registration_granularity_bytes
    if allocator is not None:
        return allocator.allocate(dims, dtype=dtype, device=device)
    return torch.empty(dims, dtype=dtype, device=device)


def unpinned(allocate_buffer: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same, with page-locking off."""

    def allocate_unpinned(pool: Any) -> None:
        pool.pin_memory = False
        allocate_buffer(pool)

    return allocate_unpinned


def transfer(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copies KV between two pools, layer by layer."""
    del page_size
    src, dst = src_indices.cpu().long(), dst_indices.cpu().long()
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst] = source[src].to(target.dtype)


def nothing(*_: object, **__: object) -> None:
    """Work on a CPU is done when the call returns: there is nothing to wait for."""


class Event:
    """A CUDA event on a machine where everything has happened already."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def elapsed_time(self, _: "Event") -> float:
        """Milliseconds between two events."""
        return 0.0

    record = wait = synchronize = nothing
