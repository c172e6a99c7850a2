"""The disk under the engine: how full it is, and making room.

Above the high mark this router's idle images go until the low mark would be reached. Below the
reserve nothing more is prepared, but teardown goes on: on a disk that is quite full removing a
container still works, while removing an image fails half-way (measured on 20.10.24), so containers
come first and the reserve keeps it from coming to that. Space that others use is left alone.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from thunder_router.environment_settings import DiskSettings
from thunder_router.environments import events, eviction
from thunder_router.environments.engine import Engine, EngineError, Layer
from thunder_router.environments.events import Event
from thunder_router.environments.records import Image

__all__ = ["Disk", "Room", "measured"]

_log = logging.getLogger(__name__)

_RESERVE_PART: Final = 0.05


@dataclass(frozen=True, slots=True)
class Room:
    """How full a file system is, in bytes, as an unprivileged writer sees it."""

    total: int
    free: int

    @property
    def ratio(self) -> float:
        """The part in use, 0 to 1."""
        return 1 - self.free / self.total if self.total else 0.0

    def reserve(self, settings: DiskSettings) -> int:
        """Bytes to keep free: the configured reserve, or 5 % where the disk is small."""
        return min(settings.reserve_bytes, round(self.total * _RESERVE_PART))

    def above_low(self, settings: DiskSettings) -> int:
        """Bytes to free until the low mark; 0 while the high mark is not passed."""
        if self.ratio <= settings.high:
            return 0
        return max(0, round((self.ratio - settings.low) * self.total))


def measured(path: str) -> Room | None:
    """The file system that holds `path`; None where it is not this machine's."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return Room(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)


class Disk:
    """Watches the disk and plans evictions.

    Args:
        engine: Where the images are.
        settings: Marks, reserve, interval.
        tell: Takes events; never blocks.
        evictable: Images that may go, least recently used first.
        measure: How full the file system at a path is.
    """

    def __init__(
        self,
        engine: Engine,
        settings: DiskSettings,
        *,
        tell: Callable[[Event], None],
        evictable: Callable[[], list[Image]],
        measure: Callable[[str], Room | None] = measured,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._tell = tell
        self._evictable = evictable
        self._measure = measure
        self._root: str | None = None
        self._pressed = False
        self.room: Room | None = None
        """As last measured."""

    async def run(self) -> None:
        """Looks and makes room, until cancelled."""
        while True:
            try:
                await self.look()
            except EngineError as error:
                _log.info("disk=unknown error=%r", str(error))
            except Exception:
                _log.exception("disk=unknown")
            await asyncio.sleep(self._settings.interval_s)

    async def free_bytes(self) -> int | None:
        """Bytes free above the reserve now; None: unknown."""
        room = await self._measured()
        return None if room is None else max(0, room.free - room.reserve(self._settings))

    async def look(self) -> None:
        """Measures once; tells of pressure; plans evictions where the high mark is passed."""
        self.room = room = await self._measured()
        if room is None:
            return
        pressed = room.free < room.reserve(self._settings)
        if pressed is not self._pressed:
            self._pressed = pressed
            self._tell(events.Pressed(pressed))
        needed = room.above_low(self._settings)
        candidates = self._evictable() if needed else []
        if candidates:
            refs = [image.ref for image in candidates]
            chosen = eviction.plan(await self._layers(refs), refs, needed)
            _log.info("disk_ratio=%.3f needed_bytes=%d evicting=%s", room.ratio, needed, chosen)
            self._tell(events.EvictionPlanned(tuple(chosen)))

    async def _measured(self) -> Room | None:
        if self._root is None:
            self._root = await self._engine.data_root()
        return self._measure(self._root)

    async def _layers(self, refs: list[str]) -> dict[str, tuple[Layer, ...]]:
        """Layers of every image on the engine, by the candidate's name or the image's id."""
        result: dict[str, tuple[Layer, ...]] = {}
        names: dict[str, str] = {}
        for ref in refs:
            if found := await self._engine.image(ref, layers=True):
                result[ref] = found.layers
                names[found.id] = ref
        for image_id in await self._engine.image_ids():
            if image_id not in names and (found := await self._engine.image(image_id, layers=True)):
                result[image_id] = found.layers
        return {ref: result.get(ref, ()) for ref in refs} | result
