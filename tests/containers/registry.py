"""A real registry on the loopback address, and a tap to slow it down or cut it off.

Debian's `docker-registry`. Engines take any registry on 127.0.0.0/8 without TLS.
"""

import asyncio
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path


def lacking() -> str | None:
    """Why no registry can be had here; None: it can."""
    return None if shutil.which("docker-registry") else "a registry needs docker-registry"


class Registry:
    """A registry in a folder; with `namespace`, in that network namespace."""

    def __init__(self, folder: Path, namespace: str | None = None) -> None:
        self.folder = folder
        self.namespace = namespace
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Registry":
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.yml"
        config.write_text(
            "version: 0.1\n"
            "log: {level: error, accesslog: {disabled: true}}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder}/data}}}}\n"
            f"http: {{addr: '{self.host}'}}\n"
        )
        enter = () if self.namespace is None else ("nsenter", f"--net=/run/netns/{self.namespace}")
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*enter, "docker-registry", "serve", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if self.namespace is None:
            self._await()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None, "not started"
        self._process.terminate()
        self._process.wait()

    def _await(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                urllib.request.urlopen(f"http://{self.host}/v2/", timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


class Tap:
    """A TCP relay before a registry: cuts every connection after so many bytes, until opened."""

    def __init__(self, port: int, cut_after: int) -> None:
        self._port = port
        self._cut_after = cut_after
        self._server: asyncio.Server | None = None
        self._relays: list[asyncio.Task[None]] = []
        self.cuts = 0
        self.open = False

    @property
    def host(self) -> str:
        assert self._server is not None, "not started"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Tap":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None, "not started"
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._relays.append(asyncio.create_task(self._relay(reader, writer)))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        passed = 0

        async def upward() -> None:
            while data := await reader.read(65536):
                up_writer.write(data)
                await up_writer.drain()

        asking = asyncio.create_task(upward())
        try:
            while data := await up_reader.read(65536):
                passed += len(data)
                if passed > self._cut_after and not self.open:
                    self.cuts += 1
                    writer.transport.abort()
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            for end in (writer, up_writer):
                end.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
