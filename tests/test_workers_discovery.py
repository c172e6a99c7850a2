"""Workers that come and go by themselves: files that change, names with several addresses."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fake_worker import Ear, FakeWorker, Network, TurnedClock, settle
from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConfigError
from thunder_router.workers.discovery import (
    Discovery,
    DnsRoster,
    FileRoster,
    Roster,
    RosterError,
    read_roster,
    rosters_of,
)
from thunder_router.workers.registry import Registry

A, B, C = "http://a:30000", "http://b:30000", "http://c:30000"


class Listed:
    """A roster that says what the test says."""

    name = "listed"

    def __init__(self, *urls: str) -> None:
        self.urls: list[str] | None = list(urls)

    async def entries(self) -> list[WorkerEntry]:
        if self.urls is None:
            raise RosterError("away")
        return [WorkerEntry(url=url) for url in self.urls]


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    clock, network = TurnedClock(), Network()
    for url in (A, B, C):
        network.place(url, FakeWorker(clock))
    async with Registry(WorkerSettings(), Ear(), network, clock) as opened:
        yield opened


def urls(registry: Registry) -> list[str]:
    return sorted(watch.door.url for watch in registry if not watch.leaving)


def discovery(registry: Registry, *rosters: Roster) -> Discovery:
    return Discovery(registry, rosters, registry.clock, 2.0)


async def advance(registry: Registry, seconds: float) -> None:
    assert isinstance(registry.clock, TurnedClock)
    await registry.clock.advance(seconds)


async def test_workers_are_added_and_drained_as_the_roster_changes(registry: Registry) -> None:
    roster = Listed(A, B)
    found = discovery(registry, roster)
    await found.look()
    assert urls(registry) == [A, B]
    roster.urls = [B, C]
    await found.look()
    assert urls(registry) == [B, C]
    await advance(registry, 5)
    assert len(registry) == 2


async def test_a_roster_that_cannot_be_read_keeps_its_workers_and_warns_once(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    roster, other = Listed(A), Listed(B)
    found = discovery(registry, roster, other)
    await found.look()
    roster.urls, other.urls = None, [B, C]
    await found.look()
    await found.look()
    assert urls(registry) == [A, B, C]
    warnings = [r for r in caplog.records if r.levelname == "WARNING"]
    assert [r.getMessage() for r in warnings] == [
        "event=roster_unreadable roster=listed error=away"
    ]


async def test_a_worker_on_two_rosters_goes_when_both_have_dropped_it(registry: Registry) -> None:
    one, two = Listed(A), Listed(A)
    found = discovery(registry, one, two)
    await found.look()
    one.urls = []
    await found.look()
    assert urls(registry) == [A]
    two.urls = []
    await found.look()
    assert urls(registry) == []


async def test_workers_that_others_added_are_left_alone(registry: Registry) -> None:
    registry.add(WorkerEntry(url=A, capacity_tokens=7))
    roster = Listed(A)
    found = discovery(registry, roster)
    await found.look()
    roster.urls = []
    await found.look()
    assert urls(registry) == [A]
    assert registry.get(0).entry.capacity_tokens == 7


async def test_a_file_is_read_again_when_it_changes_and_a_broken_one_is_not(
    registry: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "workers.json"
    found = discovery(registry, FileRoster(path))
    await found.look()
    assert urls(registry) == []
    path.write_text(f'["{A}"]')
    await found.look()
    assert urls(registry) == [A]
    path.write_text(f'["{A}", "{B}')
    await found.look()
    assert urls(registry) == [A]
    newer = tmp_path / "new"
    newer.write_text(f'["{B}"]')
    os.replace(newer, path)  # noqa: PTH105
    await found.look()
    assert urls(registry) == [B]
    path.unlink()
    await found.look()
    assert urls(registry) == [B]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".json", '["http://a:30000", {"url": "http://b:30000", "capacity_tokens": 5}]'),
        (".json", '{"workers":["http://a:30000",{"url":"http://b:30000","capacity_tokens":5}]}'),
        (".toml", 'workers = ["http://a:30000", {url = "http://b:30000", capacity_tokens = 5}]'),
        (".toml", '[[workers]]\nurl="http://a:30000"\n[[workers]]\nurl="http://b:30000"\ncapacity_tokens=5'),
    ],
)  # fmt: skip
def test_a_file_says_the_same_in_each_of_its_forms(suffix: str, text: str) -> None:
    found = read_roster(text.encode(), suffix)
    assert found == [WorkerEntry(url=A), WorkerEntry(url=B, capacity_tokens=5)]


def test_a_plain_file_has_a_url_a_line_and_comments() -> None:
    text = f"# ours\n{A}   # rack 4\n\n  {B}\n"
    assert read_roster(text.encode(), ".txt") == [WorkerEntry(url=A), WorkerEntry(url=B)]


@pytest.mark.parametrize(
    ("suffix", "text", "piece"),
    [
        (".json", "{", "not JSON"),
        (".json", "3", "no list"),
        (".json", '{"worker": []}', "no list"),
        (".json", '["ftp://x"]', "worker 1: url"),
        (".json", '["http://a", {"url": "http://b", "api_key": ["sk-1"]}]', "worker 2: api_key"),
        (".json", '["http://u:sk-1@a"]', "worker 1: a worker URL has no credentials"),
        (".json", "[3]", "worker 1"),
        (".json", "[" * 100_000, "not JSON"),
        (".toml", "workers = ", "not TOML"),
        (".txt", "\udcff", "not TXT"),
    ],
)
def test_a_malformed_file_says_what_is_wrong_and_quotes_no_key(
    suffix: str, text: str, piece: str
) -> None:
    with pytest.raises(RosterError, match=piece) as caught:
        read_roster(text.encode(errors="surrogateescape"), suffix)
    assert "sk-1" not in str(caught.value)


async def test_a_name_stands_for_each_of_its_addresses() -> None:
    found = await DnsRoster("http://localhost:30000/p").entries()
    addresses = {str(a[4][0]) for a in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    hosts = {f"[{address}]" if ":" in address else address for address in addresses}
    assert {entry.url for entry in found} == {f"http://{host}:30000/p" for host in hosts}


async def test_a_name_that_does_not_resolve_is_no_empty_roster() -> None:
    with pytest.raises(RosterError):
        await DnsRoster("http://no-such-fleet.invalid").entries()


async def test_the_settings_name_the_rosters(tmp_path: Path) -> None:
    settings = WorkerSettings(dns_urls=("http://w:1",), discovery_file=tmp_path / "w.toml")
    assert [roster.name for roster in rosters_of(settings)] == [
        "http://w:1",
        str(tmp_path / "w.toml"),
    ]
    with pytest.raises(ConfigError):
        rosters_of(WorkerSettings(dns_urls=("https://w",)))


async def test_discovery_goes_on_looking(registry: Registry) -> None:

    roster = Listed()
    task = asyncio.create_task(discovery(registry, roster).run())
    await advance(registry, 1)
    roster.urls = [A]
    await advance(registry, 2)
    await settle()
    assert urls(registry) == [A]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
