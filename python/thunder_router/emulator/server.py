"""Sockets, signals and shutdown around the application.

One uvicorn server listens on every worker's socket. SIGTERM drains as SGLang does: health and ready
turn 503 at once, new requests are still served, and the process ends when nothing is in flight. A
second signal ends it there and then.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator

import uvicorn
import uvloop

from thunder_router.emulator.app import App
from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.script import Script
from thunder_router.emulator.worker import Worker
from thunder_router.errors import ConfigError

__all__ = ["running", "serve"]

_DRAIN_POLL_S = 0.05


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to whoever runs it, and says when it is up."""

    def __init__(self, config: uvicorn.Config, up: asyncio.Event) -> None:
        super().__init__(config)
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        self._up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


@contextlib.asynccontextmanager
async def running(options: EmulatorOptions) -> AsyncIterator[tuple[str, ...]]:
    """Runs the workers while the context is open; yields their base URLs, in order of ports.

    Raises:
        ConfigError: a port is taken, the preset is unknown, or the script cannot be read.
    """
    async with _up(options) as (workers, _):
        yield tuple(f"http://{options.host}:{worker.port}" for worker in workers)


def serve(options: EmulatorOptions) -> None:
    """Runs the workers until SIGTERM or SIGINT. Prints each worker's URL, a line each.

    Raises:
        ConfigError: as for `running`.
    """
    uvloop.run(_serve(options))


async def _serve(options: EmulatorOptions) -> None:
    async with _up(options) as (workers, server):
        for worker in workers:
            line = f"emulated SGLang worker {options.model} at http://{options.host}:{worker.port}"
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        stopped = asyncio.Event()

        def stop() -> None:
            if any(worker.draining for worker in workers):
                server.force_exit = True
                stopped.set()
            for worker in workers:
                worker.draining = True
            if not any(worker.in_flight for worker in workers):
                stopped.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        while not stopped.is_set():
            # Only a draining process looks again by itself.
            draining = any(worker.draining for worker in workers)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_POLL_S if draining else None):
                    await stopped.wait()
            if draining and not any(worker.in_flight for worker in workers):
                stopped.set()


@contextlib.asynccontextmanager
async def _up(options: EmulatorOptions) -> AsyncIterator[tuple[list[Worker], _Server]]:
    script = Script() if options.script is None else Script.read(options.script)
    sockets: list[socket.socket] = []
    workers: list[Worker] = []
    try:
        for index in range(options.workers):
            sockets.append(_listen(options.host, options.port + index if options.port else 0))
            workers.append(Worker(options, sockets[-1].getsockname()[1], script))
        config = uvicorn.Config(
            App({worker.port: worker for worker in workers}),
            lifespan="off",
            http="httptools",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        started = asyncio.Event()
        server = _Server(config, started)
        task = asyncio.create_task(server.serve(sockets))
        task.add_done_callback(lambda _: started.set())
        await started.wait()
        try:
            yield workers, server
        finally:
            server.should_exit = True
            for worker in workers:
                worker.abort_matching("", everything=True)
            await task
    finally:
        for worker in workers:
            worker.close()
        for one in sockets:
            one.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, for asyncio sets TCP_NODELAY only on what says so: else answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"{host}:{port}: {error.strerror}") from error
    return listener
