"""Carrying out the ledger's actions, so many of each at a time, and telling how they ended.

Every step ends in exactly one `Ended`, whatever happens to it: an engine that says no, one that
says nothing, a cancellation, a bug of ours. The ledger then decides whether to try again; nothing
is retried here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, assert_never

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments import events, labels, processes
from thunder_router.environments.actions import Cancel, Do, Look, Recheck, RunHook, Sweep
from thunder_router.environments.engine import Engine, EngineError
from thunder_router.environments.events import Ended, Event, Outcome, Step
from thunder_router.environments.hooks import Hooks
from thunder_router.environments.janitor import Janitor
from thunder_router.environments.outcomes import judged
from thunder_router.environments.prepare import Preparer
from thunder_router.environments.records import Image, Kind, Owner, Program, Resource

__all__ = ["Performer"]

_log = logging.getLogger(__name__)

_HOOKS_AT_ONCE = 8


class Performer:
    """Runs actions as tasks.

    Args:
        engine: For looking things up.
        settings: Limits, and whether to do anything at all.
        janitor: Carries out teardown steps.
        preparer: Carries out preparing steps.
        hooks: Tells the world.
        tell: Takes each result; never blocks.
        busy: Whether the scheduler has a request of this program in hand.
        program: The ledger's record of a program.
        owned: What an owner has.
    """

    def __init__(
        self,
        engine: Engine,
        settings: EnvironmentSettings,
        *,
        janitor: Janitor,
        preparer: Preparer,
        hooks: Hooks,
        tell: Callable[[Event], None],
        busy: Callable[[str], bool],
        program: Callable[[str], Program | None],
        owned: Callable[[Owner], list[Resource]],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._janitor = janitor
        self._preparer = preparer
        self._hooks = hooks
        self._tell = tell
        self._busy = busy
        self._program = program
        self._owned = owned
        docker = settings.docker
        pull = asyncio.Semaphore(docker.pull_concurrency)
        start = asyncio.Semaphore(docker.start_concurrency)
        init = asyncio.Semaphore(docker.init_concurrency)
        self._lane = asyncio.Semaphore(docker.call_concurrency)
        self._room = {
            Step.PULL: (pull,),
            Step.CREATE: (start, self._lane),
            Step.START: (start, self._lane),
            Step.INIT: (init,),
            Step.PROBE: (init,),
        }
        """What a step must get hold of first; the long ones keep out of the short ones' lane."""
        self._hook_room = asyncio.Semaphore(_HOOKS_AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._by_key: dict[str, asyncio.Task[Ended]] = {}

    def begin(self, action: Do | RunHook | Cancel | Look | Sweep | Recheck) -> None:
        """Starts the action and returns at once."""
        match action:
            case Do(target=target, step=step):
                self._step(self._do(target, step), target.key, step)
            case RunHook(hook=hook):
                self._step(self._run_hook(hook), hook.key, Step.REMOVE)
            case Cancel(key=key):
                if task := self._by_key.get(key):
                    task.cancel()
            case Look():
                self._start(self._look(action))
            case Sweep(owner=owner):
                self._start(self._sweep(owner))
            case Recheck():
                self._start(self._recheck(action))
            case _:
                assert_never(action)

    async def close(self) -> None:
        """Breaks everything off, and waits until it has stopped."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._hold(asyncio.get_running_loop().create_task(work))

    def _step(self, work: Coroutine[Any, Any, Ended], key: str, step: Step) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._hold(task)
        self._by_key[key] = task
        task.add_done_callback(lambda _: self._stepped(task, key, step))

    def _hold(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stepped(self, task: asyncio.Task[Ended], key: str, step: Step) -> None:
        # Told from here, because a task that is cancelled before its first turn runs no line.
        if self._by_key.get(key) is task:
            del self._by_key[key]
        if task.cancelled():
            self._tell(Ended(key, step, Outcome.RETRY, "broken off"))
        else:
            self._tell(task.result())

    async def _do(self, target: Resource | Image, step: Step) -> Ended:
        if self._settings.dry_run:
            _log.info("dry_run=true step=%s target=%s", step, target.key)
            outcome = Outcome.DONE if step is Step.REMOVE else Outcome.REFUSED
            return Ended(target.key, step, outcome, "dry run")
        try:
            async with AsyncExitStack() as room:
                for semaphore in self._entrance(target, step):
                    await room.enter_async_context(semaphore)
                return await self._carry_out(target, step)
        except EngineError as error:
            return Ended(target.key, step, judged(step, error), str(error))
        except Exception as error:
            _log.exception("step=%s target=%s", step, target.key)
            return Ended(target.key, step, Outcome.RETRY, repr(error))

    def _entrance(self, target: Resource | Image, step: Step) -> tuple[asyncio.Semaphore, ...]:
        if isinstance(target, Resource) and target.kind is Kind.PROCESS:
            return (self._hook_room,)
        return self._room.get(step, (self._lane,))

    def _carry_out(self, target: Resource | Image, step: Step) -> Coroutine[Any, Any, Ended]:
        match target, step:
            case Image(), Step.LOCATE:
                return self._preparer.locate(target)
            case Image(), Step.PULL:
                return self._preparer.pull(target)
            case Image(), Step.EVICT:
                return self._janitor.evict(target)
            case Resource(), Step.CREATE:
                return self._preparer.create(target)
            case Resource(), Step.START:
                return self._preparer.start(target)
            case Resource(), Step.INIT:
                return self._preparer.init(target)
            case Resource(), Step.PROBE:
                return self._preparer.probe(target)
            case Resource(), Step.FREEZE:
                return self._janitor.freeze(target)
            case Resource(), Step.THAW:
                return self._janitor.thaw(target)
            case Resource(kind=Kind.PROCESS), Step.REMOVE:
                return self._janitor.end(target)
            case Resource(), Step.REMOVE:
                return self._janitor.remove(target)
            case _:
                raise ValueError(f"{step} is not for {target.key}")

    async def _run_hook(self, hook: Resource) -> Ended:
        if self._settings.dry_run:
            return Ended(hook.key, Step.REMOVE, Outcome.DONE, "dry run")
        try:
            async with self._hook_room:
                return await self._hooks.run(hook)
        except Exception as error:
            _log.exception("hook=%s", hook.ref)
            return Ended(hook.key, Step.REMOVE, Outcome.RETRY, repr(error))

    async def _look(self, action: Look) -> None:
        found = events.Found(
            action.owner, action.kind, action.ref, None, action.claim, answered=False
        )
        try:
            async with self._lane:
                sighting = await self._engine.sight(action.kind, action.ref)
            found = replace(found, sighting=sighting, answered=True)
        except EngineError as error:
            _log.info("look=%s error=%r", action.ref, str(error))
        finally:
            self._tell(found)

    async def _sweep(self, owner: Owner) -> None:
        try:
            async with self._lane:
                sightings = await self._engine.labelled(labels.PROGRAM, owner.program)
            for sighting in sightings:
                self._tell(events.Sighted(sighting))
        except EngineError as error:
            # The next relist sees the same.
            _log.info("sweep=%s error=%r", owner.program, str(error))

    async def _recheck(self, action: Recheck) -> None:
        alive = True
        try:
            async with self._lane:
                alive = await self._alive(action)
        except EngineError as error:
            _log.info("recheck=%s error=%r", action.owner.program, str(error))
        finally:
            self._tell(events.Checked(action.owner, action.reason, action.asked_ms, alive))

    async def _alive(self, action: Recheck) -> bool:
        if self._busy(action.owner.program):
            return True
        program = self._program(action.owner.program)
        process = program.process if program is not None else None
        if action.reason == "owner" and process is not None and processes.runs(process):
            return True
        for container in await self._containers(action.owner):
            try:
                if await self._engine.busy(container):
                    return True
            except EngineError as error:
                if error.status != 404:
                    raise
        return False

    async def _containers(self, owner: Owner) -> list[str]:
        """The owner's containers, those of its compose projects included."""
        found = []
        for resource in self._owned(owner):
            if resource.kind is Kind.CONTAINER:
                found.append(resource.target)
            elif resource.kind is Kind.COMPOSE:
                project = await self._engine.labelled(labels.COMPOSE_PROJECT, resource.ref)
                found += [s.ref for s in project if s.kind is Kind.CONTAINER]
        return found
