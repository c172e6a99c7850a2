"""Finds workers that come and go: in a file, behind DNS names, or wherever a `Roster` looks.

Each roster names the workers that should be there now; what it named last and no longer names is
drained, what is new is added. A roster that cannot look (a half-written file, a name server that is
away) keeps what it named before: whether those workers live is for their watches to find out, and
an outage of the name server must not become an outage of the fleet.
"""

import asyncio
import json
import logging
import socket
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import ValidationError

from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConfigError
from thunder_router.workers.clock import Clock
from thunder_router.workers.endpoint import normal_url
from thunder_router.workers.registry import Registry

__all__ = [
    "Discovery",
    "DnsRoster",
    "FileRoster",
    "Roster",
    "RosterError",
    "read_roster",
    "rosters_of",
]

log = logging.getLogger(__name__)


class RosterError(Exception):
    """The roster cannot be read now; the message says why, without quoting it."""


class Roster(Protocol):
    """A place that says which workers there should be."""

    @property
    def name(self) -> str:
        """For the log."""
        ...

    async def entries(self) -> list[WorkerEntry]:
        """The workers that should be there now.

        Raises:
            RosterError: it cannot say; what it said last still holds.
        """
        ...


class Discovery:
    """Keeps a registry in step with rosters. Workers added by others are left alone."""

    def __init__(
        self, registry: Registry, rosters: Sequence[Roster], clock: Clock, interval_s: float
    ) -> None:
        self._registry = registry
        self._rosters = rosters
        self._clock = clock
        self._interval_s = interval_s
        self._named: list[dict[str, WorkerEntry]] = [{} for _ in rosters]
        self._trouble: list[str | None] = [None for _ in rosters]
        self._mine: dict[str, WorkerEntry] = {}

    async def run(self) -> None:
        """Looks at every roster again and again, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._interval_s)

    async def look(self) -> None:
        """Looks at every roster once."""
        await asyncio.gather(*(self._read(place) for place in range(len(self._rosters))))
        wanted: dict[str, WorkerEntry] = {}
        for named in self._named:
            wanted |= {url: entry for url, entry in named.items() if url not in wanted}
        for url, entry in wanted.items():
            if self._mine.get(url) == entry:
                continue
            if url not in self._mine and self._registry.find(url) is not None:
                continue
            self._registry.add(entry)
            self._mine[url] = entry
        for url in [url for url in self._mine if url not in wanted]:
            del self._mine[url]
            watch = self._registry.find(url)
            if watch is not None:
                self._registry.remove(watch.id)

    async def _read(self, place: int) -> None:
        roster = self._rosters[place]
        try:
            entries = await roster.entries()
            self._named[place] = {normal_url(entry.url): entry for entry in entries}
            trouble = None
        except (RosterError, ConfigError) as error:
            trouble = str(error)
        if trouble is not None and trouble != self._trouble[place]:
            log.warning("event=roster_unreadable roster=%s error=%s", roster.name, trouble)
        self._trouble[place] = trouble


class FileRoster:
    """A file of workers: JSON, TOML, or one URL a line, told apart by its name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The file."""
        return str(self._path)

    async def entries(self) -> list[WorkerEntry]:
        """What the file says now; read off the loop, for it may lie on a network."""
        try:
            body = await asyncio.to_thread(self._path.read_bytes)
        except OSError as error:
            raise RosterError(error.strerror or type(error).__name__) from None
        return read_roster(body, self._path.suffix)


def read_roster(body: bytes, suffix: str) -> list[WorkerEntry]:
    """The workers that a file names.

    Args:
        body: JSON or TOML: a list under `workers` (JSON: or the list itself) of URLs or of objects
            with the fields of `WorkerEntry`. Anything else: a URL a line, `#` begins a comment.
        suffix: `.json`, `.toml` or another.

    Raises:
        RosterError: it is not that.
    """
    try:
        text = body.decode()
        if suffix == ".json":
            found: object = json.loads(text)
        elif suffix == ".toml":
            found = tomllib.loads(text)
        else:
            lines = (line.partition("#")[0].strip() for line in text.splitlines())
            found = [line for line in lines if line]
    except (ValueError, RecursionError):
        raise RosterError(f"not {suffix.removeprefix('.').upper() or 'text'}") from None
    if isinstance(found, dict):
        found = found.get("workers")
    if not isinstance(found, list):
        raise RosterError("no list of workers")
    return [_entry(item, place) for place, item in enumerate(found, 1)]


def _entry(item: object, place: int) -> WorkerEntry:
    try:
        entry = WorkerEntry.model_validate({"url": item} if isinstance(item, str) else item)
        normal_url(entry.url)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RosterError(f"worker {place}: {where}: {first['msg']}") from None
    except ConfigError as error:
        raise RosterError(f"worker {place}: {error}") from None
    return entry


class DnsRoster:
    """A URL whose host name stands for several workers, one per address."""

    def __init__(self, url: str) -> None:
        """`url` must be http: a certificate would not name addresses.

        Raises:
            ConfigError: it is not an http URL.
        """
        self._url = normal_url(url)
        if not self._url.startswith("http://"):
            raise ConfigError("a name that stands for several workers must be an http:// URL")

    @property
    def name(self) -> str:
        """The URL."""
        return self._url

    async def entries(self) -> list[WorkerEntry]:
        """A worker for each address of the name, IPv4 and IPv6."""
        parts = urlsplit(self._url)
        port = parts.port or 80
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                parts.hostname, port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            raise RosterError(error.strerror or type(error).__name__) from None
        addresses = sorted({str(address[0]) for *_, address in found})
        hosts = (f"[{address}]" if ":" in address else address for address in addresses)
        return [WorkerEntry(url=f"http://{host}:{port}{parts.path}") for host in hosts]


def rosters_of(settings: WorkerSettings) -> list[Roster]:
    """The rosters that the settings name; none where discovery is off.

    Raises:
        ConfigError: one of `dns_urls` is not an http URL.
    """
    rosters: list[Roster] = [DnsRoster(url) for url in settings.dns_urls]
    if settings.discovery_file is not None:
        rosters.append(FileRoster(settings.discovery_file))
    return rosters
