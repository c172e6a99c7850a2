"""Who may use the router: one key, in either of the two places clients put it."""

import hmac
from collections.abc import Mapping

__all__ = ["ClientKey"]


class ClientKey:
    """The key that clients must show, as `Authorization: Bearer` or as `x-api-key`."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def admits(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether these headers (names in lower case) carry the key, compared in constant time."""
        scheme, _, shown = fields.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), self._secret):
            return True
        return hmac.compare_digest(fields.get(b"x-api-key", b""), self._secret)
