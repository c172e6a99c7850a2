"""Which program's KV lies where on one rank, from the events that it publishes.

Each block has a hash, a size in tokens, and the tiers that hold it: a copy in host memory outlives
the one on the device. A block belongs to the first session that was named for it; blocks of no
session are counted together. Sessions are named by program (see `sessions`), so this is residency
per program. No more than so many blocks are remembered: past that the oldest are forgotten, and
what is said of the rest is no longer complete.

Source: SGLANG.md §4 (measured on 0.5.23: write_through stores on GPU, then CPU_PINNED; eviction
removes from each by itself).
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from thunder_router.workers.frames import Batch, Cleared, Removed, Stored, Tier

__all__ = ["MOST_SHOWN", "RankResidency", "Residency", "SessionTokens"]

MOST_SHOWN = 100
"""Sessions that a report names, largest first."""


@dataclass(frozen=True, slots=True)
class SessionTokens:
    """Tokens of KV by tier; one in two tiers counts in both. Without a session: of all blocks."""

    session: str | None
    device: int
    host: int
    disk: int


@dataclass(frozen=True, slots=True)
class RankResidency:
    """What one rank holds.

    Attributes:
        complete: Everything that it published since its cache was last empty is counted.
        total: All blocks, also those of no session.
        sessions: The largest of them, at most `MOST_SHOWN`.
    """

    rank: int
    complete: bool
    total: SessionTokens
    sessions: tuple[SessionTokens, ...]


_BITS = {tier: 1 << place for place, tier in enumerate(Tier)}


@dataclass(slots=True)
class _Block:
    session: str | None
    tokens: int
    tiers: int = 0
    """Bits of `_BITS`: a set would be most of the memory."""

    def held_in(self) -> list[Tier]:
        """The tiers that hold it."""
        return [tier for tier, bit in _BITS.items() if self.tiers & bit]


class Residency:
    """The blocks of one rank."""

    def __init__(self, most_blocks: int) -> None:
        """Empty, and complete."""
        self._most = most_blocks
        self._blocks: dict[Hashable, _Block] = {}
        self._tokens: dict[str | None, dict[Tier, int]] = {}
        self.complete = True

    def __len__(self) -> int:
        return len(self._blocks)

    def take(self, batch: Batch) -> bool:
        """Takes the events of `batch`, in order; whether the cache was emptied among them."""
        cleared = False
        for event in batch.events:
            match event:
                case Stored():
                    self._store(event)
                case Removed(hashes, tier):
                    self._remove(hashes, tier)
                case Cleared():
                    self.clear()
                    cleared = True
        self.complete = self.complete and batch.whole
        return cleared

    def clear(self) -> None:
        """Nothing is left, and that is known."""
        self._blocks.clear()
        self._tokens.clear()
        self.complete = True

    def _store(self, event: Stored) -> None:
        for name in event.hashes:
            block = self._blocks.get(name)
            if block is None:
                block = self._blocks[name] = _Block(event.session, event.block_size)
            elif block.session is None and event.session is not None:
                for tier in block.held_in():
                    self._count(block, tier, -1)
                block.session = event.session
                for tier in block.held_in():
                    self._count(block, tier, 1)
            if not block.tiers & _BITS[event.tier]:
                block.tiers |= _BITS[event.tier]
                self._count(block, event.tier, 1)
        while len(self._blocks) > self._most:
            self._forget(next(iter(self._blocks)))
            self.complete = False

    def _remove(self, hashes: Iterable[Hashable], tier: Tier) -> None:
        for name in hashes:
            block = self._blocks.get(name)
            if block is not None and block.tiers & _BITS[tier]:
                block.tiers &= ~_BITS[tier]
                self._count(block, tier, -1)
                if not block.tiers:
                    del self._blocks[name]

    def _forget(self, name: Hashable) -> None:
        block = self._blocks.pop(name)
        for tier in block.held_in():
            self._count(block, tier, -1)

    def _count(self, block: _Block, tier: Tier, sign: int) -> None:
        counted = self._tokens.setdefault(block.session, dict.fromkeys(Tier, 0))
        counted[tier] += sign * block.tokens
        if not any(counted.values()):
            del self._tokens[block.session]

    def report(self, rank: int) -> RankResidency:
        """What is held now."""
        named = [_shown(name, held) for name, held in self._tokens.items() if name is not None]
        named.sort(key=lambda held: held.device + held.host + held.disk, reverse=True)
        total = {tier: sum(held[tier] for held in self._tokens.values()) for tier in Tier}
        return RankResidency(rank, self.complete, _shown(None, total), tuple(named[:MOST_SHOWN]))


def _shown(name: str | None, held: dict[Tier, int]) -> SessionTokens:
    return SessionTokens(name, held[Tier.DEVICE], held[Tier.HOST], held[Tier.DISK])
