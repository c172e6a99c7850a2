"""Who may use the router: one key, in either of the two places clients put it."""

import hmac

from thunder_router._core import Headers

__all__ = ["ClientKey"]


class ClientKey:
    """The key that clients must show, as `Authorization: Bearer` or as `x-api-key`."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def admits(self, headers: Headers) -> bool:
        """Whether these headers carry the key, compared in constant time."""
        scheme, _, shown = (headers.get(b"authorization") or b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), self._secret):
            return True
        return hmac.compare_digest(headers.get(b"x-api-key") or b"", self._secret)
