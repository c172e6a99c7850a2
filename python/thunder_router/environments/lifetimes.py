"""When to give a program up that never said it ended.

Four things raise a suspicion: silence (no request and no exec for `idle_ttl_s`), a lease that ran
out, an owning process that is gone for `owner_grace_s`, and objects whose program nobody ever
named for `orphan_grace_s`. A suspicion is checked against the world before anything is deleted,
and any sign of life on the way clears it. A dropped connection is no suspicion at all.
"""

from dataclasses import replace

from thunder_router.environments import teardown
from thunder_router.environments.actions import Recheck
from thunder_router.environments.books import Books
from thunder_router.environments.events import Checked, ProcessGone, Suspected
from thunder_router.environments.records import Owner, Program

__all__ = ["checked", "deadline", "lived", "process_gone", "rearm", "review", "suspected"]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def deadline(books: Books, program: Program) -> tuple[int, str]:
    """When the open program is to be suspected, and why."""
    settings = books.settings
    if program.lease_until_ms is not None:
        at_ms, reason = program.lease_until_ms, "lease"
    elif program.requested:
        at_ms, reason = program.last_used_ms + _ms(settings.idle_ttl_s), "idle"
    else:
        at_ms, reason = program.last_used_ms + _ms(settings.orphan_grace_s), "orphan"
    if program.process_gone_ms is not None:
        gone_ms = program.process_gone_ms + _ms(settings.owner_grace_s)
        if gone_ms < at_ms:
            at_ms, reason = gone_ms, "owner"
    return max(at_ms, books.not_before_ms), reason


def rearm(books: Books, program: Program) -> None:
    """Sets the alarm for the program's present deadline."""
    books.wake(deadline(books, program)[0], f"program:{program.id}")


def lived(books: Books, program_id: str, now_ms: int) -> None:
    """A sign of life: silence begins anew, and a dead owner was not the owner."""
    program = books.programs.get(program_id)
    if program is None or program.released:
        return
    later = replace(program, last_used_ms=now_ms, process_gone_ms=None)
    # Alarms are lazy: the one already set finds the new deadline when it goes off.
    books.touch(later)


def review(books: Books, program: Program, now_ms: int) -> None:
    """Looks whether the program's time has come."""
    key = f"program:{program.id}"
    if program.released:
        forget_at_ms = (program.released_ms or 0) + _ms(books.settings.orphan_grace_s)
        if books.holds(program.id) or program.id in books.unanswered or forget_at_ms > now_ms:
            books.wake(max(forget_at_ms, now_ms + 60_000), key)
        else:
            books.drop(program)
        return
    at_ms, reason = deadline(books, program)
    if at_ms > now_ms:
        books.wake(at_ms, key)
    elif not books.holds(program.id) and not books.settings.hooks:
        books.drop(program)
    else:
        _suspect(books, program, reason, now_ms)


def suspected(books: Books, event: Suspected, now_ms: int) -> None:
    """Someone else infers the end; what it owns is not deleted on hearsay."""
    program = books.programs.get(event.program)
    if program is not None and not program.released:
        _suspect(books, program, event.reason, now_ms)


def process_gone(books: Books, event: ProcessGone, now_ms: int) -> None:
    """Starts the owner's grace."""
    program = books.programs.get(event.program)
    if program is None or program.released or program.process != event.process:
        return
    if program.process_gone_ms is None:
        program = replace(program, process_gone_ms=now_ms)
        books.put(program)
        rearm(books, program)


def checked(books: Books, event: Checked, now_ms: int) -> None:
    """Nobody there: the program ends. Life seen since the question was asked wins."""
    books.flying.discard(f"program:{event.owner.program}")
    program = books.programs.get(event.owner.program)
    if program is None or program.released or program.generation != event.owner.generation:
        return
    if event.alive:
        books.tally["checked_alive"] += 1
        lived(books, program.id, now_ms)
        if program.lease_until_ms is not None and program.lease_until_ms <= now_ms:
            # It is at work past its lease: look again after the grace an owner would get.
            grace_ms = _ms(books.settings.owner_grace_s)
            books.put(replace(books.programs[program.id], lease_until_ms=now_ms + grace_ms))
        rearm(books, books.programs[program.id])
    elif program.last_used_ms > event.asked_ms:
        rearm(books, program)
    else:
        books.tally[f"given_up_{event.reason}"] += 1
        teardown.close(books, program, now_ms, crashed=True)


def _suspect(books: Books, program: Program, reason: str, now_ms: int) -> None:
    key = f"program:{program.id}"
    unseen = not books.engine_up and any(r.kind.on_engine for r in books.current(program))
    if key in books.flying or unseen:
        # Tools may be running that nobody sees; the next relist reviews everyone.
        return
    books.flying.add(key)
    books.ask(Recheck(Owner(program.id, program.generation), reason, now_ms))
