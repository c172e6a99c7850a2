"""The one door to this package: told what happens to programs, it looks after their environments.

Every method that the request path may call only puts an event in a queue, in about a microsecond,
and returns: inference never waits for Docker, and a hung engine costs it nothing. One task takes
events from the queue, steps the ledger, makes the journal lines durable, and only then has the
actions carried out.
"""

import asyncio
import logging
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments import (
    events,
    images,
    labels,
    preparing,
    processes,
    registry,
    templates,
)
from thunder_router.environments.actions import Action, Do, Forget, Keep
from thunder_router.environments.disk import Disk, Room, measured
from thunder_router.environments.engine import Engine
from thunder_router.environments.events import Ended, Event, Outcome, Step
from thunder_router.environments.hooks import Hooks
from thunder_router.environments.janitor import Janitor
from thunder_router.environments.ledger import Ledger
from thunder_router.environments.performer import Performer
from thunder_router.environments.prepare import Preparer
from thunder_router.environments.records import Image, Kind, Process, Resource, Spec
from thunder_router.environments.store import Store
from thunder_router.environments.view import EnvironmentView, Status, environment_view, status_view
from thunder_router.environments.watch import Watch

__all__ = ["Environments", "unix_now_ms"]

_log = logging.getLogger(__name__)

_PROCESS_LOOK_S: Final = 2.0
_JOURNAL_RETRY_S: Final = 1.0


def unix_now_ms() -> int:
    """Milliseconds since the epoch; what is journaled must mean the same after a restart."""
    return time.time_ns() // 1_000_000


class Environments:
    """Tool environments of one router. Use as an async context manager.

    Args:
        settings: Everything that can be set.
        engine: The container engine.
        store: The journal.
        busy: Whether the scheduler has a request of this program in hand; None: never.
        clock: Unix milliseconds.
        dice: Jitter.
        measure: How full the disk at a path is.
    """

    def __init__(
        self,
        settings: EnvironmentSettings,
        *,
        engine: Engine,
        store: Store,
        busy: Callable[[str], bool] | None = None,
        clock: Callable[[], int] = unix_now_ms,
        dice: random.Random | None = None,
        measure: Callable[[str], Room | None] = measured,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._store = store
        self._clock = clock
        self._ledger = Ledger(settings, dice or random.Random())
        self._queue: deque[Event] = deque()
        self._told = 0
        self._digested = 0
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._unwritten: dict[tuple[str, str], Keep | Forget] = {}
        """The last line of each record, so that a journal that fails for long costs no more."""
        self._journal_error: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        books = self._ledger.books
        self.disk = Disk(
            engine, settings.disk, tell=self.tell, evictable=self.evictable, measure=measure
        )
        self._watch = Watch(engine, settings.docker, tell=self.tell, clock=clock)
        self._performer = Performer(
            engine,
            settings,
            janitor=Janitor(engine, settings),
            preparer=Preparer(
                engine,
                settings,
                compressed_bytes=registry.compressed_bytes,
                free_bytes=self.disk.free_bytes,
            ),
            hooks=Hooks(settings.hooks),
            tell=self.tell,
            busy=busy or (lambda _: False),
            program=books.programs.get,
            owned=books.owned,
        )

    async def __aenter__(self) -> "Environments":
        """Takes the journal over and begins to watch."""
        lines = self._ledger.load(self._store.load(), self._clock())
        self._remember(lines)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep_books()),
            loop.create_task(self._watch.run()),
            loop.create_task(self.disk.run()),
            loop.create_task(self._watch_processes()),
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stops. What is under way is journaled, and taken up at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._performer.close()
        await self._engine.close()
        self._store.close()

    # === told by the request path: enqueue, return ===

    def tell(self, event: Event) -> None:
        """Queues an event."""
        self._queue.append(event)
        self._told += 1
        self._wake.set()

    def request(
        self, program: str | None, docker_ids: tuple[str, ...] = (), peer: str | None = None
    ) -> None:
        """A request has arrived. One without a program, or of "default", owns nothing."""
        if program is not None and labels.may_own(program):
            self.tell(events.Requested(program, peer, docker_ids))

    def prepare(self, program: str, expected_wait_ms: int) -> None:
        """The program's turn comes in about this time."""
        spec = templates.of_program(self._settings, program)
        self.tell(events.PrepareAsked(program, spec, expected_wait_ms))

    def paused(self, program: str, *, waiting: bool = False) -> None:
        """The program lost its place; `waiting`: with a request in hand."""
        self.tell(events.Paused(program, waiting))

    def restored(self, program: str) -> None:
        """The program has a place: its environment will be used."""
        self.tell(events.Restored(program))

    def released(self, program: str, generation: int | None = None) -> None:
        """The program ended. `generation` None: whichever is the present one."""
        self.tell(events.Released(program, generation))

    def expired(self, program: str) -> None:
        """The scheduler forgot the program for its silence."""
        self.tell(events.Suspected(program, "expired"))

    # === told by the API ===

    def open(
        self,
        program: str,
        *,
        spec: Spec | None = None,
        lease_s: float | None = None,
        owner_pid: int | None = None,
    ) -> None:
        """Announces a program: its environment, its lease, the process that owns it."""
        process = None if owner_pid is None else processes.identify(owner_pid)
        until_ms = None if lease_s is None else self._clock() + round(lease_s * 1000)
        self.tell(events.Leased(program, until_ms, process, spec))

    def register(self, program: str, kind: Kind, ref: str) -> None:
        """Names an object as the program's."""
        self.tell(events.Registered(program, kind, ref))

    def give_process(self, program: str, pid: int) -> str | None:
        """Gives a process to the program, to end with it; returns why not, or None."""
        if not self._settings.processes:
            return "processes are not taken (environments.processes)"
        process = processes.identify(pid)
        if process is None:
            return f"no process {pid} is running"
        if not processes.may_end(pid):
            return f"process {pid} is this router's, or another user's"
        self.tell(events.ProcessGiven(program, process))
        return None

    def use(self, program: str) -> None:
        """The program has come to its environment."""
        self.tell(events.EnvironmentUsed(program))

    def allows(self, image: str) -> bool:
        """Whether containers may be made from this image."""
        return preparing.allowed(self._settings.images.allow, image)

    def prefetch(self, image: str) -> bool:
        """Announces an image. False: it is not an allowed one."""
        if not self.allows(image):
            return False
        self.tell(events.ImageWanted(image))
        return True

    def reconcile(self) -> None:
        """Compares the books with the engine now."""
        self._watch.relist()

    def collect(self) -> None:
        """Removes every image that may go, full disk or not, and compares books and engine."""
        self.tell(events.EvictionPlanned(tuple(image.ref for image in self.evictable())))
        self.reconcile()

    # === looking ===

    def status(self) -> Status:
        """For `/health`, metrics and the dashboard."""
        return status_view(self._ledger.books, self.disk.room, self._journal_error)

    def resources(self) -> list[Resource]:
        """Everything owned."""
        return list(self._ledger.books.resources.values())

    def images(self) -> list[Image]:
        """Every image that was ever asked for."""
        return list(self._ledger.books.images.values())

    def evictable(self) -> list[Image]:
        """Images that may go now, least recently used first."""
        books, now_ms = self._ledger.books, self._clock()
        if not self._settings.images.evict:
            return []
        may_go = [i for i in books.images.values() if images.evictable(books, i, now_ms)]
        return sorted(may_go, key=lambda image: image.last_used_ms)

    def environment(self, program: str) -> EnvironmentView:
        """How the program's environment stands."""
        return environment_view(self._ledger.books, program)

    def owned(self, program: str) -> list[Resource]:
        """What any generation of the program still owns."""
        return [r for r in self._ledger.books.resources.values() if r.owner.program == program]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns once all that was told before the call is digested, and `holds()` is true."""
        mark = self._told
        while self._digested < mark or not holds():
            await self._changed.wait()

    # === the bookkeeper ===

    async def _keep_books(self) -> None:
        while True:
            await self._until_due()
            now_ms = self._clock()
            batch = [self._queue.popleft() for _ in range(len(self._queue))]
            actions: list[Action] = []
            for event in batch or [events.Tick()]:
                try:
                    actions += self._ledger.step(event, now_ms)
                except Exception:
                    # One event that we cannot digest must not end the care of all the others.
                    _log.exception("event=%r", event)
                    actions += self._ledger.books.take()
            await self._journal(actions)
            for action in actions:
                if not isinstance(action, Keep | Forget):
                    self._begin(action)
            self._digested += len(batch)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def _until_due(self) -> None:
        due_ms = self._ledger.next_due_ms()
        timeout_s = None if due_ms is None else max(0.0, (due_ms - self._clock()) / 1000)
        if self._unwritten and not self._queue:
            timeout_s = min(timeout_s or _JOURNAL_RETRY_S, _JOURNAL_RETRY_S)
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _remember(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Keep | Forget):
                self._unwritten[action.table, action.key] = action

    async def _journal(self, actions: list[Action]) -> None:
        self._remember(actions)
        if not self._unwritten:
            return
        try:
            await self._store.commit(list(self._unwritten.values()))
        except sqlite3.Error as error:
            _log.error("journal=failing error=%r lines=%d", str(error), len(self._unwritten))
            self._journal_error = str(error)
        else:
            self._unwritten, self._journal_error = {}, None

    def _begin(self, action: Action) -> None:
        match action:
            case Keep() | Forget():
                pass
            case Do(target=target, step=step) if self._journal_error and step is not Step.REMOVE:
                # Removing is safe without a journal, and may be what gives it room again.
                self.tell(Ended(target.key, step, Outcome.RETRY, "the journal cannot be written"))
            case _:
                self._performer.begin(action)

    async def _watch_processes(self) -> None:
        while True:
            await asyncio.sleep(_PROCESS_LOOK_S)
            books = self._ledger.books
            for program in list(books.programs.values()):
                if program.process is not None and not processes.runs(program.process):
                    self.tell(events.ProcessGone(program.id, program.process))
            for resource in list(books.resources.values()):
                if resource.kind is Kind.PROCESS and not processes.runs(
                    Process.named(resource.ref)
                ):
                    self.tell(events.Vanished(Kind.PROCESS, resource.ref))
