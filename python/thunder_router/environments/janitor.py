"""Removing, freezing and thawing: the engine calls behind those steps.

Each returns how it ended by looking again, not by believing the reply: a removal that failed may
have worked, and one that worked may have left the object dying.
"""

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments import labels, processes
from thunder_router.environments.engine import Engine, EngineError, EngineUnreachableError
from thunder_router.environments.events import Ended, Outcome, Step
from thunder_router.environments.records import Image, Kind, Process, Resource

__all__ = ["Janitor"]


class Janitor:
    """Carries out teardown steps.

    Args:
        engine: Where the objects are.
        settings: The stop time-out, the pause policy.
    """

    def __init__(self, engine: Engine, settings: EnvironmentSettings) -> None:
        self._engine = engine
        self._settings = settings

    async def remove(self, resource: Resource) -> Ended:
        """Removes one resource; done means that a fresh look does not find it."""
        if resource.kind is Kind.COMPOSE:
            return await self._remove_project(resource)
        error = await self._remove_one(resource.kind, resource.target)
        outcome = Outcome.DONE if error is None else Outcome.RETRY
        return Ended(resource.key, Step.REMOVE, outcome, error)

    async def end(self, resource: Resource) -> Ended:
        """Ends a process of this machine; done means that it runs no more."""
        process = Process.named(resource.ref)
        try:
            await processes.end(process, self._settings.process_grace_s)
        except OSError as error:
            return Ended(resource.key, Step.REMOVE, Outcome.RETRY, str(error))
        outcome = Outcome.RETRY if processes.runs(process) else Outcome.DONE
        return Ended(resource.key, Step.REMOVE, outcome)

    async def _remove_one(self, kind: Kind, ref: str) -> str | None:
        """Removes an object; returns why it is still there, or None."""
        stop_timeout_s = self._settings.docker.stop_timeout_s
        reason = "still there"
        try:
            if kind is Kind.CONTAINER and stop_timeout_s:
                await self._engine.stop(ref, stop_timeout_s)
            await self._engine.remove(kind, ref)
        except EngineUnreachableError:
            raise
        except EngineError as error:
            reason = str(error)
        return reason if await self._engine.sight(kind, ref) else None

    async def _remove_project(self, resource: Resource) -> Ended:
        """Removes what carries the project's label now, containers before what they hold."""
        listed = await self._engine.labelled(labels.COMPOSE_PROJECT, resource.ref)
        errors = []
        for kind in (Kind.CONTAINER, Kind.NETWORK, Kind.VOLUME):
            for sighting in listed:
                if sighting.kind is kind and not labels.out_of_bounds(
                    sighting.labels, self._settings.router_id
                ):
                    errors.append(await self._remove_one(kind, sighting.ref))
        failed = [error for error in errors if error is not None]
        outcome = Outcome.RETRY if failed else Outcome.DONE
        return Ended(resource.key, Step.REMOVE, outcome, failed[0] if failed else None)

    async def freeze(self, resource: Resource) -> Ended:
        """Pauses or stops a container that runs no exec."""
        if await self._engine.busy(resource.target):
            return Ended(resource.key, Step.FREEZE, Outcome.REFUSED, "a tool is running")
        if self._settings.prepare.on_pause == "pause":
            await self._engine.pause(resource.target)
        else:
            await self._engine.stop(resource.target, self._settings.docker.stop_timeout_s)
        return Ended(resource.key, Step.FREEZE, Outcome.DONE)

    async def thaw(self, resource: Resource) -> Ended:
        """Makes a container run again, however it was brought to rest."""
        try:
            await self._engine.unpause(resource.target)
        except EngineUnreachableError:
            raise
        except EngineError as error:
            if "not paused" not in error.message and "not running" not in error.message:
                raise
            await self._engine.start(resource.target)
        return Ended(resource.key, Step.THAW, Outcome.DONE)

    async def evict(self, image: Image) -> Ended:
        """Removes an image that no container in any state is made from."""
        if image.id is None:
            return Ended(image.key, Step.EVICT, Outcome.MISSING)
        everything = await self._engine.everything()
        if any(sighting.image_id == image.id for sighting in everything):
            return Ended(image.key, Step.EVICT, Outcome.RETRY, "a container is made from it")
        reason: str | None = None
        for name in (image.ref, image.id):
            found = await self._engine.image(name)
            # By id only what has lost its name: on a full disk a removal stops half-way there.
            if found is not None and found.id == image.id and (name == image.ref or not found.tags):
                try:
                    await self._engine.remove_image(name)
                except EngineUnreachableError:
                    raise
                except EngineError as error:
                    reason = str(error)
        if await self._engine.image(image.ref) is None:
            return Ended(image.key, Step.EVICT, Outcome.DONE)
        return Ended(image.key, Step.EVICT, Outcome.RETRY, reason)
