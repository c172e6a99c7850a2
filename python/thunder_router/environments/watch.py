"""Keeping sight of the engine: subscribe, list everything, follow, and begin again when it breaks.

The order matters: events are subscribed to before the listing is taken, so nothing falls between
the two. Events are hints, for the engine keeps few and drops some; the listing is the truth, and is
taken again every minute and after every outage. A hung engine keeps its stream open and says
nothing, so it is pinged as well.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from thunder_router.environment_settings import DockerSettings
from thunder_router.environments import events
from thunder_router.environments.engine import (
    Engine,
    EngineError,
    EngineEvent,
    EngineUnreachableError,
)
from thunder_router.environments.events import Event
from thunder_router.environments.records import Kind, Sighting

__all__ = ["Watch"]

_log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.25
_RETRY_CAP_S = 5.0
_KINDS = {"container": Kind.CONTAINER, "network": Kind.NETWORK, "volume": Kind.VOLUME}


class Watch:
    """Tells the ledger what the engine shows.

    Args:
        engine: The engine to watch.
        settings: Intervals and time limits.
        tell: Takes each event; never blocks.
        clock: Unix milliseconds.
    """

    def __init__(
        self,
        engine: Engine,
        settings: DockerSettings,
        *,
        tell: Callable[[Event], None],
        clock: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._tell = tell
        self._clock = clock
        self._again = asyncio.Event()

    def relist(self) -> None:
        """Has the listing taken now."""
        self._again.set()

    async def run(self) -> None:
        """Watches until cancelled."""
        retry_s = _RETRY_FIRST_S
        while True:
            try:
                stream = await self._engine.events()
                await self._relist()
                retry_s = _RETRY_FIRST_S
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._follow(stream))
                    group.create_task(self._ping())
                    group.create_task(self._relist_often())
            except* EngineError as broken:
                error = str(broken.exceptions[0])
                _log.warning("engine=down error=%r", error)
                self._tell(events.EngineDown(error))
            except* Exception as broken:
                # Something we cannot read: blind is as good as down, and looking again may help.
                _log.exception("engine=unreadable")
                self._tell(events.EngineDown(repr(broken.exceptions[0])))
            await self._engine.close()
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _RETRY_CAP_S)

    async def _relist(self) -> None:
        taken_ms = self._clock()
        sightings = await self._engine.everything()
        self._tell(events.Relisted(taken_ms, tuple(sightings)))

    async def _relist_often(self) -> None:
        while True:
            self._again.clear()
            try:
                async with asyncio.timeout(self._settings.relist_interval_s):
                    await self._again.wait()
            except TimeoutError:
                pass
            await self._relist()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ping_interval_s)
            await self._engine.ping(self._settings.ping_timeout_s)

    async def _follow(self, stream: AsyncIterator[EngineEvent]) -> None:
        async for event in stream:
            for told in await self._read(event):
                self._tell(told)

    async def _read(self, event: EngineEvent) -> list[Event]:
        """What the ledger is to know of one event."""
        kind = _KINDS.get(event.type)
        action = event.action.partition(":")[0]
        match kind, action:
            case Kind.CONTAINER, "create":
                return [events.Sighted(_container(event))]
            case Kind.CONTAINER, "start" if self._settings.adopt_peer_ip:
                # Only now does it have an address.
                return await self._sight(Kind.CONTAINER, event)
            case Kind.CONTAINER, "exec_start":
                return [events.ExecStarted(event.ref, event.attributes.get("execID", ""))]
            case Kind.CONTAINER, "exec_die":
                return [events.ExecEnded(event.ref, event.attributes.get("execID", ""))]
            case Kind.CONTAINER, "die":
                return [events.ExecEnded(event.ref, None)]
            case (Kind.NETWORK | Kind.VOLUME) as bare, "create":
                # Their events carry no labels.
                return await self._sight(bare, event)
            case Kind() as known, "destroy":
                return [events.Vanished(known, event.ref)]
            case None, ("delete" | "untag") if event.type == "image":
                return [events.ImageGone(event.ref)]
            case _:
                return []

    async def _sight(self, kind: Kind, event: EngineEvent) -> list[Event]:
        try:
            sighting = await self._engine.sight(kind, event.ref)
        except EngineUnreachableError:
            raise
        except EngineError as error:
            # The next listing shows it, or that it is gone.
            _log.info("event=%s/%s error=%r", event.type, event.action, str(error))
            return []
        return [] if sighting is None else [events.Sighted(sighting)]


def _container(event: EngineEvent) -> Sighting:
    """A newborn container: its event carries the labels, its name and its image among them."""
    labels = dict(event.attributes)
    name, _ = labels.pop("name", ""), labels.pop("image", "")
    return Sighting(Kind.CONTAINER, event.ref, labels, event.time_ms, name=name)
