"""Which requests the relay takes: the inference routes, and an allow-list handed on unread.

Everything else belongs to the application behind the relay.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thunder_router._core import Dialect

__all__ = ["INFERENCE", "Route", "Routes", "origin_form"]

INFERENCE: "Final[dict[bytes, Dialect]]" = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
    b"/generate": "generate",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A path that goes to a worker. `dialect` None: its body is not read."""

    dialect: "Dialect | None"


class Routes:
    """The relay's routing table, looked up once per request."""

    def __init__(self, passthrough: Iterable[str]) -> None:
        self._unread = {path.encode(): Route(None) for path in passthrough}
        self._inference = {path: Route(dialect) for path, dialect in INFERENCE.items()}

    def find(self, method: bytes, target: bytes) -> Route | None:
        """The route of a request in origin form, or None: not the relay's.

        Only a POST generates; any method goes through on the allow-list but OPTIONS, which asks
        about the router itself.
        """
        path = target if b"?" not in target else target[: target.index(b"?")]
        if method == b"POST":
            return self._inference.get(path) or self._unread.get(path)
        return None if method == b"OPTIONS" else self._unread.get(path)


def origin_form(target: bytes) -> bytes:
    """The path and query of a request target; proxies' clients send whole URLs.

    Source: RFC 9112, 3.2.2.
    """
    if target.startswith(b"/"):
        return target
    _, scheme, rest = target.partition(b"://")
    if not scheme:
        return target
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"
