"""Who answers what is not the relay's, on the same connection."""

from typing import Protocol

from thunder_router.relay.request import Request

__all__ = ["Application"]


class Application(Protocol):
    """Answers the requests on one connection that are not the relay's."""

    def begin(self, request: Request) -> None:
        """Takes the head."""

    def more(self, request: Request, piece: bytes) -> None:
        """Takes a part of the body."""

    def end(self, request: Request) -> None:
        """The body is complete."""

    def pause_writing(self) -> None:
        """The client does not keep up."""

    def resume_writing(self) -> None:
        """The client reads again."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""

    def shutdown(self) -> None:
        """Ends the connection with the answer that is under way."""
