"""Getting an environment: the engine calls behind locate, pull, create, start, init and probe.

Every one may be done again from the beginning. Creating first removes what carries the name, for
that is the remains of an attempt that nobody heard the end of.
"""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments import labels
from thunder_router.environments.engine import Engine, EngineError
from thunder_router.environments.events import Ended, Outcome, Step
from thunder_router.environments.records import Image, Kind, Resource, Spec

__all__ = ["Preparer"]

_UNPACKED = 3
"""A layer on disk is about three times its compressed size in the registry."""


class Preparer:
    """Carries out preparing steps.

    Args:
        engine: Where the environments are made.
        settings: The router's id, time limits.
        compressed_bytes: What a registry says an image weighs; None where it does not say.
        free_bytes: What the engine's disk has left above its reserve; None where unknown.
    """

    def __init__(
        self,
        engine: Engine,
        settings: EnvironmentSettings,
        *,
        compressed_bytes: Callable[[str], Awaitable[int | None]],
        free_bytes: Callable[[], Awaitable[int | None]],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._compressed_bytes = compressed_bytes
        self._free_bytes = free_bytes

    async def locate(self, image: Image) -> Ended:
        """Whether the engine has the image."""
        found = await self._engine.image(image.ref)
        if found is None:
            return Ended(image.key, Step.LOCATE, Outcome.MISSING)
        return Ended(image.key, Step.LOCATE, Outcome.DONE, id=found.id)

    async def pull(self, image: Image) -> Ended:
        """Pulls the image if there is room for it, and looks whether it came."""
        if (found := await self._engine.image(image.ref)) is not None:
            return Ended(image.key, Step.PULL, Outcome.DONE, id=found.id, found=True)
        free = await self._free_bytes()
        compressed = await self._compressed_bytes(image.ref)
        if free is not None and (compressed or 0) * _UNPACKED > free:
            error = f"{image.ref} needs about {compressed} × {_UNPACKED} bytes of {free} free"
            return Ended(image.key, Step.PULL, Outcome.REFUSED, error)
        await self._engine.pull(image.ref)
        found = await self._engine.image(image.ref)
        if found is None:
            return Ended(image.key, Step.PULL, Outcome.RETRY, "the pull was cut short")
        return Ended(image.key, Step.PULL, Outcome.DONE, id=found.id)

    async def create(self, resource: Resource) -> Ended:
        """Creates the container, in place of what an earlier attempt left."""
        left_over = await self._engine.sight(Kind.CONTAINER, resource.ref)
        if left_over is not None:
            if left_over.labels.get(labels.ROUTER) != self._settings.router_id:
                error = f"{resource.ref} belongs to someone else"
                return Ended(resource.key, Step.CREATE, Outcome.REFUSED, error)
            await self._engine.remove(Kind.CONTAINER, left_over.ref)
        owner = resource.owner
        stamped = labels.object_labels(
            self._settings.router_id, owner.program, owner.generation, "environment"
        )
        container = await self._engine.create(resource.ref, _spec(resource), stamped)
        return Ended(resource.key, Step.CREATE, Outcome.DONE, id=container)

    async def start(self, resource: Resource) -> Ended:
        """Starts the container, and learns which ports the engine picked."""
        await self._engine.start(resource.target)
        sighting = await self._engine.sight(Kind.CONTAINER, resource.target)
        if sighting is None or not sighting.running:
            return Ended(resource.key, Step.START, Outcome.RETRY, "it did not stay up")
        return Ended(resource.key, Step.START, Outcome.DONE, ports=sighting.ports)

    async def init(self, resource: Resource) -> Ended:
        """Runs the init command to its end."""
        spec = _spec(resource)
        limit_s = spec.init_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                status = await self._engine.execute(resource.target, spec.init, limit_s * 2)
        except TimeoutError:
            error = f"init took longer than {limit_s:g} s"
            return Ended(resource.key, Step.INIT, Outcome.REFUSED, error)
        if status:
            error = f"init exited with {status}"
            return Ended(resource.key, Step.INIT, Outcome.REFUSED, error)
        return Ended(resource.key, Step.INIT, Outcome.DONE)

    async def probe(self, resource: Resource) -> Ended:
        """Waits until the environment shows that it can be used."""
        spec = _spec(resource)
        limit_s = spec.probe_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                while not await self._answers(resource, spec):  # noqa: ASYNC110 the only way to ask
                    await asyncio.sleep(spec.probe_interval_ms / 1000)
        except TimeoutError:
            error = f"the probe failed for {limit_s:g} s"
            return Ended(resource.key, Step.PROBE, Outcome.REFUSED, error)
        return Ended(resource.key, Step.PROBE, Outcome.DONE)

    async def _answers(self, resource: Resource, spec: Spec) -> bool:
        if spec.probe_healthcheck:
            return await self._engine.healthy(resource.target)
        if spec.probe_http_path:
            return bool(resource.ports) and await _serves(resource.ports[0][1], spec)
        try:
            limit_s = spec.probe_timeout_ms / 1000
            return not await self._engine.execute(resource.target, spec.probe_exec, limit_s)
        except EngineError as error:
            if error.status == 409:
                # Not running (any more): no probe will ever succeed.
                raise
            return False


async def _serves(port: int, spec: Spec) -> bool:
    limit = aiohttp.ClientTimeout(total=spec.probe_timeout_ms / 1000)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(f"http://127.0.0.1:{port}{spec.probe_http_path}") as answer,
        ):
            return answer.status < 400
    except (aiohttp.ClientError, OSError):
        return False


def _spec(resource: Resource) -> Spec:
    assert resource.spec is not None, "only environments with a spec are prepared"
    return resource.spec
