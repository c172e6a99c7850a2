"""The Docker engine, over its socket.

aiodocker makes the calls, because a call to a hung engine can be cancelled there (a blocking
client would lose a thread to it). Every call has a time limit of its own. Two things aiodocker does
not do for us: its event helper does not survive an engine restart, so `events` reads the stream
itself; and it takes the newest API that the engine speaks, so `_connected` negotiates down to what
this module was written for.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer
from aiodocker.networks import DockerNetwork
from aiodocker.volumes import DockerVolume

from thunder_router.environments import docker_facts
from thunder_router.environments.engine import (
    EngineError,
    EngineEvent,
    EngineUnreachableError,
    ImageFacts,
)
from thunder_router.environments.records import Kind, Sighting, Spec

__all__ = ["DockerEngine", "negotiated"]

_NEWEST_API: Final = (1, 44)
"""The newest API version this module was written for; Docker 29.0 speaks none older."""

_Network: Final[Any] = DockerNetwork  # aiodocker leaves these two without types.
_Volume: Final[Any] = DockerVolume


def negotiated(newest: str, oldest: str) -> str:
    """The API version to speak with an engine that speaks from `oldest` to `newest`."""

    def parsed(version: str) -> tuple[int, int]:
        major, _, minor = version.partition(".")
        return int(major), int(minor)

    major, minor = max(min(parsed(newest), _NEWEST_API), parsed(oldest))
    return f"v{major}.{minor}"


class DockerEngine:
    """An `Engine` on Docker, or on anything that speaks its API.

    Args:
        host: `unix:///path` or `tcp://host:port`.
        call_timeout_s: Limit of every call that has no limit of its own.
        pull_timeout_s: Limit of a pull.
    """

    def __init__(self, host: str, *, call_timeout_s: float, pull_timeout_s: float) -> None:
        self._host = host
        self._call_timeout_s = call_timeout_s
        self._pull_timeout_s = pull_timeout_s
        self._docker: aiodocker.Docker | None = None
        self._session: aiohttp.ClientSession | None = None

    # === connection ===

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(self._host.removeprefix("unix://"))
                if self._host.startswith("unix://")
                else aiohttp.TCPConnector()
            )
            # Time limits are asyncio's: a limit per call, whatever the call does.
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout()
            )
        return self._session

    def _url(self, path: str) -> str:
        # Over a socket the host's name is of no matter, but must be one.
        over_tcp = self._host.startswith("tcp://")
        base = f"http://{self._host.removeprefix('tcp://') if over_tcp else 'docker'}"
        return f"{base}/{path}" if path else base

    async def _connected(self) -> aiodocker.Docker:
        if self._docker is None:
            session = self._opened()
            async with session.get(self._url("version")) as answer:
                answer.raise_for_status()
                version = await answer.json()
            self._docker = aiodocker.Docker(
                self._url(""),
                connector=session.connector,
                session=session,
                api_version=negotiated(version["ApiVersion"], version.get("MinAPIVersion", "1.24")),
            )
        return self._docker

    @asynccontextmanager
    async def _calling(self, timeout_s: float | None = None) -> AsyncIterator[aiodocker.Docker]:
        """The connected client, within a time limit, with its errors made ours."""
        limit_s = self._call_timeout_s if timeout_s is None else timeout_s
        session = self._opened()
        try:
            async with asyncio.timeout(limit_s):
                yield await self._connected()
        except TimeoutError as error:
            raise EngineUnreachableError(f"no answer within {limit_s:g} s") from error
        except aiodocker.DockerError as error:
            if error.status >= 900:
                raise EngineUnreachableError(error.message) from error
            raise EngineError(error.status or 500, error.message) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnreachableError(str(error) or type(error).__name__) from error
        except RuntimeError as error:
            if self._session is session and not session.closed:
                raise
            # aiohttp's word for a session that was closed in the midst of a call, by an outage.
            raise EngineUnreachableError(str(error)) from error

    async def ping(self, timeout_s: float) -> None:
        """Returns if the engine answers within `timeout_s`."""
        async with self._calling(timeout_s), self._opened().get(self._url("_ping")) as answer:
            answer.raise_for_status()

    async def close(self) -> None:
        """Lets go of the connections."""
        docker, self._docker = self._docker, None
        session, self._session = self._session, None
        if docker is not None:
            await docker.close()
        if session is not None:
            await session.close()

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Subscribes; then what happens from now on. Never ends well: a broken stream raises."""
        # The engine may have been replaced by another version since the last stream.
        self._docker = None
        async with self._calling() as docker:
            stream = await self._opened().get(self._url(f"{docker.api_version}/events"))
            if stream.status != 200:
                async with stream:
                    raise EngineError(stream.status, await stream.text())
        return _lines(stream)

    # === looking ===

    async def everything(self) -> list[Sighting]:
        """Every container in any state, every network, every volume."""
        return await self._list({})

    async def labelled(self, label: str, value: str) -> list[Sighting]:
        """The same, of what carries this label."""
        listed = await self._list({"filters": json.dumps({"label": [f"{label}={value}"]})})
        # Inspection knows a container's birth to the nanosecond; it may be gone by now.
        exact = [await self.sight(s.kind, s.ref) for s in listed if s.kind is Kind.CONTAINER]
        return [s for s in listed if s.kind is not Kind.CONTAINER] + [s for s in exact if s]

    async def _list(self, params: dict[str, str]) -> list[Sighting]:
        async with self._calling() as docker:
            containers = await docker.containers.list(all=1, **params)
            sightings = [docker_facts.seen_container(_shown(c)) for c in containers]
            filters = json.loads(params["filters"]) if params else None
            networks = await docker.networks.list(filters=filters)
            listed = await docker.volumes.list(filters=filters)  # type: ignore[no-untyped-call]
            volumes = listed.get("Volumes") or []
        sightings += [docker_facts.network(item) for item in networks]
        return sightings + [docker_facts.volume(item) for item in volumes]

    async def sight(self, kind: Kind, ref: str) -> Sighting | None:
        """One container, network or volume by name or id; None: there is none."""
        try:
            async with self._calling() as docker:
                match kind:
                    case Kind.CONTAINER:
                        shown = await docker.containers.container(ref).show()
                        return docker_facts.shown_container(shown)
                    case Kind.NETWORK:
                        return docker_facts.network(await _Network(docker, ref).show())
                    case Kind.VOLUME:
                        return docker_facts.volume(await _Volume(docker, ref).show())
                    case _:
                        raise ValueError(f"{kind} is not an engine's object")
        except EngineError as error:
            if _absent(error):
                return None
            raise

    async def healthy(self, container: str) -> bool:
        """Whether the image's own health check says so."""
        async with self._calling() as docker:
            shown = await docker.containers.container(container).show()
        return bool(((shown["State"].get("Health") or {}).get("Status")) == "healthy")

    async def busy(self, container: str) -> bool:
        """Whether any exec is running inside."""
        async with self._calling() as docker:
            shown = await docker.containers.container(container).show()
            for exec_id in shown.get("ExecIDs") or ():
                if (await docker.containers.exec(exec_id).inspect()).get("Running"):
                    return True
        return False

    # === containers ===

    async def create(self, name: str, spec: Spec, labels: Mapping[str, str]) -> str:
        """Creates a container, and returns its id."""
        config = docker_facts.container_config(spec, labels)
        async with self._calling() as docker:
            return (await docker.containers.create(config, name=name)).id

    async def start(self, container: str) -> None:
        """Starts it; started already is well."""
        async with self._calling() as docker:
            await docker.containers.container(container).start()

    async def execute(self, container: str, command: tuple[str, ...], timeout_s: float) -> int:
        """Runs a command inside, and returns its exit status."""
        async with self._calling(timeout_s) as docker:
            run = await docker.containers.container(container).exec(
                list(command), stdout=True, stderr=True
            )
            async with run.start(detach=False) as stream:
                while await stream.read_out() is not None:
                    pass
            return int((await run.inspect())["ExitCode"])

    async def pause(self, container: str) -> None:
        """Freezes its processes."""
        async with self._container(container) as handle:
            await handle.pause()

    async def unpause(self, container: str) -> None:
        """Thaws them."""
        async with self._container(container) as handle:
            await handle.unpause()

    async def stop(self, container: str, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL after `timeout_s`."""
        async with self._calling(self._call_timeout_s + timeout_s) as docker:
            await docker.containers.container(container).stop(t=round(timeout_s))

    async def remove(self, kind: Kind, ref: str) -> None:
        """Removes a container (killed, with its anonymous volumes), a network or a volume."""
        async with self._calling() as docker:
            match kind:
                case Kind.CONTAINER:
                    await docker.containers.container(ref).delete(force=True, v=True)
                case Kind.NETWORK:
                    await _Network(docker, ref).delete()
                case Kind.VOLUME:
                    await _Volume(docker, ref).delete()
                case _:
                    raise ValueError(f"{kind} is not an engine's object")

    @asynccontextmanager
    async def _container(self, ref: str) -> AsyncIterator[DockerContainer]:
        async with self._calling() as docker:
            yield docker.containers.container(ref)

    # === images ===

    async def image(self, ref: str, *, layers: bool = False) -> ImageFacts | None:
        """The image that has this name or id; None: there is none."""
        try:
            async with self._calling() as docker:
                shown: dict[str, Any] = await docker.images.inspect(ref)
                found = ImageFacts(shown["Id"], tuple(shown.get("RepoTags") or ()))
                if not layers:
                    return found
                history: Any = await docker.images.history(ref)
        except EngineError as error:
            if _absent(error):
                return None
            raise
        diff_ids = shown["RootFS"].get("Layers") or []
        return ImageFacts(
            found.id, found.tags, docker_facts.layers(diff_ids, history, int(shown["Size"]))
        )

    async def image_ids(self) -> list[str]:
        """Ids of all images."""
        async with self._calling() as docker:
            return [str(item["Id"]) for item in await docker.images.list()]

    async def pull(self, ref: str) -> None:
        """Pulls; only `image` tells whether it is there now."""
        name, _, tag = ref.rpartition(":")
        if not name or "/" in tag or "@" in ref:
            name, tag = ref, "" if "@" in ref else "latest"
        # Our own request, for it must be closed on the way out: that cancels the pull.
        async with (
            self._calling(self._pull_timeout_s) as docker,
            self._opened().post(
                self._url(f"{docker.api_version}/images/create"),
                params={"fromImage": name, "tag": tag},
            ) as answer,
        ):
            if answer.status != 200:
                raise EngineError(answer.status, (await answer.json()).get("message", ""))
            async for line in answer.content:
                if error := json.loads(line).get("error"):
                    raise EngineError(500, error)

    async def remove_image(self, ref: str) -> None:
        """Untags, and removes what no other name and no container uses. Never by force."""
        async with self._calling() as docker:
            await docker.images.delete(ref)

    async def data_root(self) -> str:
        """The folder on the engine's machine that holds its data."""
        async with self._calling() as docker:
            return str((await docker.system.info())["DockerRootDir"])


async def _lines(stream: aiohttp.ClientResponse) -> AsyncIterator[EngineEvent]:
    try:
        async for line in stream.content:
            yield docker_facts.engine_event(json.loads(line))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise EngineUnreachableError(f"event stream broke: {error}") from error
    finally:
        stream.close()
    raise EngineUnreachableError("event stream ended")


def _shown(container: DockerContainer) -> dict[str, Any]:
    fields = ("Id", "Names", "Labels", "Created", "State", "ImageID", "NetworkSettings")
    return {field: container[field] for field in fields if field in container}


def _absent(error: EngineError) -> bool:
    """Whether this says that the named object does not exist.

    A full network pool is also answered with 404, so the status alone says nothing (measured on
    20.10.24).
    """
    return error.status == 404 and any(
        words in error.message.lower() for words in ("no such", "not found")
    )
