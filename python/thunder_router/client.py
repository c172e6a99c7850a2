"""For agents: one program's name, in every form that clients need, and its release at the end.

    with Program("http://127.0.0.1:30000") as program:
        client = OpenAI(base_url=program.base_url, default_headers=program.headers)
        ...

    async with Program("http://127.0.0.1:30000", name="run7-task42") as program:
        await litellm.acompletion(model="openai/m", api_base=program.base_url, **program.litellm)

Leaving the block releases the program, also by an exception: its place, its KV cache and its
containers are free at once instead of after a time-out. A router that cannot be reached costs the
agent nothing but a log line. Only the standard library is needed.
"""

import asyncio
import json
import logging
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

__all__ = ["Program"]

_LOG = logging.getLogger(__name__)
HEADER: Final = "X-Thunder-Program-Id"


class Program:
    """One agent run. A context manager, plain or async; reusable, not re-entrant.

    Attributes:
        name: The program's name; unique unless given.
        router: The router's URL, without a path.
        docker_ids: Containers that the program owns, released with it.
    """

    def __init__(
        self,
        router: str,
        *,
        name: str | None = None,
        docker_ids: Sequence[str] = (),
        api_key: str | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Names a program; nothing is sent until it is released.

        Args:
            router: The router's URL, with or without `/v1`.
            name: At most 256 bytes; None makes a unique one.
            docker_ids: Containers that the program owns.
            api_key: The router's key, where it asks for one.
            timeout_s: How long a release may take.

        Raises:
            ValueError: not an http URL.
        """
        parts = urlsplit(router)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"not a router URL: {router!r}")
        self.router = router.rstrip("/").removesuffix("/v1")
        self.name = name if name is not None else f"program-{uuid.uuid4().hex}"
        self.docker_ids = tuple(docker_ids)
        self._api_key = api_key
        self._timeout_s = timeout_s

    @property
    def base_url(self) -> str:
        """For OpenAI clients: the router's URL with `/v1`."""
        return f"{self.router}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """Headers that name the program: `OpenAI(default_headers=...)`."""
        return {HEADER: self.name}

    @property
    def body(self) -> dict[str, Any]:
        """Body fields that name the program and its containers: `create(extra_body=...)`."""
        owned = {"docker_ids": list(self.docker_ids)} if self.docker_ids else {}
        return {"program_id": self.name, **owned}

    @property
    def litellm(self) -> dict[str, Any]:
        """Keyword arguments of `litellm.completion`, with a model such as `openai/glm`."""
        return {"extra_body": self.body, "extra_headers": self.headers}

    def release(self) -> bool:
        """Ends the program. True if the router knew it; harmless to repeat."""
        answer = self._post("/programs/release", {"program_id": self.name})
        return bool(answer.get("released", False))

    async def arelease(self) -> bool:
        """The same without blocking the event loop."""
        return await asyncio.to_thread(self.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A cancelled agent still releases: that is when its place is wasted most.
        await asyncio.shield(self.arelease())

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(
            self.router + path, json.dumps(body).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                found = json.loads(answer.read())
        except (OSError, ValueError) as error:
            _LOG.warning("release_failed program=%s error=%s", self.name, error)
            return {}
        return found if isinstance(found, dict) else {}
