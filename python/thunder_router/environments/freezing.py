"""What a waiting program's containers do: stay, are paused, or are stopped.

Only a program that waits in the queue with a request in hand has no tool running on its behalf.
The scheduler also takes places from programs whose tool is at work; to freeze that tool would
keep the program from ever asking again. So: paused, waiting, and no exec running, or nothing.
"""

from dataclasses import replace

from thunder_router.environments import moments, teardown
from thunder_router.environments.actions import Do
from thunder_router.environments.backoff import delay_ms
from thunder_router.environments.books import Books
from thunder_router.environments.events import Ended, Outcome, Paused, Restored, Step
from thunder_router.environments.records import Kind, Program, Resource, State
from thunder_router.environments.transitions import moved

__all__ = ["frozen", "paused", "restored", "settle", "thawed", "waits"]


def paused(books: Books, event: Paused, now_ms: int) -> None:
    """The program lost its place."""
    program = books.programs.get(event.program)
    if program is None or program.released:
        return
    program = replace(program, paused=True, waiting=program.waiting or event.waiting)
    books.touch(program)
    moments.told(books, program, "pause", now_ms)
    settle(books, program, now_ms)


def waits(books: Books, program_id: str, now_ms: int) -> None:
    """A request of the program came: if it has no place, that request waits."""
    program = books.programs.get(program_id)
    if program is not None and program.paused and not program.waiting:
        program = replace(program, waiting=True)
        books.touch(program)
        settle(books, program, now_ms)


def restored(books: Books, event: Restored, now_ms: int) -> None:
    """The program has a place: its next tool call may come at any moment."""
    program = books.programs.get(event.program)
    if program is None or program.released:
        return
    was_paused = program.paused
    program = replace(program, paused=False, waiting=False)
    books.touch(program)
    if was_paused:
        moments.told(books, program, "restore", now_ms)
    settle(books, program, now_ms)


def settle(books: Books, program: Program, now_ms: int) -> None:
    """Freezes or thaws what is not as it should be."""
    freeze = (
        program.paused and program.waiting and books.settings.prepare.on_pause != "keep"
    ) and not program.released
    if not books.engine_up:
        return
    for resource in books.current(program):
        if resource.kind is not Kind.CONTAINER or resource.key in books.flying:
            continue
        step: Step | None = None
        if freeze and resource.state is State.READY and not books.busy(resource):
            step = Step.FREEZE
        elif not freeze and resource.state in (State.PAUSED, State.STOPPED):
            step = Step.THAW
        if step is None:
            continue
        if resource.due_ms > now_ms:
            books.wake(resource.due_ms, resource.key)
            continue
        if step is Step.FREEZE:
            # Kept before it is asked for: whatever may be frozen is known to want thawing.
            to = State.PAUSED if books.settings.prepare.on_pause == "pause" else State.STOPPED
            resource = moved(resource, to, now_ms)
            books.put(resource)
        books.flying.add(resource.key)
        books.ask(Do(resource, step))


def frozen(books: Books, resource: Resource, event: Ended, now_ms: int) -> None:
    """A freeze has ended. One that failed is not tried again: it only would have saved memory."""
    match event.outcome:
        case Outcome.MISSING:
            teardown.vanished(books, resource, now_ms)
            return
        case Outcome.REFUSED:
            # A tool is running. It holds still until then: the exec's end settles it.
            books.put(moved(resource, State.READY, now_ms, error=event.error))
        case _:
            # Done, or nobody knows: thawing what is not frozen does no harm.
            settle(books, books.programs[resource.owner.program], now_ms)


def thawed(books: Books, resource: Resource, event: Ended, now_ms: int) -> None:
    """A thaw has ended. One that failed is tried until it works: a tool depends on it."""
    if event.outcome is Outcome.DONE:
        books.put(moved(resource, State.READY, now_ms))
    elif event.outcome is Outcome.MISSING:
        teardown.vanished(books, resource, now_ms)
        return
    else:
        attempts = resource.attempts + 1
        due_ms = now_ms + delay_ms(attempts, books.dice)
        books.put(replace(resource, attempts=attempts, due_ms=due_ms, error=event.error))
        books.wake(due_ms, resource.key)
    settle(books, books.programs[resource.owner.program], now_ms)
