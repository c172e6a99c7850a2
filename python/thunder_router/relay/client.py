"""A client's connection, as those see it who answer on it."""

from typing import Protocol

from thunder_router.relay.request import Request

__all__ = ["Client"]


class Client(Protocol):
    """The connection on which one request after another is answered.

    Attributes:
        peer: The client's address.
        paused: It does not keep up with what it is sent.
    """

    peer: str
    paused: bool

    def write(self, data: bytes) -> None:
        """Sends."""

    def keeps(self, request: Request) -> bool:
        """Whether the connection may outlive the answer to this request."""

    def answered(self, *, keeps: bool) -> None:
        """The answer is complete: the next request may have its turn, or the connection ends."""

    def cut(self) -> None:
        """Ends the connection in the middle of the answer."""
