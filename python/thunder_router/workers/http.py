"""Asks workers questions. Inference never comes through here; the relay has its own connections.

Questions are few and small, so a library does them. What matters is that each has a time-out of its
own and that the three ways to fail stay apart, because they mean different things: nobody listens
(`ConnectError`), somebody listens and says nothing (`TimeoutError`), somebody broke off
(`WorkerResetError`, `ProtocolError`).
"""

from dataclasses import dataclass
from typing import Protocol, Self

import aiohttp
from pydantic import SecretStr

from thunder_router.errors import ConnectError, ProtocolError, WorkerResetError

__all__ = ["AiohttpClient", "Answer", "HttpClient"]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""A `/metrics` of many ranks is about a megabyte; nothing we ask for is larger."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, whole."""

    status: int
    body: bytes = b""
    content_type: str = ""

    @property
    def ok(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300


class HttpClient(Protocol):
    """What worker life needs of an HTTP client."""

    async def ask(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        key: SecretStr | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """The answer of `url`. `key` goes as a bearer token, `body` as JSON. No redirects.

        Raises:
            ConnectError: nobody listens there, or not within the time.
            TimeoutError: no whole answer within `timeout_s`.
            WorkerResetError: the connection broke off.
            ProtocolError: what came is not HTTP, or longer than 16 MiB.
        """
        ...


class AiohttpClient:
    """`HttpClient` on aiohttp, with one pool for all workers. Use as an async context manager."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10, keepalive_timeout=3.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        key: SecretStr | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """See `HttpClient.ask`."""
        if self._session is None:
            raise RuntimeError("AiohttpClient is used outside of its `async with`")
        headers: dict[str, str] = {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=timeout_s)
        try:
            async with self._session.request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            ) as response:
                return Answer(
                    response.status,
                    await _whole(response),
                    response.headers.get("Content-Type", ""),
                )
        except aiohttp.ClientConnectorError as error:
            raise ConnectError(error.os_error.strerror or type(error).__name__) from None
        except aiohttp.ConnectionTimeoutError:
            raise ConnectError(f"no connection within {timeout_s:g} s") from None
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise WorkerResetError(type(error).__name__) from None
        except aiohttp.ClientError as error:
            raise ProtocolError(type(error).__name__) from None


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ProtocolError(f"answer longer than {MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)
