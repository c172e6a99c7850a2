"""Releasing: everything of a closed generation goes, in order, however often it takes.

Containers before networks before volumes, for the engine refuses the latter while the former use
them. A removal that fails is tried again with full jitter, for ever: after `STUCK_AFTER` tries it
counts as stuck, which is a metric and a reason to look, not a reason to stop. While the engine is
down nothing is asked of it, and no try counts.
"""

from dataclasses import replace
from typing import Final

from thunder_router.environments import moments
from thunder_router.environments.actions import Cancel, Do, Sweep
from thunder_router.environments.backoff import delay_ms
from thunder_router.environments.books import Books
from thunder_router.environments.events import Ended, Outcome, Step
from thunder_router.environments.records import Kind, Owner, Program, Resource, State
from thunder_router.environments.transitions import moved

__all__ = ["STUCK_AFTER", "close", "pursue", "release", "removed", "vanished"]

STUCK_AFTER: Final = 8


def close(books: Books, program: Program, now_ms: int, *, crashed: bool) -> None:
    """Ends the program's open generation. Closing it again does nothing."""
    if program.released:
        return
    owner = Owner(program.id, program.generation)
    closed = Program(
        program.id,
        program.generation,
        program.last_used_ms,
        released=True,
        released_ms=now_ms,
    )
    books.leave_peer(program)
    books.put(closed)
    if books.owned(owner):
        # Siblings that no event told of, such as volumes, carry the program's label.
        books.ask(Sweep(owner))
    moments.told(books, closed, "crash" if crashed else "release", now_ms)
    release(books, owner, now_ms)
    books.wake(now_ms + round(books.settings.orphan_grace_s * 1000), f"program:{program.id}")


def release(books: Books, owner: Owner, now_ms: int) -> None:
    """Sets everything of this generation on its way out."""
    for resource in books.owned(owner):
        if not resource.state.leaving:
            books.put(moved(resource, State.RELEASING, now_ms))
            if resource.key in books.flying:
                books.ask(Cancel(resource.key))
    pursue(books, owner, now_ms)


def pursue(books: Books, owner: Owner, now_ms: int) -> None:
    """Asks for every removal that is due and whose turn it is."""
    leaving = [resource for resource in books.owned(owner) if resource.state.leaving]
    turn = min((r.kind.rank for r in leaving if r.kind is not Kind.HOOK), default=0)
    for resource in leaving:
        if resource.kind is Kind.HOOK:
            moments.try_hook(books, resource, now_ms)
        elif resource.kind.rank == turn:
            _remove(books, resource, now_ms)


def _remove(books: Books, resource: Resource, now_ms: int) -> None:
    if resource.key in books.flying or (resource.kind.on_engine and not books.engine_up):
        return
    if resource.due_ms > now_ms:
        books.wake(resource.due_ms, resource.key)
        return
    books.flying.add(resource.key)
    books.ask(Do(resource, Step.REMOVE))


def removed(books: Books, resource: Resource, event: Ended, now_ms: int) -> None:
    """A removal, or a hook, has ended."""
    match event.outcome:
        case Outcome.DONE | Outcome.MISSING:
            books.tally[f"removed_{resource.kind}"] += 1
            books.spent_ms["teardown"] += now_ms - resource.since_ms
            books.drop(resource)
        case Outcome.REFUSED if resource.kind is Kind.HOOK:
            books.tally["hooks_failed"] += 1
            books.drop(resource)
        case Outcome.UNREACHABLE if resource.kind is not Kind.HOOK:
            # The engine's state is watched elsewhere; this only keeps from spinning until then.
            due_ms = now_ms + delay_ms(1, books.dice)
            books.put(replace(resource, due_ms=due_ms, error=event.error))
        case _:
            _failed(books, resource, event, now_ms)
    pursue(books, resource.owner, now_ms)


def _failed(books: Books, resource: Resource, event: Ended, now_ms: int) -> None:
    attempts = resource.attempts + 1
    if resource.kind is Kind.HOOK and attempts > _retries(books, resource):
        books.tally["hooks_failed"] += 1
        books.drop(resource)
        return
    books.tally["teardown_retries"] += 1
    again = replace(
        resource,
        attempts=attempts,
        due_ms=now_ms + delay_ms(attempts, books.dice),
        error=event.error,
    )
    if attempts >= STUCK_AFTER and resource.state is State.RELEASING:
        again = moved(
            again, State.STUCK, now_ms, attempts=attempts, due_ms=again.due_ms, error=event.error
        )
    books.put(again)


def _retries(books: Books, run: Resource) -> int:
    name = run.ref.partition(":")[0]
    return next((hook.retries for hook in books.settings.hooks if hook.name == name), 0)


def vanished(books: Books, resource: Resource, now_ms: int) -> None:
    """The engine no longer has it. A step in flight will find that out by itself."""
    if resource.state.preparing or resource.key in books.flying:
        return
    books.drop(resource)
    pursue(books, resource.owner, now_ms)
