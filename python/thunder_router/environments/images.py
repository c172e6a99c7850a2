"""Images: one pull for all who need it, and eviction of nothing but our own.

An image is `ours` if this router found it absent, pulled it, and heard the pull succeed. One whose
pull ended unheard (the router died, the answer was lost) is not: a stranger may have brought it
since, and a leak is better than a wrong deletion.

Users are the environments made from it. Locating, pulling and evicting one image exclude each
other, because only one step per key is ever in flight: an environment that comes while its image
is being evicted waits, and then has it pulled again.
"""

from dataclasses import replace

from thunder_router.environments.actions import Do
from thunder_router.environments.backoff import delay_ms
from thunder_router.environments.books import Books
from thunder_router.environments.events import Ended, EvictionPlanned, ImageWanted, Outcome, Step
from thunder_router.environments.records import Freshness, Image

__all__ = [
    "advance",
    "ended",
    "evict",
    "evictable",
    "forget_if_idle",
    "gone",
    "needed",
    "used",
    "wanted",
]


def needed(books: Books, ref: str, now_ms: int) -> Image:
    """The image's record, and a step towards having it."""
    if ref not in books.images:
        books.put(Image(ref, last_used_ms=now_ms))
    advance(books, books.images[ref], now_ms)
    return books.images[ref]


def wanted(books: Books, event: ImageWanted, now_ms: int) -> None:
    """Somebody announces the image: it is fetched, and kept for a while."""
    image = books.images.get(event.image, Image(event.image, last_used_ms=now_ms))
    window_ms = round(books.settings.images.prefetch_window_s * 1000)
    books.put(replace(image, wanted_until_ms=now_ms + window_ms, attempts=0, due_ms=0))
    advance(books, books.images[event.image], now_ms)


def used(books: Books, ref: str, now_ms: int) -> None:
    """An environment made from it came or went."""
    image = books.images.get(ref)
    if image is not None:
        books.put(replace(image, last_used_ms=now_ms))


def advance(books: Books, image: Image, now_ms: int) -> None:
    """Asks for the next step, if anybody needs the image and nothing stands in the way."""
    if image.key in books.flying or not books.engine_up:
        return
    if image.state is Freshness.PRESENT or not _asked_for(books, image, now_ms):
        return
    if image.due_ms > now_ms:
        books.wake(image.due_ms, image.key)
        return
    step = Step.LOCATE
    if image.state is Freshness.ABSENT:
        if books.pressed:
            return
        step = Step.PULL
        image = replace(image, state=Freshness.PULLING)
        books.put(image)
    books.flying.add(image.key)
    books.ask(Do(image, step))


def _asked_for(books: Books, image: Image, now_ms: int) -> bool:
    if image.wanted_until_ms > now_ms or image.state is Freshness.EVICTING:
        return True
    return any(user.state.preparing for user in books.users(image.ref))


def ended(books: Books, image: Image, event: Ended, now_ms: int) -> bool:
    """A step has ended. Returns whether its users have to be told that they will not get it."""
    fresh = replace(image, attempts=0, due_ms=0, error=None)
    match event.step, event.outcome:
        case ((Step.LOCATE | Step.PULL), Outcome.DONE):
            # Another id under the same name: somebody replaced what we had pulled.
            pulled = event.step is Step.PULL and not event.found
            ours = pulled or (image.ours and image.id == event.id)
            books.put(
                replace(fresh, state=Freshness.PRESENT, id=event.id, ours=ours, last_used_ms=now_ms)
            )
        case Step.LOCATE, Outcome.MISSING:
            books.put(replace(image, state=Freshness.ABSENT, ours=False, id=None))
            if not _asked_for(books, books.images[image.ref], now_ms):
                books.drop(books.images[image.ref])
                return False
        case Step.EVICT, (Outcome.DONE | Outcome.MISSING):
            books.tally["evictions"] += 1
            books.drop(image)
            if books.users(image.ref):
                needed(books, image.ref, now_ms)
            return False
        case Step.EVICT, _:
            # In use after all: as good as just used.
            books.put(replace(fresh, state=Freshness.PRESENT, last_used_ms=now_ms))
        case _:
            return _failed(books, image, event, now_ms)
    advance(books, books.images[image.ref], now_ms)
    return False


def forget_if_idle(books: Books, image: Image, now_ms: int) -> None:
    """Drops what says nothing that locating does not: an image nobody needs and not ours."""
    idle = image.key not in books.flying and not books.users(image.ref)
    if idle and not image.ours and image.wanted_until_ms <= now_ms:
        books.drop(image)


def _failed(books: Books, image: Image, event: Ended, now_ms: int) -> bool:
    attempts = image.attempts + 1
    final = event.outcome is Outcome.REFUSED or attempts >= books.settings.prepare.attempts
    due_ms = now_ms + delay_ms(attempts, books.dice)
    if final:
        image = replace(image, wanted_until_ms=0)
        attempts = 0
    books.put(replace(image, attempts=attempts, due_ms=due_ms, error=event.error))
    books.wake(due_ms, image.key)
    return final


def gone(books: Books, name: str) -> None:
    """Someone removed the image: whatever has that name later is not what we pulled."""
    for image in list(books.images.values()):
        if name in (image.ref, image.id) and image.key not in books.flying:
            books.put(replace(image, state=Freshness.UNKNOWN, ours=False, id=None))


def evictable(books: Books, image: Image, now_ms: int) -> bool:
    """Pulled by us, nobody's, idle, not awaited, and no step of it under way."""
    return (
        image.ours
        and image.state is Freshness.PRESENT
        and image.key not in books.flying
        and image.wanted_until_ms <= now_ms
        and image.last_used_ms + round(books.settings.images.min_idle_s * 1000) <= now_ms
        and not books.users(image.ref)
    )


def evict(books: Books, event: EvictionPlanned, now_ms: int) -> None:
    """Asks for those removals of a plan that still hold."""
    for ref in event.images:
        image = books.images.get(ref)
        if image is not None and books.engine_up and evictable(books, image, now_ms):
            image = replace(image, state=Freshness.EVICTING)
            books.put(image)
            books.flying.add(image.key)
            books.ask(Do(image, Step.EVICT))
