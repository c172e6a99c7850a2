"""How objects become a program's resources.

Three ways in: an object raises a claim that a known program raises too; an object carries this
router's own label; somebody registers it by name. An object that raises a claim nobody holds yet
is remembered, for its program may speak later: agents start their sandbox before their first
request.
"""

from dataclasses import replace

from thunder_router.environments import adopt, labels, lifetimes, teardown
from thunder_router.environments.actions import Look
from thunder_router.environments.books import Books
from thunder_router.environments.events import (
    Found,
    Leased,
    ProcessGiven,
    Registered,
    Requested,
    Sighted,
)
from thunder_router.environments.records import (
    Kind,
    Origin,
    Owner,
    Program,
    Resource,
    Sighting,
    State,
)

__all__ = [
    "found",
    "hold",
    "leased",
    "look_again",
    "opened",
    "process_given",
    "registered",
    "requested",
    "sighted",
]


def opened(books: Books, program_id: str, now_ms: int, *, requested: bool) -> Program:
    """The program's open generation; a new one where none is.

    `requested`: somebody named it, which is more than a label on an object.
    """
    program = books.programs.get(program_id)
    if program is None:
        program = Program(program_id, generation=1, last_used_ms=now_ms, requested=requested)
        books.put(program)
    elif program.released:
        program = Program(
            program_id,
            generation=program.generation + 1,
            last_used_ms=now_ms,
            released_ms=program.released_ms,
            requested=requested,
        )
        books.put(program)
    elif requested and not program.requested:
        program = replace(program, requested=True, last_used_ms=now_ms)
        books.put(program)
    else:
        return program
    hold(books, program, now_ms)
    lifetimes.rearm(books, program)
    return program


def requested(books: Books, event: Requested, now_ms: int) -> None:
    """A request is life, may bring an address, and may name containers."""
    if not labels.may_own(event.program):
        return
    program = opened(books, event.program, now_ms, requested=True)
    if event.peer is not None and event.peer != program.peer:
        books.leave_peer(program)
        program = replace(program, peer=event.peer)
        books.touch(program)
        hold(books, program, now_ms)
    lifetimes.lived(books, event.program, now_ms)
    if books.settings.docker.registered_ids:
        for ref in event.docker_ids:
            registered(books, Registered(event.program, Kind.CONTAINER, ref), now_ms)


def registered(books: Books, event: Registered, now_ms: int) -> None:
    """Looks the named object up, once, before anything is believed."""
    enabled = books.settings.docker.registered_ids
    if not enabled or not labels.may_own(event.program) or not labels.is_ref(event.ref):
        return
    program = opened(books, event.program, now_ms, requested=True)
    if not books.known(event.kind, event.ref):
        _look(books, Look(_owner(program), event.kind, event.ref))


def _owner(program: Program) -> Owner:
    return Owner(program.id, program.generation)


def _look(books: Books, look: Look) -> None:
    asked = books.asked.setdefault(look.owner.program, set())
    if look.ref not in asked:
        asked.add(look.ref)
        if books.engine_up:
            books.ask(look)
        else:
            books.unanswered.setdefault(look.owner.program, []).append(look)


def look_again(books: Books) -> None:
    """The engine is back: asks for all that could not be looked up."""
    for looks in books.unanswered.values():
        for look in looks:
            books.ask(look)
    books.unanswered.clear()


def leased(books: Books, event: Leased, now_ms: int) -> None:
    """The API opens the program, and bounds its life where it says so."""
    if not labels.may_own(event.program):
        return
    program = opened(books, event.program, now_ms, requested=True)
    program = replace(
        program,
        last_used_ms=now_ms,
        lease_until_ms=event.lease_until_ms or program.lease_until_ms,
        process=event.process or program.process,
        spec=event.spec or program.spec,
    )
    books.put(program)
    lifetimes.rearm(books, program)


def process_given(books: Books, event: ProcessGiven, now_ms: int) -> None:
    """The process goes with the program, unless it is somebody's already."""
    if not labels.may_own(event.program):
        return
    program = opened(books, event.program, now_ms, requested=True)
    name = event.process.name
    if books.known(Kind.PROCESS, name):
        books.tally["registrations_refused"] += 1
        return
    books.put(Resource(_owner(program), Kind.PROCESS, name, Origin.REGISTERED, State.READY, now_ms))
    books.tally["adopted_registered"] += 1


def found(books: Books, event: Found, now_ms: int) -> None:
    """A looked-up object becomes the program's, unless there is a reason against it.

    The name was given in one generation; if that is over by now, what already bore the name then
    goes with it.
    """
    owner, sighting = event.owner, event.sighting
    program = books.programs.get(owner.program)
    if program is None:
        return
    if not event.answered:
        look = Look(owner, event.kind, event.asked, event.claim)
        books.unanswered.setdefault(owner.program, []).append(look)
        return
    over = program.released or owner.generation < program.generation
    born_later = over and sighting is not None and sighting.created_ms > (program.released_ms or 0)
    if sighting is None or born_later:
        # It may appear later under the same name: let the next request ask again.
        books.asked.get(owner.program, set()).discard(event.asked)
        return
    contested = event.claim is not None and books.held_by.get(event.claim) != owner.program
    if contested or owner.generation > program.generation:
        return
    owner_label = sighting.labels.get(labels.PROGRAM, owner.program)
    if (
        labels.out_of_bounds(sighting.labels, books.settings.router_id)
        or sighting.restarts
        or owner_label != owner.program
        or books.known(sighting.kind, sighting.ref)
    ):
        books.tally["registrations_refused"] += 1
        return
    origin = Origin.REGISTERED if event.claim is None else Origin.ADOPTED
    _adopt(books, program, owner.generation, sighting, origin, event.claim, now_ms)


def sighted(books: Books, event: Sighted, now_ms: int) -> None:
    """Finds the object's program by the first claim that binds, or remembers the object."""
    sighting = event.sighting
    if books.known(sighting.kind, sighting.ref) or books.known(sighting.kind, sighting.name):
        return
    for claim in books.claims.of_object(sighting):
        program = books.programs.get(books.held_by.get(claim) or "")
        if program is not None:
            _join(books, program, sighting, claim, now_ms)
            return
        if claim not in books.held_by:
            books.unclaimed.setdefault(claim, {})[f"{sighting.kind}:{sighting.ref}"] = sighting
    program_id = adopt.is_ours(sighting, books.settings.router_id)
    if program_id is not None:
        program = opened(books, program_id, now_ms, requested=False)
        if books.known(sighting.kind, sighting.ref) is None:
            _join(books, program, sighting, f"label:{program_id}", now_ms)


def hold(books: Books, program: Program, now_ms: int) -> None:
    """Gives the program its claims, and with them what was waiting for its owner."""
    for claim in books.claims.of_program(program.id, program.peer):
        holder = books.held_by.setdefault(claim, program.id)
        if holder != program.id:
            _contested(books, claim)
            continue
        for sighting in books.unclaimed.pop(claim, {}).values():
            if books.known(sighting.kind, sighting.ref) is None:
                _join(books, books.programs[program.id], sighting, claim, now_ms)


def _contested(books: Books, claim: str) -> None:
    """Two programs raise one claim: it can no longer say whose an object is, so it says nothing.

    A container that runs a whole batch of agents must not go when the first of them ends.
    """
    books.held_by[claim] = None
    for resource in list(books.resources.values()):
        if resource.claim == claim and not resource.state.leaving:
            books.drop(resource)


def _join(books: Books, program: Program, sighting: Sighting, claim: str, now_ms: int) -> None:
    """Gives the object to the generation in which it was born."""
    if claim.startswith("peer:"):
        # A reverse proxy has an address too: what restarts by itself is nobody's sandbox.
        _look(books, Look(_owner(program), sighting.kind, sighting.ref, claim))
        return
    said = sighting.labels.get(labels.GENERATION, "")
    if said.isdigit() and int(said) <= program.generation:
        generation = int(said)
    elif program.released_ms is not None and sighting.created_ms <= program.released_ms:
        generation = program.generation if program.released else program.generation - 1
    else:
        program = opened(books, program.id, now_ms, requested=False)
        generation = program.generation
    _adopt(books, program, generation, sighting, Origin.ADOPTED, claim, now_ms)


def _adopt(
    books: Books,
    program: Program,
    generation: int,
    sighting: Sighting,
    origin: Origin,
    claim: str | None,
    now_ms: int,
) -> None:
    kind, ref = sighting.kind, sighting.ref
    if claim is not None and claim.startswith("rule"):
        # A compose project goes as one, with whatever it still creates.
        kind, ref = Kind.COMPOSE, sighting.labels[labels.COMPOSE_PROJECT]
        if sighting.kind is Kind.CONTAINER:
            books.member_of[sighting.ref] = f"{kind}:{ref}"
        if books.known(kind, ref):
            return
    books.put(
        Resource(
            Owner(program.id, generation),
            kind,
            ref,
            origin,
            State.READY,
            now_ms,
            claim=claim,
            image=sighting.image_id or None,
        )
    )
    books.tally[f"adopted_{origin}"] += 1
    lifetimes.rearm(books, program)
    if program.released or generation < program.generation:
        teardown.release(books, Owner(program.id, generation), now_ms)
