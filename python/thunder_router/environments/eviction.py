"""Which images to remove so that so many bytes come free. Pure.

Images share layers, so what a set of them frees is not the sum of their sizes: a layer goes only
with the last image that has it. The plan takes images in the order of their last use until the
layers used by nothing else amount to what is needed, then gives back those it took in vain.
"""

from collections.abc import Mapping, Sequence

from thunder_router.environments.engine import Layer

__all__ = ["exclusive_bytes", "plan"]

_Images = Mapping[str, Sequence[Layer]]


def exclusive_bytes(images: _Images, evicted: Sequence[str]) -> int:
    """Bytes on disk that only the evicted images use.

    Source: measured on Docker 20.10.24: the engine stores each chain id once, and `du` over its
    data falls by this sum, not by the sum of `Size`.
    """
    gone = set(evicted)
    kept = {layer.chain_id for ref, layers in images.items() if ref not in gone for layer in layers}
    freed = {layer.chain_id: layer.size_bytes for ref in gone for layer in images[ref]}
    return sum(size for chain_id, size in freed.items() if chain_id not in kept)


def plan(images: _Images, candidates: Sequence[str], needed_bytes: int) -> list[str]:
    """The images to evict, in order.

    Args:
        images: Layers of every image on the engine, the ones to keep included.
        candidates: What may go, least recently used first.
        needed_bytes: What must come free; if it cannot be had, everything that may go goes.
    """
    chosen: list[str] = []
    for ref in candidates:
        if exclusive_bytes(images, chosen) >= needed_bytes:
            break
        chosen.append(ref)
    for ref in reversed(list(chosen)):
        without = [other for other in chosen if other != ref]
        if exclusive_bytes(images, without) >= needed_bytes:
            chosen = without
    return chosen
