"""An engine with bystanders, agents that leave things behind, and routers that look after them."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from containers.layered_images import Recipe
from router import House
from thunder_router.config import EnvironmentSettings
from thunder_router.environment_settings import DiskSettings, DockerSettings, ImageSettings
from thunder_router.environments import DockerEngine, Environments, Store, labels
from thunder_router.environments.service import unix_now_ms
from thunder_router.environments.view import EnvironmentView


class CountingEngine:
    """An engine that counts its calls in flight, but for the watch's own."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self.in_flight = 0
        self.most_in_flight = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._engine, name)
        if name in ("ping", "everything", "events", "close", "pull", "execute"):
            return call

        async def counted(*arguments: Any, **named: Any) -> Any:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                return await call(*arguments, **named)
            finally:
                self.in_flight -= 1

        return counted


class Lab:
    """One test's corner of an engine.

    On leaving, it asserts that nothing carries its router's or its programs' labels any more, and
    that the bystanders are exactly as they were; then it removes the bystanders.
    """

    def __init__(
        self,
        host: str,
        client: docker.DockerClient,
        images: Mapping[str, Recipe],
        name: str,
        folder: Path,
    ) -> None:
        self.host = host
        self.client = client
        self.images = images
        self.name = name
        self.router_id = f"r-{name}"
        self.folder = folder
        self._before: dict[str, Any] = {}

    def __enter__(self) -> "Lab":
        marked = {"thunder-test-bystander": self.name}
        self.client.volumes.create(f"by-{self.name}", labels=marked)
        self.client.networks.create(f"by-{self.name}", labels=marked)
        self.client.containers.run(
            self.images["base"].tag,
            ["sleep", "infinity"],
            name=f"by-{self.name}",
            labels=marked,
            detach=True,
            network_mode="none",
            volumes={f"by-{self.name}": {"bind": "/tmp", "mode": "rw"}},
        )
        self._before = self.bystanders()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        left = self.left_over()
        after = self.bystanders()
        for filters in ({"name": self.name}, {"label": f"{labels.ROUTER}={self.router_id}"}):
            for entry in self.client.containers.list(
                all=True, filters=filters, ignore_removed=True
            ):
                entry.remove(force=True, v=True)
        for network in self.client.networks.list(filters={"name": self.name}):
            network.remove()
        for volume in self.client.volumes.list(filters={"name": self.name}):
            volume.remove()
        if kind is None:
            assert left == []
            assert after == self._before

    def bystanders(self) -> dict[str, Any]:
        """What of the bystanders must not change."""
        container = self.client.containers.get(f"by-{self.name}")
        return {
            "container": (container.id, container.status, container.attrs["State"]["StartedAt"]),
            "volume": self.client.volumes.get(f"by-{self.name}").attrs["CreatedAt"],
            "network": self.client.networks.list(names=[f"by-{self.name}"])[0].id,
        }

    def bystanders_restarted(self) -> None:
        """Starts the bystander again after an engine that died took it down; still the same one."""
        container = self.client.containers.get(f"by-{self.name}")
        assert container.id == self._before["container"][0]
        container.start()
        self._before = self.bystanders()

    def left_over(self) -> list[str]:
        """Everything that belongs to this lab's programs or routers, in any state."""
        found = []
        filters = {"name": self.name}
        for entry in self.client.containers.list(all=True, filters=filters, ignore_removed=True):
            found.append(f"container {entry.name} {entry.status}")
        found += [f"network {n.name}" for n in self.client.networks.list(filters=filters)]
        found += [f"volume {v.name}" for v in self.client.volumes.list(filters=filters)]
        by_label = {"label": f"{labels.ROUTER}={self.router_id}"}
        for entry in self.client.containers.list(all=True, filters=by_label, ignore_removed=True):
            found.append(f"container {entry.name} {entry.status}")
        return sorted({entry for entry in found if f" by-{self.name}" not in entry})

    def program(self, number: int | str) -> str:
        """A program id that no other test uses."""
        return f"p-{self.name}-{number}"

    def agent_runs(
        self, program: str, *, number: int | str = 0, stamp: bool = True, **arguments: Any
    ) -> Container:
        """An agent starts a sandbox for its program, labelled as the manual says."""
        marked = {labels.PROGRAM: program} if stamp else {}
        marked |= arguments.pop("labels", {})
        return self.client.containers.run(
            arguments.pop("image", self.images["base"].tag),
            arguments.pop("command", ["sleep", "infinity"]),
            name=f"c-{program}-{number}-{self.name}",
            labels=marked,
            detach=True,
            network_mode=arguments.pop("network_mode", "none"),
            **arguments,
        )

    def settings(self, **changes: Any) -> EnvironmentSettings:
        """Settings with a patience that fits a test."""
        defaults: dict[str, Any] = {
            "enabled": True,
            "journal": self.folder / f"{self.router_id}.db",
            "router_id": self.router_id,
            "startup_grace_s": 0,
            "docker": DockerSettings(
                host=self.host, ping_interval_s=0.2, ping_timeout_s=0.5, relist_interval_s=1
            ),
            "images": ImageSettings(allow=(f"{self.images['base'].tag.split('/')[0]}/*",)),
            "disk": DiskSettings(high=1.0, reserve_bytes=0),
        }
        return EnvironmentSettings(**(defaults | changes))

    @asynccontextmanager
    async def router(
        self,
        settings: EnvironmentSettings | None = None,
        *,
        busy: Callable[[str], bool] | None = None,
    ) -> AsyncIterator[Environments]:
        """A router's environments, up and listed."""
        chosen = settings or self.settings()
        self.engine = CountingEngine(
            DockerEngine(
                chosen.docker.host,
                call_timeout_s=chosen.docker.call_timeout_s,
                pull_timeout_s=chosen.docker.pull_timeout_s,
            )
        )
        environments = Environments(
            chosen,
            engine=self.engine,
            store=Store(chosen.journal),
            busy=busy,
            clock=unix_now_ms,
            dice=random.Random(0),
        )
        async with environments:
            await until(environments, lambda: environments.status().environments == "ok")
            yield environments

    async def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Runs a blocking call of the test's own client beside the event loop."""
        return await asyncio.to_thread(function, *arguments, **named)


async def until(
    environments: Environments, holds: Callable[[], bool], timeout_s: float = 20
) -> None:
    """Waits for the books to say so."""
    async with asyncio.timeout(timeout_s):
        await environments.until(holds)


async def settled(environments: Environments, program: str) -> EnvironmentView:
    """Waits until the program's environment is ready or failed."""
    await until(environments, lambda: environments.environment(program).settled)
    return environments.environment(program)


async def owns(environments: Environments, program: str, count: int, timeout_s: float = 20) -> None:
    """Waits until the program owns so many resources."""
    await until(environments, lambda: len(environments.owned(program)) == count, timeout_s)


async def resources(house: House) -> list[dict[str, Any]]:
    """What a composed router owns, as it tells."""
    answer = await house.client.get("/thunder/v1/resources")
    return list(answer.json()["resources"])


async def owned(house: House, count: int) -> list[dict[str, Any]]:
    """Asks until the router owns so many resources."""
    async with asyncio.timeout(20):
        while len(found := await resources(house)) != count:
            pass
    return found
