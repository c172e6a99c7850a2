"""The request as one worker is sent it: the client's bytes, with what this worker needs changed."""

from typing import TYPE_CHECKING, Final, NamedTuple

from thunder_router._core import request_head
from thunder_router.relay.contract import Endpoint, Place
from thunder_router.relay.request import Request

if TYPE_CHECKING:
    from thunder_router._core import Dialect, RequestFacts

__all__ = ["USAGE_ON_REQUEST", "Message", "compose"]

USAGE_ON_REQUEST: Final = frozenset({"chat", "completions"})
"""APIs that stream usage only to those who ask (`stream_options.include_usage`)."""


class Message(NamedTuple):
    """What goes to a worker.

    Attributes:
        parts: The head and the body in order; of a long body, views of the client's own bytes.
        rid: The name under which SGLang can be told to abort it, or None.
    """

    parts: "tuple[bytes | memoryview, ...]"
    rid: str | None


def compose(
    request: Request,
    body: bytes,
    dialect: "Dialect | None",
    facts: "RequestFacts | None",
    place: Place,
    endpoint: Endpoint,
    *,
    spare_id: str,
    own_credentials: bool,
) -> Message:
    """The message for the worker at `place`.

    Args:
        request: The client's head.
        body: The client's body.
        dialect: The API it speaks, or None.
        facts: What the body says, or None where it was not read.
        place: Where it goes.
        endpoint: How that worker wants to be spoken to.
        spare_id: 32 characters, unique: its `X-Request-Id` and `rid` where the client set none.
        own_credentials: The client's credentials were for the router.
    """
    rid = None
    parts: tuple[bytes | memoryview, ...] = (body,)
    own_id = request.headers.get(b"x-request-id")
    rank = place.rank if endpoint.ranks > 1 else None
    if facts is not None:
        own_rid = None
        if endpoint.aborts_by_rid and not facts.stream:
            # A stream is aborted by closing it. Only of a single sequence is the name sure to be
            # the engine's own; a batch's names are made from it.
            rid = facts.rid
            if rid is None and facts.n == 1:
                rid = own_rid = spare_id
        parts = facts.forward(
            body,
            include_usage=dialect in USAGE_ON_REQUEST,
            drop=endpoint.drops,
            session_id=place.session_id,
            rid=own_rid,
            priority=place.priority,
            dp_rank=rank,
        )
    head = request_head(
        request.method,
        request.target,
        request.headers,
        prefix=endpoint.prefix,
        host=endpoint.host_header,
        authorization=endpoint.authorization,
        own_credentials=own_credentials,
        rank=rank,
        length=sum(map(len, parts)),
        request_id=None if own_id is not None else spare_id.encode(),
    )
    return Message((head, *parts), rid)
