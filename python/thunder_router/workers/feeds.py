"""Where a worker publishes what it does, and whether we can listen.

SGLang and vLLM publish over ZeroMQ, each DP rank at a port of its own: its load (SGLang from
0.5.20) and every block of KV that it stores or drops. Which ports those are stands in answers over
HTTP; this module reads them there. Listening needs two libraries that not everybody wants; only
`followers` imports them, where they are.

Source: SGLANG.md §1.3, §1.4 and §4, recorded from SGLang 0.5.8 to 0.5.23 and vLLM 0.32.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from thunder_router.workers.clock import Clock
from thunder_router.workers.lenient import count, flag, mapping, parse_json, text
from thunder_router.workers.observations import Feed, Place, RankLoad
from thunder_router.workers.report import Reading

__all__ = [
    "EXTRA",
    "Follower",
    "FollowerMaker",
    "address",
    "followers",
    "installed",
    "sglang_feeds",
    "vllm_feeds",
]

EXTRA = "thunder-router[events]"
"""What to install for listening."""

_ANYWHERE = frozenset({"*", "0.0.0.0", "::", "[::]"})

MAX_RANKS = 1024


class Follower(Protocol):
    """Listens to one worker."""

    def follow(self, feeds: tuple[Feed, ...], host: str) -> None:
        """Listens to these from now on, whatever was heard before being of another run."""
        ...

    def loads(self) -> Reading[tuple[RankLoad, ...]] | None:
        """The ranks' last loads, if each of them was heard of lately."""
        ...

    def restart(self) -> None:
        """It is another run of the worker: forgets what was heard."""
        ...

    def residency(self) -> tuple[object, ...]:
        """What its ranks hold in KV, as far as they publish it; for reports."""
        ...

    async def aclose(self) -> None:
        """Listens no more."""
        ...


def installed() -> bool:
    """The libraries of the extra `events` are there."""
    return find_spec("zmq") is not None and find_spec("msgspec") is not None


FollowerMaker = Callable[[int, Callable[[], None]], Follower]
"""Of a worker's number, and of what to call when its cache says that it is empty."""


def followers(clock: Clock, most_blocks: int) -> FollowerMaker | None:
    """What makes listeners, of `most_blocks` each; `None` where the libraries are missing."""
    if not installed():
        return None
    from thunder_router.workers.listen import Listener

    return lambda worker, cleared: Listener(worker, clock, most_blocks, cleared)


def address(place: Place, host: str) -> str:
    """What to connect to; `host` is the worker's own, for a publisher that names none."""
    name = place.host or host
    return f"tcp://[{name}]:{place.port}" if ":" in name else f"tcp://{name}:{place.port}"


def _place(host: object, port: int | None, rank: int) -> Place | None:
    if not port or port + rank > 65535:
        return None
    name = text(host)
    return Place(None if name is None or name in _ANYWHERE else name.strip("[]"), port + rank)


def _of_endpoint(endpoint: object, rank: int) -> Place | None:
    """`tcp://host:port`, moved on by `rank` ports."""
    try:
        parts = urlsplit(text(endpoint) or "")
        port = parts.port
    except ValueError:
        return None
    return _place(parts.hostname, port, rank) if parts.scheme == "tcp" else None


def _bytes(value: object) -> bytes:
    return (text(value) or "").encode("utf-8", "replace")


def sglang_feeds(args: Mapping[str, object], ranks: int) -> tuple[Feed, ...]:
    """From `/server_info`: `kv_events` since 0.5.14, before that the flag as it was given.

    Args:
        args: The answer.
        ranks: DP ranks of the worker; rank r publishes r ports after the one that is named.
    """
    said = mapping(args.get("kv_events"))
    host = said.get("endpoint_host")
    flags = mapping(parse_json(_bytes(args.get("kv_events_config"))))
    found = []
    for rank in range(min(ranks, MAX_RANKS)):
        if said:
            feed = Feed(
                rank,
                loads=_place(host, count(said.get("load_endpoint_port_base")), rank),
                loads_topic=_bytes(said.get("load_topic")),
                blocks=_place(host, count(said.get("endpoint_port_base")), rank),
                blocks_topic=_bytes(said.get("topic")),
                replay=_place(host, count(said.get("replay_endpoint_port_base")), rank),
            )
        else:
            feed = _of_flags(flags, rank, offset=rank)
        if feed.loads or feed.blocks:
            found.append(feed)
    return tuple(found)


def vllm_feeds(body: bytes) -> tuple[Feed, ...]:
    """From `/kv_event_sources`, which names each rank's publisher; it publishes no loads."""
    found = []
    for key, value in mapping(parse_json(body)).items():
        rank, source = count(key), mapping(value)
        if rank is None or rank >= MAX_RANKS or not flag(source.get("enable_kv_cache_events")):
            continue
        feed = _of_flags(source, rank, offset=0)
        if feed.blocks:
            found.append(feed)
    return tuple(sorted(found, key=lambda feed: feed.rank))


def _of_flags(flags: Mapping[str, object], rank: int, *, offset: int) -> Feed:
    zmq = flags.get("publisher") == "zmq"
    return Feed(
        rank,
        blocks=_of_endpoint(flags.get("endpoint"), offset) if zmq else None,
        blocks_topic=_bytes(flags.get("topic")),
        replay=_of_endpoint(flags.get("replay_endpoint"), offset) if zmq else None,
    )
