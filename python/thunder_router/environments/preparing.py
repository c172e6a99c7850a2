"""Environments made ahead of need: planned, pulled, created, started, initialized, probed, ready.

Preparing fails open. A program whose environment cannot be made is served all the same, and its
`failure` says why; nothing of the attempt stays behind. Any step from start on that fails sends
the environment back to a fresh container, because a half-initialized one is worth nothing.
"""

from collections import deque
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from thunder_router.environments import freezing, images, labels, moments, teardown
from thunder_router.environments.actions import Do
from thunder_router.environments.backoff import delay_ms
from thunder_router.environments.books import Books
from thunder_router.environments.events import Ended, Outcome, PrepareAsked, Step
from thunder_router.environments.records import (
    Freshness,
    Kind,
    Origin,
    Owner,
    Program,
    Resource,
    Spec,
    State,
)
from thunder_router.environments.transitions import moved

__all__ = [
    "advance",
    "allowed",
    "asked",
    "begin_again",
    "came",
    "ended",
    "environment",
    "fail",
    "plan",
]

_STEPS: Final = {
    State.CREATING: Step.CREATE,
    State.STARTING: Step.START,
    State.INITIALIZING: Step.INIT,
    State.PROBING: Step.PROBE,
}
_HEADROOM: Final = 1.25
"""How much earlier than its measured time an environment is begun."""
_TIMES_KEPT: Final = 32
_IMAGES_MEASURED: Final = 4096
"""Images whose times are kept, the ones last prepared: a benchmark has an image a task."""


def environment(books: Books, program: Program) -> Resource | None:
    """The environment made for the program's present generation."""
    ref = labels.object_name(
        books.settings.router_id, program.id, program.generation, "environment"
    )
    return books.known(Kind.CONTAINER, ref)


def allowed(patterns: tuple[str, ...], image: str) -> bool:
    """Whether containers may be made from this image."""
    return labels.is_image(image) and any(fnmatchcase(image, pattern) for pattern in patterns)


def asked(books: Books, program: Program, event: PrepareAsked, now_ms: int) -> None:
    """Plans the environment, to begin when what remains of the wait is needed for it."""
    existing = environment(books, program)
    spec = program.spec or event.spec
    if spec is None or (existing is not None and existing.state is not State.PLANNED):
        return
    if not allowed(books.settings.images.allow, spec.image):
        books.touch(replace(program, failure=f"image {spec.image} is not allowed"))
        return
    begin_ms = now_ms + _slack_ms(books, spec, event.expected_wait_ms)
    if existing is not None:
        planned = replace(existing, due_ms=min(existing.due_ms, begin_ms))
    else:
        planned = Resource(
            Owner(program.id, program.generation),
            Kind.CONTAINER,
            labels.object_name(
                books.settings.router_id, program.id, program.generation, "environment"
            ),
            Origin.CREATED,
            State.PLANNED,
            now_ms,
            image=spec.image,
            spec=spec,
            due_ms=begin_ms,
        )
        books.touch(replace(program, failure=None))
        moments.told(books, program, "prepare", now_ms)
    books.put(planned)
    advance(books, planned, now_ms)


def _slack_ms(books: Books, spec: Spec, expected_wait_ms: int) -> int:
    """How long preparing may still wait: the wait less this image's p90, with headroom."""
    times = sorted(books.prepare_ms.get(spec.image, ()))
    if not times:
        return 0
    p90 = times[min(len(times) - 1, len(times) * 9 // 10)]
    return max(0, expected_wait_ms - round(p90 * _HEADROOM))


def advance(books: Books, resource: Resource, now_ms: int) -> None:
    """Asks for the environment's next step, if it is due and nothing stands in its way."""
    if not resource.state.preparing or resource.key in books.flying or not books.engine_up:
        return
    if resource.due_ms > now_ms:
        books.wake(resource.due_ms, resource.key)
        return
    spec = resource.spec
    assert spec is not None, "only environments with a spec are prepared"
    if resource.state is State.PLANNED:
        full = len(books.ahead) >= books.settings.prepare.ahead
        # One that its program stands before is not ahead of anything.
        if books.pressed or (full and not resource.used):
            return
        resource = moved(resource, State.PULLING, now_ms, started_ms=now_ms)
        books.put(resource)
    if resource.state is State.PULLING:
        image = images.needed(books, spec.image, now_ms)
        if image.state is not Freshness.PRESENT or image.key in books.flying:
            return
        resource = moved(resource, State.CREATING, now_ms, attempts=resource.attempts)
        books.put(resource)
    books.flying.add(resource.key)
    books.ask(Do(resource, _STEPS[resource.state]))


def came(books: Books, resource: Resource) -> None:
    """Its program has come to the environment, so there is room for the next one ahead."""
    if resource.spec is not None and not resource.used:
        books.tally["prepare_hits" if resource.state is State.READY else "prepare_late"] += 1
        books.put(replace(resource, used=True))


def plan(books: Books, now_ms: int) -> None:
    """Begins what is planned, as far as there is room ahead."""
    if books.pressed:
        return
    for key in list(books.planned):
        advance(books, books.resources[key], now_ms)


def ended(books: Books, resource: Resource, event: Ended, now_ms: int) -> None:
    """A step has ended: on to the next, back to a fresh container, or given up."""
    spec = resource.spec
    assert spec is not None, "only environments with a spec are prepared"
    if _STEPS.get(resource.state) is not event.step:
        return
    match event.outcome:
        case Outcome.DONE:
            known = {"alias": event.id or resource.alias, "ports": event.ports or resource.ports}
            to = _after(resource.state, spec)
            resource = moved(resource, to, now_ms, attempts=resource.attempts, **known)
            books.put(resource)
            if to is State.READY:
                _ready(books, resource, now_ms)
            else:
                advance(books, resource, now_ms)
        case Outcome.REFUSED:
            fail(books, resource, event.error or "refused", now_ms)
        case Outcome.MISSING if event.step is Step.CREATE:
            images.gone(books, spec.image)
            _again(books, resource, event.error, now_ms)
        case _:
            _again(books, resource, event.error, now_ms)


def _after(state: State, spec: Spec) -> State:
    """The next state that has anything to do for this spec."""
    probes = bool(spec.probe_exec or spec.probe_http_path or spec.probe_healthcheck)
    match state:
        case State.CREATING:
            return State.STARTING
        case State.STARTING:
            return State.INITIALIZING if spec.init else _after(State.INITIALIZING, spec)
        case State.INITIALIZING if probes:
            return State.PROBING
        case _:
            return State.READY


def _ready(books: Books, resource: Resource, now_ms: int) -> None:
    assert resource.spec is not None, "only environments with a spec are prepared"
    took_ms = now_ms - (resource.started_ms or now_ms)
    _measured(books, resource.spec.image, took_ms)
    books.tally["prepared"] += 1
    books.spent_ms["preparing"] += took_ms
    images.used(books, resource.spec.image, now_ms)
    program = books.programs[resource.owner.program]
    moments.told(books, program, "ready", now_ms)
    freezing.settle(books, program, now_ms)


def _measured(books: Books, image: str, took_ms: int) -> None:
    times = books.prepare_ms.pop(image, None) or deque(maxlen=_TIMES_KEPT)
    times.append(took_ms)
    books.prepare_ms[image] = times
    if len(books.prepare_ms) > _IMAGES_MEASURED:
        del books.prepare_ms[next(iter(books.prepare_ms))]


def _again(books: Books, resource: Resource, error: str | None, now_ms: int) -> None:
    attempts = resource.attempts + 1
    if attempts >= books.settings.prepare.attempts:
        fail(books, resource, error or "failed", now_ms)
        return
    due_ms = now_ms + delay_ms(attempts, books.dice)
    resource = begin_again(resource, now_ms, attempts=attempts, due_ms=due_ms, error=error)
    books.put(resource)
    advance(books, resource, now_ms)


def begin_again(
    resource: Resource,
    now_ms: int,
    *,
    attempts: int = 0,
    due_ms: int = 0,
    error: str | None = None,
) -> Resource:
    """The environment before its container; creating removes what carries its name."""
    if resource.state in (State.PLANNED, State.PULLING):
        return replace(resource, attempts=attempts, due_ms=due_ms, error=error)
    return moved(
        resource, State.PULLING, now_ms, attempts=attempts, due_ms=due_ms, error=error, alias=None
    )


def fail(books: Books, resource: Resource, why: str, now_ms: int) -> None:
    """Gives the environment up, and removes what there is of it."""
    program = books.programs[resource.owner.program]
    if program.generation == resource.owner.generation:
        books.touch(replace(program, failure=why))
    books.tally["prepare_failed"] += 1
    books.put(moved(resource, State.RELEASING, now_ms, error=why))
    teardown.pursue(books, resource.owner, now_ms)
