"""Where a worker listens, as the relay wants it: bytes made once, nothing to do per request."""

import ssl
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from thunder_router.errors import ConfigError
from thunder_router.workers.report import Capabilities, Engine, WorkerReport

__all__ = ["Endpoint", "endpoint_of", "normal_url"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One worker's address and how to speak to it. Equal endpoints may share connections.

    Attributes:
        host: Name or address; an IPv6 address without brackets.
        tls: The context for https, `None` for http.
        prefix: Put before every path; empty or beginning with a slash, never ending in one.
        host_header: Value of the Host header.
        authorization: Value of the Authorization header, or `None` to pass the client's on.
        ranks: DP ranks; with more than one, a request names its rank in `X-Data-Parallel-Rank`.
        drops: Body fields that it may refuse a request for.
        aborts_by_rid: It takes our request id in `rid`, and `/abort_request` ends it by that.
        knows_session: A `session_id` in the body tags KV with its program.
        knows_priority: It schedules or evicts by `priority`.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: bytes
    host_header: bytes
    authorization: bytes | None = field(repr=False)
    ranks: int = 1
    drops: tuple[Literal["session_id", "rid", "priority"], ...] = ()
    aborts_by_rid: bool = False
    knows_session: bool = False
    knows_priority: bool = False


_STRANGERS: tuple[Literal["session_id", "rid", "priority"], ...] = ("session_id", "rid", "priority")
"""SGLang and vLLM pass over fields that they do not know (recorded); others may not."""


def normal_url(url: str) -> str:
    """One spelling per worker: no trailing slash, lower-case host, no default port.

    Raises:
        ConfigError: not an http(s) URL of a host, or one with credentials, a query or a fragment.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"not a worker URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("a worker URL begins with http:// or https:// and names a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError("a worker URL has no credentials, query or fragment; use api_key")
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url.strip()):
        raise ConfigError("a worker URL is printable ASCII without spaces")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    where = host if port in (None, usual) else f"{host}:{port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/')}"


def endpoint_of(
    url: str, key: SecretStr | None, report: WorkerReport | None, tls: ssl.SSLContext | None
) -> Endpoint:
    """The endpoint at `url`, which `normal_url` made; `tls` is `None` for http."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    able = report.capabilities if report else Capabilities()
    return Endpoint(
        host=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        tls=tls,
        prefix=parts.path.encode("ascii"),
        host_header=parts.netloc.encode("ascii"),
        authorization=None if key is None else f"Bearer {key.get_secret_value()}".encode(),
        ranks=max(1, len(report.ranks)) if report else 1,
        drops=_STRANGERS if report and report.engine is Engine.UNKNOWN else (),
        aborts_by_rid=able.abort,
        knows_session=able.session_radix,
        knows_priority=able.priority_scheduling or able.priority_eviction,
    )
