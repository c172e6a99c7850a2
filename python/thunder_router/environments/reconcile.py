"""Comparing the books with everything on the engine: at start, after an outage, every minute.

In the books and on the engine: go on where it stood. In the books only: gone. On the engine only:
`claims` decides, as for any object that is seen. Objects of other routers are in no claim, and so
in none of these cases.
"""

from thunder_router.environments import (
    claims,
    freezing,
    images,
    labels,
    lifetimes,
    preparing,
    teardown,
)
from thunder_router.environments.books import Books
from thunder_router.environments.events import Relisted, Sighted
from thunder_router.environments.records import Kind, State
from thunder_router.environments.transitions import moved

__all__ = ["relisted", "resume"]


def relisted(books: Books, event: Relisted, now_ms: int) -> None:
    """Takes the listing as the truth of `taken_ms`, and takes up all work that waited."""
    was_up, books.engine_up, books.engine_error = books.engine_up, True, None
    present = {(s.kind, name) for s in event.sightings for name in (s.ref, s.name) if name}
    present |= {
        (Kind.COMPOSE, s.labels[labels.COMPOSE_PROJECT])
        for s in event.sightings
        if labels.COMPOSE_PROJECT in s.labels
    }
    for resource in list(books.resources.values()):
        settled = resource.kind.on_engine and resource.key not in books.flying
        # What changed since the listing began is not judged by it.
        if settled and resource.since_ms < event.taken_ms and not resource.state.preparing:
            if (resource.kind, resource.target) not in present:
                books.tally["reconciled_gone"] += 1
                teardown.vanished(books, resource, now_ms)
            elif resource.state is State.STUCK and not was_up:
                books.put(moved(resource, State.RELEASING, now_ms))
    raised = {claim for s in event.sightings for claim in books.claims.of_object(s)}
    for claim, holder in list(books.held_by.items()):
        if holder is None and claim not in raised:
            # Nothing is contested any more: the next object under it may be someone's again.
            del books.held_by[claim]
    books.unclaimed.clear()
    for sighting in event.sightings:
        claims.sighted(books, Sighted(sighting), now_ms)
    books.flush()
    claims.look_again(books)
    resume(books, now_ms)


def resume(books: Books, now_ms: int) -> None:
    """Asks for everything that is due, of everyone."""
    for owner in books.owners():
        teardown.pursue(books, owner, now_ms)
        program = books.programs[owner.program]
        freezing.settle(books, program, now_ms)
        lifetimes.review(books, program, now_ms)
    for resource in list(books.resources.values()):
        preparing.advance(books, resource, now_ms)
    for image in list(books.images.values()):
        images.advance(books, image, now_ms)
        images.forget_if_idle(books, image, now_ms)
