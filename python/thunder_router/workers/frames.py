"""Reads what ranks publish: loads, and what happens to blocks of KV.

A message is three frames: a topic, a sequence number (8 bytes, big-endian), and MessagePack. As
everywhere among the adapters, a message that is not what it should be is read as nothing at all,
and none makes this raise.

Source: SGLANG.md §1.3 and §4, recorded from SGLang 0.5.8 to 0.5.23 and vLLM 0.32.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from thunder_router.workers.lenient import count, mapping, text
from thunder_router.workers.observations import RankLoad

__all__ = ["Batch", "Cleared", "Removed", "Stored", "Tier", "batch_of", "load_of", "sequence_of"]

_LOAD_FIELDS = 11


def sequence_of(frame: bytes) -> int | None:
    """The sequence number; -1 ends a replay."""
    return int.from_bytes(frame, "big", signed=True) if len(frame) == 8 else None


def _unpack(payload: bytes) -> object:
    try:
        value: object = msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return None
    return value


def load_of(frames: Sequence[bytes], rank: int) -> RankLoad | None:
    """A `LoadStat` of the rank that publishes at this port.

    Its fields, in order: running, waiting, tokens in use, capacity, DP rank, uncached tokens
    waiting, tokens in all, most that may run, tokens prefilled since start, µs spent on that.
    """
    if len(frames) != 3 or sequence_of(frames[1]) is None:
        return None
    said = _unpack(frames[2])
    if not isinstance(said, list) or len(said) < _LOAD_FIELDS or said[0] != "LoadStat":
        return None
    running, waiting, used, capacity = (count(value) for value in said[1:5])
    if running is None or waiting is None:
        return None
    return RankLoad(
        rank=rank,
        running=running,
        waiting=waiting,
        in_flight_tokens=used,
        device_tokens=capacity or None,
        prefilled_tokens=count(said[9]),
        prefill_us=count(said[10]),
    )


class Tier(StrEnum):
    """Where a block lies, as events call it."""

    DEVICE = "GPU"
    HOST = "CPU_PINNED"
    DISK = "DISK"


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks now lie in a tier; `block_size` tokens each."""

    hashes: tuple[Hashable, ...]
    tier: Tier
    block_size: int
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks lie in a tier no more."""

    hashes: tuple[Hashable, ...]
    tier: Tier


@dataclass(frozen=True, slots=True)
class Cleared:
    """The whole cache is empty."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one message.

    Attributes:
        whole: Each of them was understood.
    """

    events: tuple[Stored | Removed | Cleared, ...]
    whole: bool = True


_POSITIONS = {
    "BlockStored": ("block_hashes", "parent", "token_ids", "block_size", "lora_id", "medium"),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}
"""Fields in order, as SGLang wrote them up to 0.5.18; since then each has its name."""


def batch_of(payload: bytes) -> Batch | None:
    """The third frame of a message about blocks: when, its events, and the rank."""
    said = _unpack(payload)
    if not isinstance(said, list) or len(said) < 2 or not isinstance(said[1], list):
        return None
    found = [_event(event) for event in said[1]]
    events = tuple(event for event in found if not isinstance(event, str))
    return Batch(events, whole="garbage" not in found)


def _event(said: object) -> Stored | Removed | Cleared | str:
    """An event; `beside` for one that counts nothing here, `garbage` for what is none."""
    if isinstance(said, list) and said and isinstance(said[0], str):
        kind: object = said[0]
        fields = dict(zip(_POSITIONS.get(said[0], ()), said[1:], strict=False))
    else:
        fields = dict(mapping(said))
        kind = fields.get("type")
    if kind == "AllBlocksCleared":
        return Cleared()
    if fields.get("group_idx") not in (None, 0):
        return "beside"  # further groups of a hybrid model hold the same tokens in other layers
    hashes = fields.get("block_hashes")
    if kind not in _POSITIONS or not isinstance(hashes, list):
        return "garbage"
    if not all(isinstance(name, (int, str, bytes)) for name in hashes):
        return "garbage"
    medium = fields.get("medium") or Tier.DEVICE
    tier = next((known for known in Tier if known == medium), None)
    if tier is None:
        return "beside" if isinstance(medium, str) else "garbage"
    if kind == "BlockRemoved":
        return Removed(tuple(hashes), tier)
    size = count(fields.get("block_size"))
    if not size:
        return "garbage"
    return Stored(tuple(hashes), tier, size, text(fields.get("session_id")))
