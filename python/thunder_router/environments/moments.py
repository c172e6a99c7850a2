"""Telling the world: one hook resource for each hook and each moment of a program's life.

A hook run is a resource on its way out: it is journaled, tried with backoff like any teardown,
and forgotten once it was heard. Its ref is the idempotency key, the same at every try.
"""

import re

from thunder_router.environment_settings import HookMoment
from thunder_router.environments.actions import RunHook
from thunder_router.environments.books import Books
from thunder_router.environments.records import Kind, Origin, Owner, Program, Resource, State

__all__ = ["told", "try_hook"]


def told(books: Books, program: Program, moment: HookMoment, now_ms: int) -> None:
    """Queues every hook that listens to this moment of this program."""
    for hook in books.settings.hooks:
        if moment in hook.on and re.search(hook.match, program.id):
            ref = f"{hook.name}:{moment}:{program.id}:{program.generation}:{now_ms}"
            run = Resource(
                Owner(program.id, program.generation),
                Kind.HOOK,
                ref,
                Origin.CREATED,
                State.RELEASING,
                now_ms,
                moment=moment,
            )
            if run.key not in books.resources:
                books.put(run)
                try_hook(books, run, now_ms)


def try_hook(books: Books, run: Resource, now_ms: int) -> None:
    """Runs the hook unless it runs already or waits for its next try."""
    if run.key in books.flying:
        return
    if run.due_ms > now_ms:
        books.wake(run.due_ms, run.key)
        return
    books.flying.add(run.key)
    books.ask(RunHook(run))
