"""The workers of this router: who they are, and where each stands.

One `Watch` per worker does the looking; the registry adds and removes them, gives each a number
that stays its own for as long as the router runs (a URL that comes back gets its old number), and
answers the relay, which asks where to send a request and says how it went.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterator
from typing import Literal

from pydantic import SecretStr

from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import NoWorkerError, UnknownWorkerError
from thunder_router.workers.clock import Clock
from thunder_router.workers.endpoint import Endpoint, normal_url
from thunder_router.workers.feeds import FollowerMaker
from thunder_router.workers.http import HttpClient
from thunder_router.workers.life import State
from thunder_router.workers.offer import SchedulerEvents
from thunder_router.workers.probe import Door
from thunder_router.workers.report import ModelReport
from thunder_router.workers.watch import Watch

__all__ = ["Fault", "Registry"]

log = logging.getLogger(__name__)

Fault = Literal["connect", "reset", "protocol", "timeout", "status"]


class Registry:
    """All workers. Use as an async context manager, in the event loop of the relay."""

    def __init__(
        self,
        settings: WorkerSettings,
        events: SchedulerEvents,
        client: HttpClient,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        follower: FollowerMaker | None = None,
    ) -> None:
        """Knows nobody yet: entering it adds the workers of `settings`.

        `follower` makes what listens to the worker of that number; `None`: they are only asked.
        """
        self.settings = settings
        self.client = client
        self.clock = clock
        self.events = events
        self._tls = tls
        self._follower = follower
        self._numbers: dict[str, int] = {}
        self._watches: dict[int, Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Registry":
        for entry in self.settings.entries:
            self.add(entry)
        for url in self.settings.urls:
            self.add(WorkerEntry(url=url))  # which leaves an entry with settings as it is
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Who is there.

    def __iter__(self) -> Iterator[Watch]:
        return iter([w for w in self._watches.values() if w.state is not State.GONE])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _present(self, worker: int | None) -> Watch | None:
        """The worker with this number, unless it is on its way out of the table."""
        watch = None if worker is None else self._watches.get(worker)
        return None if watch is None or watch.state is State.GONE else watch

    def get(self, worker: int) -> Watch:
        """The worker with this number.

        Raises:
            UnknownWorkerError: there is none.
        """
        watch = self._present(worker)
        if watch is None:
            raise UnknownWorkerError(f"no worker {worker}")
        return watch

    def find(self, url: str) -> Watch | None:
        """The worker at this URL, however it is spelt.

        Raises:
            ConfigError: not a worker URL.
        """
        return self._present(self._numbers.get(normal_url(url)))

    def add(self, entry: WorkerEntry) -> Watch:
        """Takes a worker in, and returns at once: whether it lives shows later.

        One that is there already stays, even if it was about to leave, and gets the new settings,
        unless there are none but its URL.

        Raises:
            ConfigError: not a worker URL.
        """
        url = normal_url(entry.url)
        present = self.find(url)
        if present is not None:
            if entry.model_fields_set != {"url"} and entry != present.entry:
                self.update(present.id, entry)
            present.stay()
            return present
        number = self._numbers.setdefault(url, len(self._numbers))
        door, tls = self._door(url, entry), self._context(url)
        watch = Watch(
            number, entry, door, self.settings, self.events, tls, self.__len__, self._follower
        )
        self._watches[number] = watch
        task = asyncio.create_task(self._watch(watch), name=f"worker-{number}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        log.info("worker=%d event=added url=%s", number, url)
        return watch

    def update(self, worker: int, entry: WorkerEntry) -> Watch:
        """Gives a worker new settings. Its URL is its identity and stays.

        Raises:
            UnknownWorkerError: there is none.
        """
        watch = self.get(worker)
        watch.change(entry, self._door(watch.door.url, entry))
        return watch

    def remove(self, worker: int, *, drain: bool = True) -> Watch:
        """Drains a worker and then forgets it, or forgets it at once.

        Raises:
            UnknownWorkerError: there is none.
        """
        watch = self.get(worker)
        if drain:
            watch.leave()
        else:
            watch.remove()
        return watch

    async def _watch(self, watch: Watch) -> None:
        await watch.run()
        if self._watches.get(watch.id) is watch:
            del self._watches[watch.id]
            log.info("worker=%d event=removed", watch.id)

    def _door(self, url: str, entry: WorkerEntry) -> Door:
        key = self.settings.complete(entry).api_key
        return Door(url, key, self.client, self.clock, self.settings.probe_timeout_s)

    def _context(self, url: str) -> ssl.SSLContext | None:
        """One TLS context for all https workers; reading the system's roots takes its time."""
        if not url.startswith("https://"):
            return None
        self._tls = self._tls or ssl.create_default_context()
        return self._tls

    def control_key(self, watch: Watch) -> SecretStr | None:
        """The key for control calls to this worker."""
        return self.settings.complete(watch.entry).admin_api_key or watch.door.key

    def models(self) -> tuple[ModelReport, ...]:
        """What can be asked for now, each name once, with its longest context anywhere."""
        found: dict[str, int | None] = {}
        for watch in self:
            if watch.report is None or watch.state is State.UNHEALTHY:
                continue
            for model in watch.report.models:
                lengths = [n for n in (found.get(model.id), model.max_model_len) if n is not None]
                found[model.id] = max(lengths, default=None)
        return tuple(ModelReport(name, length) for name, length in found.items())

    # For the relay, once per request.

    def endpoint(self, worker: int) -> Endpoint:
        """Where this worker listens.

        Raises:
            NoWorkerError: the worker is gone.
        """
        watch = self._present(worker)
        if watch is None:
            raise NoWorkerError(f"worker {worker} is gone")
        return watch.endpoint

    def answered(self, worker: int) -> None:
        """It answered a request with anything but a fault."""
        watch = self._watches.get(worker)
        if watch is not None:
            watch.answered()

    def faulted(self, worker: int, fault: Fault) -> None:
        """It failed a request. A time-out is not held against it: busy is not broken."""
        watch = self._watches.get(worker)
        if watch is not None and fault != "timeout":
            watch.faulted(unreachable=fault == "connect")
