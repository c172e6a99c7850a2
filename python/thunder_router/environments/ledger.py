"""The ledger: who owns what, what becomes of it, and what is to be done next.

Theory of operation. `step(event, now_ms)` is told one fact and the time, and answers with actions.
It never waits, never reads a clock, and asks nothing of the world but through its actions; jitter
comes from dice that it was given. So a run can be replayed from its events, and a test can turn
time by hand.

One step per resource is in flight at any moment, and every step ends with an `Ended`, whatever
becomes of it. What must survive a restart comes out as `Keep` and `Forget`, to be made durable
before the step's other actions begin.

Each topic has a module of functions over the `Books`: `claims` (whose is it), `lifetimes` (is its
program still there), `teardown`, `preparing`, `images`, `freezing`, `moments` (hooks), `reconcile`.
"""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments import (
    claims,
    events,
    freezing,
    images,
    labels,
    lifetimes,
    preparing,
    reconcile,
    teardown,
)
from thunder_router.environments.actions import Action
from thunder_router.environments.books import Books
from thunder_router.environments.events import Event, Step
from thunder_router.environments.records import Image, Program, Resource, State

__all__ = ["Ledger"]


class Ledger:
    """Events in, actions out.

    Args:
        settings: Limits and rules.
        dice: Where jitter comes from.
    """

    def __init__(self, settings: EnvironmentSettings, dice: random.Random) -> None:
        self.books = Books(settings, dice)

    def load(self, records: Iterable[Program | Resource | Image], now_ms: int) -> list[Action]:
        """Takes over what the journal kept. Programs get a grace to show themselves."""
        books = self.books
        books.load(records)
        books.not_before_ms = now_ms + round(books.settings.startup_grace_s * 1000)
        for program in list(books.programs.values()):
            claims.hold(books, program, now_ms)
            lifetimes.rearm(books, program)
        for resource in list(books.resources.values()):
            if resource.state.preparing:
                books.put(preparing.begin_again(resource, now_ms))
        return books.take()

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Tells one fact; returns what is to be done about it, in order."""
        self._told(event, now_ms)
        for key in self.books.due(now_ms):
            self._alarm(key, now_ms)
        preparing.plan(self.books, now_ms)
        return self.books.take()

    def _told(self, event: Event, now_ms: int) -> None:
        books = self.books
        match event:
            case events.Requested():
                claims.requested(books, event, now_ms)
                freezing.waits(books, event.program, now_ms)
            case events.Registered():
                claims.registered(books, event, now_ms)
            case events.ProcessGiven():
                claims.process_given(books, event, now_ms)
            case events.Leased():
                claims.leased(books, event, now_ms)
            case events.Sighted():
                claims.sighted(books, event, now_ms)
            case events.Found():
                claims.found(books, event, now_ms)
            case events.Relisted():
                reconcile.relisted(books, event, now_ms)
            case events.Vanished():
                self._vanished(event, now_ms)
            case events.ImageGone():
                images.gone(books, event.name)
            case events.ExecStarted() | events.ExecEnded():
                self._exec(event, now_ms)
            case events.EngineDown():
                books.engine_up, books.engine_error = False, event.error
            case events.Released():
                self._released(event, now_ms)
            case events.Suspected():
                lifetimes.suspected(books, event, now_ms)
            case events.ProcessGone():
                lifetimes.process_gone(books, event, now_ms)
            case events.Checked():
                lifetimes.checked(books, event, now_ms)
            case events.Paused():
                freezing.paused(books, event, now_ms)
            case events.Restored():
                # First what changes its record: a step is asked for with the record as it is kept.
                self._came(event.program)
                freezing.restored(books, event, now_ms)
            case events.EnvironmentUsed():
                self._came(event.program)
            case events.PrepareAsked():
                if labels.may_own(event.program):
                    program = claims.opened(books, event.program, now_ms, requested=True)
                    preparing.asked(books, program, event, now_ms)
            case events.ImageWanted():
                images.wanted(books, event, now_ms)
            case events.Ended():
                self._ended(event, now_ms)
            case events.Pressed():
                books.pressed = event.pressed
                if not event.pressed:
                    reconcile.resume(books, now_ms)
            case events.EvictionPlanned():
                images.evict(books, event, now_ms)
            case events.Tick():
                pass
            case _:
                assert_never(event)

    def _released(self, event: events.Released, now_ms: int) -> None:
        if not labels.may_own(event.program):
            return
        program = self.books.programs.get(event.program)
        if program is None:
            # Nobody asked anything for it, yet its containers may have been seen.
            program = claims.opened(self.books, event.program, now_ms, requested=True)
        if program.released and event.generation is None:
            # Said again: what was born since the first time, and not yet seen, goes too.
            self.books.put(replace(program, released_ms=now_ms))
        elif event.generation in (None, program.generation):
            teardown.close(self.books, program, now_ms, crashed=False)

    def _vanished(self, event: events.Vanished, now_ms: int) -> None:
        resource = self.books.known(event.kind, event.ref)
        if resource is not None:
            teardown.vanished(self.books, resource, now_ms)
        self.books.left(event.ref)
        for sightings in self.books.unclaimed.values():
            sightings.pop(f"{event.kind}:{event.ref}", None)

    def _exec(self, event: events.ExecStarted | events.ExecEnded, now_ms: int) -> None:
        books = self.books
        resource = books.around(event.container)
        if resource is None:
            return
        running = books.execs.setdefault(event.container, {})
        match event:
            case events.ExecStarted():
                running[event.exec_id] = now_ms
                preparing.came(books, resource)
            case events.ExecEnded(exec_id=None):
                running.clear()
            case events.ExecEnded(exec_id=str(exec_id)):
                began_ms = running.pop(exec_id, None)
                if began_ms is not None:
                    books.tally["tools"] += 1
                    books.spent_ms["tools"] += now_ms - began_ms
        lifetimes.lived(books, resource.owner.program, now_ms)
        freezing.settle(books, books.programs[resource.owner.program], now_ms)

    def _came(self, program_id: str) -> None:
        program = self.books.programs.get(program_id)
        resource = program and preparing.environment(self.books, program)
        if resource:
            preparing.came(self.books, resource)

    def _ended(self, event: events.Ended, now_ms: int) -> None:
        books = self.books
        books.flying.discard(event.key)
        if event.key.startswith("image:"):
            image = books.images.get(event.key.removeprefix("image:"))
            if image is not None:
                self._image_ended(image, event, now_ms)
            return
        resource = books.resources.get(event.key)
        if resource is None:
            return
        match event.step:
            case _ if resource.state.leaving and event.step is not Step.REMOVE:
                # Released while something else was under way: now it can go.
                teardown.pursue(books, resource.owner, now_ms)
            case Step.REMOVE:
                teardown.removed(books, resource, event, now_ms)
            case Step.FREEZE:
                freezing.frozen(books, resource, event, now_ms)
            case Step.THAW:
                freezing.thawed(books, resource, event, now_ms)
            case _:
                preparing.ended(books, resource, event, now_ms)

    def _image_ended(self, image: Image, event: events.Ended, now_ms: int) -> None:
        failed = images.ended(self.books, image, event, now_ms)
        for user in self.books.users(image.ref):
            if user.state is not State.PULLING:
                continue
            if failed:
                preparing.fail(
                    self.books, user, event.error or "the image is not to be had", now_ms
                )
            else:
                preparing.advance(self.books, user, now_ms)

    def _alarm(self, key: str, now_ms: int) -> None:
        books = self.books
        if key.startswith("program:"):
            if program := books.programs.get(key.removeprefix("program:")):
                lifetimes.review(books, program, now_ms)
        elif resource := books.resources.get(key):
            teardown.pursue(books, resource.owner, now_ms)
            preparing.advance(books, resource, now_ms)
            freezing.settle(books, books.programs[resource.owner.program], now_ms)
        elif image := books.images.get(key.removeprefix("image:")):
            images.advance(books, image, now_ms)

    def next_due_ms(self) -> int | None:
        """When `step(Tick())` is due without any other event. None: never."""
        return self.books.next_due_ms()
