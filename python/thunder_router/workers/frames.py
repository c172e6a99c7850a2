"""Reads what ranks publish: loads, and what happens to blocks of KV.

A message is three frames: a topic, a sequence number (8 bytes, big-endian), and MessagePack. As
everywhere among the adapters, a message that is not what it should be is read as nothing at all,
and none makes this raise.

Source: SGLANG.md §1.3 and §4, recorded from SGLang 0.5.8 to 0.5.23 and vLLM 0.32.
"""

from collections.abc import Sequence

import msgspec

from thunder_router.workers.lenient import count
from thunder_router.workers.observations import RankLoad

__all__ = ["load_of", "sequence_of"]

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
