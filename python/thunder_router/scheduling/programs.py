"""Programs as people and the API see them: listed, found, paused, restored, released.

Nothing here decides. A program that uses several models stands in several pools, and is listed
once for each.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from thunder_router.errors import UnknownProgramError
from thunder_router.scheduling.core import ProgramView
from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.pool import Pool
from thunder_router.scheduling.recorder import Core

__all__ = ["Filter", "Listed", "Page", "Programs"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One program in one pool."""

    pool: Pool
    view: ProgramView


@dataclass(frozen=True, slots=True)
class Filter:
    """Which programs to list. None: any."""

    status: str | None = None
    phase: str | None = None
    group: str | None = None
    worker: int | None = None
    pool: str | None = None

    def takes(self, listed: Listed) -> bool:
        """The program fits every condition."""
        view = listed.view
        return (
            self.status in (None, view.status)
            and self.phase in (None, view.phase)
            and self.group in (None, view.group)
            and self.worker in (None, view.worker)
            and self.pool in (None, listed.pool.name)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Programs in the order of their names.

    Attributes:
        programs: Entries of at most as many programs as were asked for.
        total: How many entries fit the filter in all.
        next: What to give as `after` for the next page; None at the end.
    """

    programs: list[Listed]
    total: int
    next: str | None


class Programs:
    """All programs of a driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def page(self, which: Filter, *, after: str = "", limit: int = 1000) -> Page:
        """Programs named beyond `after`, at most `limit` of them."""
        fitting = [listed for listed in self._all() if which.takes(listed)]
        names = {listed.view.program for listed in fitting if listed.view.program > after}
        wanted = heapq.nsmallest(limit + 1, names)
        more = len(wanted) > limit
        # Whole names, not entries: a program of two pools is never split over two pages.
        chosen = set(wanted[:limit])
        page = [listed for listed in fitting if listed.view.program in chosen]
        page.sort(key=lambda listed: (listed.view.program, listed.pool.name))
        return Page(page, len(fitting), wanted[limit - 1] if more else None)

    def find(self, program: str) -> list[Listed]:
        """The program in each pool that knows it.

        Raises:
            UnknownProgramError: none does.
        """
        found = []
        for pool, core, now in self._cores():
            view = core.program(program, now)
            if view is not None:
                found.append(Listed(pool, view))
        if not found:
            raise UnknownProgramError(program)
        return found

    def why_held(self, program: str) -> str | None:
        """Why a request of the program waits, in numbers; None where none does."""
        for pool in self._driver.pools:
            reason = pool.why_held(program)
            if reason is not None:
                return reason
        return None

    def waits(self, program: str) -> bool:
        """A request of the program is held."""
        return any(view.waiting > 0 for view in self._views(program))

    def busy(self, program: str) -> bool:
        """A request of the program is held or in flight."""
        return any(view.waiting + view.in_flight > 0 for view in self._views(program))

    def release(self, program: str) -> bool:
        """The program ended. True if it was known."""
        return self._driver.release(program)

    def pause(self, program: str) -> None:
        """Holds the program's turns until `restore`, whatever room there is.

        Raises:
            UnknownProgramError: no pool knows it.
        """
        for listed in self.find(program):
            core, now = listed.pool.look()
            core.pause(program, now)
            listed.pool.ask_soon()

    def restore(self, program: str) -> None:
        """Ends an operator's pause.

        Raises:
            UnknownProgramError: no pool knows it.
        """
        for listed in self.find(program):
            core, now = listed.pool.look()
            core.restore(program, now)
            listed.pool.ask_soon()

    def _all(self) -> Iterator[Listed]:
        for pool, core, now in self._cores():
            for view in core.programs(now):
                yield Listed(pool, view)

    def _views(self, program: str) -> Iterator[ProgramView]:
        for _, core, now in self._cores():
            view = core.program(program, now)
            if view is not None:
                yield view

    def _cores(self) -> Iterator[tuple[Pool, Core, int]]:
        for pool in self._driver.pools:
            core, now = pool.look()
            yield pool, core, now
