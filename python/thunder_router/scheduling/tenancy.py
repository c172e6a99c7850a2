"""Whom a request is accounted to, where tenants share the workers.

A tenant is an API key, what a header says, or a program's group, as `fairness.by` chooses. A key is
named by its digest and never kept. What a tenant's name is worth is the core's business.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from thunder_router.config import FairnessSettings
from thunder_router.identity import clean

__all__ = ["Tenancy", "Tenant", "key_name"]

_KEYS: Final = (b"authorization", b"x-api-key")


class Tenant(NamedTuple):
    """Somebody who shares the workers with others.

    Attributes:
        name: Its name; no secret.
        weight: Its share against others', at least 1.
    """

    name: str
    weight: int


class Tenancy:
    """Names the tenants of requests, as the settings say."""

    def __init__(self, settings: FairnessSettings) -> None:
        self._by = settings.by
        self._header = settings.header.lower().encode()
        self._weights = settings.weights

    def of(self, headers: Iterable[tuple[bytes, bytes]], group: str | None) -> Tenant | None:
        """The tenant of a request, or None: it is accounted to nobody.

        Args:
            headers: Request headers, names in lower case.
            group: The group of its program.
        """
        match self._by:
            case None:
                return None
            case "group":
                name = group
            case "key":
                name = next((key_name(value) for key, value in headers if key in _KEYS), None)
            case "header":
                said = (value for key, value in headers if key == self._header)
                name = clean(next(said, b"").decode(errors="replace"))
        return None if name is None else Tenant(name, self._weights.get(name, 1))


def key_name(credentials: bytes) -> str:
    """A name for a key that does not show it; the same with and without `Bearer`."""
    scheme, _, rest = credentials.strip().partition(b" ")
    key = rest.strip() if scheme.lower() == b"bearer" else credentials.strip()
    return f"key-{hashlib.sha256(key).hexdigest()[:16]}"
