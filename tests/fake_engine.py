"""A container engine in memory, with the faults that Docker 20.10.24 showed when measured."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from thunder_router.environments.engine import (
    EngineError,
    EngineEvent,
    EngineUnreachableError,
    ImageFacts,
    Layer,
)
from thunder_router.environments.records import Kind, Sighting, Spec

GIB = 1024**3


async def _at_once() -> None:
    pass


class FakeEngine:
    """An `Engine`. Faults are queued by call name and met in order."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.objects: dict[tuple[Kind, str], Sighting] = {}
        self.images_here: dict[str, ImageFacts] = {}
        self.images_there: dict[str, tuple[Layer, ...]] = {}
        self.running_execs: set[str] = set()
        self.frozen: set[str] = set()
        self.mounted: dict[str, str] = {}
        """Volume or network by the container that uses it."""
        self.faults: dict[str, list[Exception]] = {}
        self._lost: list[str] = []
        self.exit_status: dict[tuple[str, ...], int] = {}
        self.up = True
        self.calls: list[tuple[str, str]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.gate: asyncio.Event | None = None
        """Calls wait here while it is set to an event that is not."""
        self.passing: Callable[[], Awaitable[None]] = _at_once
        """Awaited before each call has its effect, and after it."""
        self._streams: list[asyncio.Queue[EngineEvent | None]] = []
        self._ids = itertools.count(1)

    # === what a test does to it ===

    def put(
        self,
        kind: Kind,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        image: str = "",
        told: bool = True,
        addresses: tuple[str, ...] = (),
        restarts: bool = False,
    ) -> str:
        """Somebody creates an object; returns what the engine calls it."""
        ref = name if kind is Kind.VOLUME else f"{next(self._ids):064x}"
        facts = self.images_here.get(image)
        self.objects[kind, ref] = Sighting(
            kind,
            ref,
            dict(labels or {}),
            self.clock(),
            name=name,
            image_id=facts.id if facts else "",
            addresses=addresses,
            restarts=restarts,
            running=True,
        )
        if told:
            attributes = {**(labels or {}), "name": name, "image": image}
            self._say(kind, "create", ref, attributes)
            if kind is Kind.CONTAINER:
                self._say(kind, "start", ref, attributes)
        return ref

    def fault(self, call: str, *errors: Exception) -> None:
        """The next calls of that name fail so."""
        self.faults.setdefault(call, []).extend(errors)

    def lose(self, *calls: str) -> None:
        """The next calls of these names have their effect, and no answer."""
        self._lost.extend(calls)

    def crash(self) -> None:
        """The engine is killed: streams break, calls fail."""
        self.up = False
        for stream in self._streams:
            stream.put_nowait(None)
        self._streams.clear()

    def names(self, kind: Kind | None = None) -> set[str]:
        return {s.name for (k, _), s in self.objects.items() if kind in (None, k)}

    def exec_started(self, container: str) -> None:
        self.running_execs.add(container)
        self._say(Kind.CONTAINER, "exec_start: sh", container, {"execID": f"e-{container[-4:]}"})

    def exec_ended(self, container: str) -> None:
        self.running_execs.discard(container)
        self._say(Kind.CONTAINER, "exec_die", container, {"execID": f"e-{container[-4:]}"})

    def _say(self, kind: Kind, action: str, ref: str, attributes: Mapping[str, str]) -> None:
        told = EngineEvent(str(kind), action, ref, attributes, self.clock())
        for stream in self._streams:
            stream.put_nowait(told)

    # === Engine ===

    async def _call(self, name: str, detail: str = "") -> None:
        self.calls.append((name, detail))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
            if not self.up:
                raise EngineUnreachableError("connection refused")
            if errors := self.faults.get(name):
                raise errors.pop(0)
            await self.passing()
        finally:
            self.in_flight -= 1

    async def _answer(self, name: str) -> None:
        await self.passing()
        if name in self._lost:
            self._lost.remove(name)
            raise EngineUnreachableError("no answer within 15 s")

    def _find(self, kind: Kind, ref: str) -> Sighting | None:
        if found := self.objects.get((kind, ref)):
            return found
        return next((s for (k, _), s in self.objects.items() if k is kind and s.name == ref), None)

    def _must(self, kind: Kind, ref: str) -> Sighting:
        found = self._find(kind, ref)
        if found is None:
            raise EngineError(404, f"No such {kind}: {ref}")
        return found

    async def ping(self, timeout_s: float) -> None:
        await self._call("ping")

    async def close(self) -> None:
        pass

    async def events(self) -> AsyncIterator[EngineEvent]:
        await self._call("events")
        stream: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._streams.append(stream)
        return self._read(stream)

    async def _read(
        self, stream: "asyncio.Queue[EngineEvent | None]"
    ) -> AsyncIterator[EngineEvent]:
        while (event := await stream.get()) is not None:
            yield event
        raise EngineUnreachableError("event stream ended")

    async def everything(self) -> list[Sighting]:
        await self._call("everything")
        return list(self.objects.values())

    async def labelled(self, label: str, value: str) -> list[Sighting]:
        await self._call("labelled", value)
        return [s for s in self.objects.values() if s.labels.get(label) == value]

    async def sight(self, kind: Kind, ref: str) -> Sighting | None:
        await self._call("sight", ref)
        return self._find(kind, ref)

    async def create(self, name: str, spec: Spec, labels: Mapping[str, str]) -> str:
        await self._call("create", name)
        if spec.image not in self.images_here:
            raise EngineError(404, f"No such image: {spec.image}")
        if self._find(Kind.CONTAINER, name):
            raise EngineError(409, f'Conflict. The container name "/{name}" is already in use')
        ref = self.put(Kind.CONTAINER, name, labels, image=spec.image)
        ports = tuple((port, 40_000 + port) for port in spec.ports)
        shown = self.objects[Kind.CONTAINER, ref]
        self.objects[Kind.CONTAINER, ref] = Sighting(
            shown.kind,
            ref,
            shown.labels,
            shown.created_ms,
            name=name,
            image_id=shown.image_id,
            running=True,
            ports=ports,
        )
        await self._answer("create")
        return ref

    async def start(self, container: str) -> None:
        await self._call("start", container)
        self.frozen.discard(self._must(Kind.CONTAINER, container).ref)
        await self._answer("start")

    async def execute(self, container: str, command: tuple[str, ...], timeout_s: float) -> int:
        await self._call("execute", " ".join(command))
        self._must(Kind.CONTAINER, container)
        return self.exit_status.get(command, 0)

    async def healthy(self, container: str) -> bool:
        await self._call("healthy", container)
        return True

    async def busy(self, container: str) -> bool:
        await self._call("busy", container)
        return self._must(Kind.CONTAINER, container).ref in self.running_execs

    async def pause(self, container: str) -> None:
        await self._call("pause", container)
        self.frozen.add(self._must(Kind.CONTAINER, container).ref)
        await self._answer("pause")

    async def unpause(self, container: str) -> None:
        await self._call("unpause", container)
        ref = self._must(Kind.CONTAINER, container).ref
        if ref not in self.frozen:
            raise EngineError(409, f"Container {container} is not paused")
        self.frozen.discard(ref)
        await self._answer("unpause")

    async def stop(self, container: str, timeout_s: float) -> None:
        await self._call("stop", container)
        self.frozen.add(self._must(Kind.CONTAINER, container).ref)
        await self._answer("stop")

    async def remove(self, kind: Kind, ref: str) -> None:
        await self._call("remove", ref)
        found = self._must(kind, ref)
        if ref in self.mounted.values() or found.name in self.mounted.values():
            status = 403 if kind is Kind.NETWORK else 409
            raise EngineError(status, f"{kind} {ref} is in use")
        del self.objects[kind, found.ref]
        self.mounted.pop(found.ref, None)
        self.running_execs.discard(found.ref)
        self.frozen.discard(found.ref)
        self._say(kind, "destroy", found.ref, {})
        await self._answer("remove")

    async def image(self, ref: str, *, layers: bool = False) -> ImageFacts | None:
        await self._call("image", ref)
        by_id = {facts.id: facts for facts in self.images_here.values()}
        return self.images_here.get(ref) or by_id.get(ref)

    async def image_ids(self) -> list[str]:
        await self._call("image_ids")
        return [facts.id for facts in self.images_here.values()]

    async def pull(self, ref: str) -> None:
        await self._call("pull", ref)
        if ref not in self.images_there:
            raise EngineError(404, f"manifest for {ref} not found: manifest unknown")
        self.images_here[ref] = ImageFacts(f"sha256:{ref}", (ref,), self.images_there[ref])
        await self._answer("pull")

    async def remove_image(self, ref: str) -> None:
        await self._call("remove_image", ref)
        facts = self.images_here.get(ref)
        if facts is None:
            raise EngineError(404, f"No such image: {ref}")
        if any(s.image_id == facts.id for s in self.objects.values()):
            raise EngineError(409, "image is being used by a container")
        del self.images_here[ref]
        await self._answer("remove_image")

    async def data_root(self) -> str:
        await self._call("data_root")
        return "/var/lib/docker"
