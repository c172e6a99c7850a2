"""Who may use the control surface.

Agents release their own programs and ask about them, so that needs no more than the client key.
What changes the router or its workers needs the admin key. A key that is not set is not asked for;
where only the client key is set, it opens both doors.
"""

import hmac
from collections.abc import Callable

from fastapi import Request
from pydantic import SecretStr

from thunder_router.errors import UnauthorizedError

__all__ = ["Guard"]


class Guard:
    """Both doors of the control surface, as FastAPI dependencies."""

    def __init__(self, client_key: SecretStr | None, admin_key: SecretStr | None) -> None:
        wanted = [key.get_secret_value().encode() for key in (client_key, admin_key) if key]
        # The admin key opens every door; the last in `wanted` is the strictest that is set.
        self.client: Callable[[Request], None] = _door(wanted if client_key else [])
        self.admin: Callable[[Request], None] = _door(wanted[-1:])


def _door(keys: list[bytes]) -> Callable[[Request], None]:
    def check(request: Request) -> None:
        if not keys:
            return
        shown = _shown(request)
        # Every key is compared, so that the time says nothing about which was nearly right.
        opens = False
        for key in keys:
            opens |= hmac.compare_digest(shown, key)
        if not opens:
            raise UnauthorizedError("The API key is missing or wrong.")

    return check


def _shown(request: Request) -> bytes:
    """The key in either of the places where clients put it; empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip().encode()
    return request.headers.get("x-api-key", "").encode()
