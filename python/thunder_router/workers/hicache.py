"""How much KV a worker with HiCache can hold, and how much of it is worth counting on.

HiCache keeps a second tier of KV in host memory, per DP rank. Only `/metrics` says how large it is,
and only since SGLang 0.5.10; otherwise it follows from the two flags that size it.

Source: SGLANG.md §3.2, from SGLang 0.5.23 `srt/mem_cache/memory_pool_host.py`, and measured there.
"""

import math

from thunder_router.workers.report import WritePolicy

__all__ = ["bytes_per_token", "host_tokens_by_ratio", "host_tokens_by_size", "reach_tokens"]


def _whole_pages(tokens: float, page_size: int) -> int:
    return (math.floor(tokens) // page_size + 1) * page_size


def host_tokens_by_ratio(device_tokens: int, ratio: float, page_size: int) -> int:
    """Host tier in tokens for `--hicache-ratio`; 4096 tokens, ratio 2, page 16 make 8208.

    From SGLang 0.5.22 a ratio that was not given explicitly shrinks to what 80 % of free memory
    holds, so this is an upper bound there.

    Args:
        device_tokens: KV capacity of the rank's device.
        ratio: Host over device, above 0.
        page_size: Allocation unit in tokens, at least 1.
    """
    return _whole_pages(device_tokens * ratio, page_size)


def host_tokens_by_size(size_gb: float, bytes_each: float, page_size: int) -> int:
    """Host tier in tokens for `--hicache-size`; 1 GB, 512 bytes, page 16 make 1,953,136.

    Args:
        size_gb: Gigabytes (1e9) per rank, above 0.
        bytes_each: Bytes of KV per token on this rank, above 0.
        page_size: Allocation unit in tokens, at least 1.
    """
    return _whole_pages(size_gb * 1e9 / bytes_each, page_size)


def bytes_per_token(pool_gib: float, device_tokens: int, page_size: int) -> float:
    """Bytes of KV per token on one rank, from the size of its pool.

    The pool holds one page more than its capacity, for padding.
    Source: captures of 0.5.23: 0.00196075 GiB for 4096 tokens with pages of 16 are 512 bytes each.
    """
    return pool_gib * (1 << 30) / (device_tokens + page_size)


def reach_tokens(device_tokens: int, host_tokens: int, policy: WritePolicy | None) -> int | None:
    """Tokens of KV that can be had again without recomputing them.

    `write_through` copies at once, so the host tier mirrors the device: the larger of the two.
    `write_back` copies on eviction, so the tiers add up. `write_through_selective` copies only what
    was hit twice, which nobody can count on: the device alone. With a host tier under an unknown
    policy, nobody knows.

    Source: SGLANG.md §3.2 (measured: host use after six programs under each policy).
    """
    match policy:
        case WritePolicy.WRITE_THROUGH:
            return max(device_tokens, host_tokens)
        case WritePolicy.WRITE_BACK:
            return device_tokens + host_tokens
        case WritePolicy.SELECTIVE:
            return device_tokens
        case None:
            return device_tokens if host_tokens == 0 else None
