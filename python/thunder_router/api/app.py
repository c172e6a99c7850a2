"""Puts the rooms together: the only module that knows them all.

    client ── relay ── driver ── cores
                │         │  ╲
             workers ─────╯   ╰── sessions, environments, snapshot, journal, metrics
                │
             FastAPI: programs, workers, control, environments, health

`compose` builds everything for a running loop and starts nothing; `serve` runs it until a signal.
"""

import asyncio
import logging
import socket
import sqlite3
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Final

from fastapi import Depends, FastAPI

from thunder_router.api import admin, control, errors, fleet, gauges, programs, workers
from thunder_router.api import environments as tools
from thunder_router.api.admin import VERSION, Health
from thunder_router.api.doors import Doors
from thunder_router.api.guard import Guard
from thunder_router.api.keeping import Keeping
from thunder_router.config import Settings
from thunder_router.environments import DockerEngine, Environments, Store
from thunder_router.errors import ConfigError, UnknownWorkerError
from thunder_router.observe.metrics import CONTENT_TYPE, Metrics
from thunder_router.relay.keys import ClientKey
from thunder_router.relay.relay import Relay
from thunder_router.relay.serve import RelayServer
from thunder_router.scheduling.clock import LoopClock
from thunder_router.scheduling.driver import Driver
from thunder_router.scheduling.programs import Programs
from thunder_router.scheduling.tenancy import Tenancy
from thunder_router.workers import kubernetes
from thunder_router.workers.clock import MonotonicClock
from thunder_router.workers.discovery import Discovery, rosters_of
from thunder_router.workers.endpoint import normal_url
from thunder_router.workers.feeds import followers
from thunder_router.workers.http import AiohttpClient
from thunder_router.workers.registry import Registry
from thunder_router.workers.sessions import Sessions

__all__ = ["Router", "compose", "listen", "serve"]

_LOG = logging.getLogger(__name__)
_BACKLOG: Final = 2048
"""Connections that may wait to be accepted, as uvicorn's default."""


@dataclass(frozen=True, slots=True)
class Router:
    """One router, put together.

    Attributes:
        server: Serves all of it: `await server.serve()`.
        driver: The scheduler's shell.
        registry: The workers.
        health: What `/health` says; `stopping` turns readiness off.
        metrics: What `/metrics` says.
    """

    server: RelayServer
    driver: Driver
    registry: Registry
    health: Health
    metrics: Metrics


async def serve(settings: Settings) -> None:
    """Serves until SIGINT or SIGTERM, and lets answers under way be completed.

    Raises:
        ConfigError: a setting that only shows its fault in use, such as a worker's URL.
        OSError: the address is taken or is not ours.
    """
    with listen(settings.host, settings.port) as listener:
        router = compose(settings)
        host, port = listener.getsockname()[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        scheme = "http" if settings.tls_cert is None else "https"
        _LOG.info("serving url=%s://%s policy=%s", scheme, where, settings.scheduling.policy)
        try:
            await router.server.serve([listener])
        except ssl.SSLError as error:  # at the start: a handshake that fails ends its connection
            raise ConfigError(f"tls_cert and tls_key do not serve: {error}") from error
        if not router.server.started:
            raise ConfigError("the router did not start; the log says why")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Raises:
        OSError: the address is taken or is not ours; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def compose(settings: Settings) -> Router:
    """Everything, for the running event loop.

    Raises:
        ConfigError: a setting that only shows its fault in use, such as a worker's URL.
    """
    loop = asyncio.get_running_loop()
    for url in settings.workers.urls:
        normal_url(url)
    client = AiohttpClient()
    time = MonotonicClock()
    keeping = Keeping(settings)
    driver = Driver(
        keeping.new_core,
        LoopClock(loop),
        weak_hints=settings.identity.weak_hints,
        tenancy=None if settings.fairness.by is None else Tenancy(settings.fairness),
        strict_models=settings.workers.strict_models,
        on_worker_up=lambda pool, worker: keeping.recall(pool, worker, worker_name(worker)),
    )
    keeping.resume(driver)
    hears = settings.workers.listen
    follower = followers(time, settings.workers.residency_blocks) if hears else None
    registry = Registry(settings.workers, driver, client, time, follower=follower)

    def worker_name(worker: int) -> str:
        try:
            return registry.get(worker).door.url
        except UnknownWorkerError:
            return f"worker {worker} (gone)"

    sessions = Sessions(registry)
    driver.subscribe(sessions)
    health = Health(driver, settings.scheduling.policy, worker_name)
    metrics = Metrics(gauges.of(driver))
    guard = Guard(settings.api_key, settings.admin_key)
    listing = Programs(driver)
    rooms: list[AbstractAsyncContextManager[object]] = [client, registry]

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for room in rooms:
                await stack.enter_async_context(room)
            stack.push_async_callback(sessions.aclose)
            stack.callback(driver.close)
            stack.enter_context(keeping.running(loop, driver, worker_name))
            rosters = rosters_of(settings.workers)
            if settings.workers.kubernetes_selector is not None:
                rosters.append(await kubernetes.connect(settings.workers))
            if rosters:
                discovery = Discovery(
                    registry, rosters, time, settings.workers.discovery_interval_s
                )
                task = loop.create_task(discovery.run(), name="discovery")
                stack.callback(task.cancel)
            yield

    app = FastAPI(title="thunder-router", version=VERSION, lifespan=lifespan)
    errors.install(app)
    app.include_router(admin.routes(health, metrics.scrape, CONTENT_TYPE))
    app.include_router(programs.routes(listing, driver, guard, worker_name))
    app.include_router(fleet.routes(registry), dependencies=[Depends(guard.client)])
    app.include_router(workers.routes(registry), dependencies=[Depends(guard.admin)])
    app.include_router(control.routes(registry), dependencies=[Depends(guard.admin)])

    if settings.environments.enabled:
        environments = _environments(settings, listing)
        driver.subscribe(tools.follow(environments, listing.waits))
        for gauge in tools.gauges(environments):
            metrics.add(gauge)
        health.rooms["environments"] = lambda: asdict(environments.status())
        rooms.append(environments)
        app.include_router(tools.routes(environments, guard, driver.release))

    key = settings.api_key
    relay = Relay(
        settings.relay,
        admission=driver,
        workers=Doors(registry),
        observer=metrics,
        key=None if key is None else ClientKey(key.get_secret_value()),
    )

    def stopping() -> None:
        health.stopping = True

    server = RelayServer(
        app,
        relay,
        grace_s=settings.shutdown_grace_s,
        delay_s=settings.shutdown_delay_s,
        on_draining=stopping,
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    return Router(server, driver, registry, health, metrics)


def _environments(settings: Settings, listing: Programs) -> Environments:
    """The environments as their section wants them.

    Raises:
        ConfigError: their journal cannot be opened.
    """
    section = settings.environments
    try:
        store = Store(section.journal)
    except sqlite3.Error as error:
        raise ConfigError(f"environments.journal: {section.journal}: {error}") from error
    docker = section.docker
    engine = DockerEngine(
        docker.host,
        call_timeout_s=docker.call_timeout_s,
        pull_timeout_s=docker.pull_timeout_s,
    )
    return Environments(section, engine=engine, store=store, busy=listing.busy)
