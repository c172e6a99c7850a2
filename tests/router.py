"""A whole router in the test's own event loop, over any workers, on a free port of the loopback."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from thunder_router.api.app import Router, compose, listen
from thunder_router.config import Settings

__all__ = ["House", "routing"]


class House:
    """A router that serves, and a client of it."""

    def __init__(self, router: Router, client: httpx.AsyncClient, port: int) -> None:
        self.router = router
        self.client = client
        self.port = port

    async def until(self, seen: Any, what: str = "it") -> None:
        """Returns once `seen()` is true; looks again whenever the loop has had a turn."""
        async with asyncio.timeout(10):
            while not seen():  # noqa: ASYNC110 - any condition, on real sockets
                await asyncio.sleep(0.002)
        assert seen(), what

    async def quiet(self) -> dict[str, int]:
        """Waits until nothing is held or in flight, recounts all books, and gives the counts."""

        def counts() -> dict[str, int]:
            total: dict[str, int] = {}
            for pool in self.router.driver.pools:
                for key, value in pool.look()[0].counts().items():
                    total[key] = total.get(key, 0) + value
            return total

        await self.until(lambda: counts()["waiting"] == counts()["in_flight"] == 0)
        for pool in self.router.driver.pools:
            pool.check()
        return counts()


@asynccontextmanager
async def routing(
    urls: Sequence[str], *, ready: int | None = None, **settings: Any
) -> AsyncIterator[House]:
    """A router over these workers, once `ready` of them (all, unless said) serve."""
    workers = {"urls": tuple(urls), "loads_interval_s": 0.05, "retry_interval_s": 0.05}
    workers |= settings.pop("workers", {})
    chosen = Settings.model_validate({"port": 0, "workers": workers} | settings)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    router = compose(chosen)
    serving = asyncio.create_task(router.server.serve([listener]))
    limits = httpx.Limits(max_connections=None)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits, trust_env=False
        ) as client:
            house = House(router, client, port)
            wanted = len(urls) if ready is None else ready
            await house.until(
                lambda: (
                    router.server.started
                    and sum(s.ready for p in router.driver.pools for s in p.seats) >= wanted
                ),
                "the workers are up",
            )
            yield house
    finally:
        router.server.should_exit = True
        await serving
