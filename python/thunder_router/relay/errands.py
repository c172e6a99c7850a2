"""Requests of the relay's own, about a client's."""

import asyncio
import json
import logging

from thunder_router._core import Headers, request_head
from thunder_router.errors import ConnectError, UpstreamError
from thunder_router.relay.pool import Lane, Pool

__all__ = ["abort_request"]

_log = logging.getLogger(__name__)


class _Reply:
    """Waits for an answer whose body does not matter."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def received(self, chunk: bytes, complete: bool) -> None:
        """More of the answer came."""
        del chunk
        if complete and not self.done.done():
            self.done.set_result(None)

    def lost(self, error: UpstreamError, *, stale: bool) -> None:
        """There is no answer."""
        del stale
        if not self.done.done():
            self.done.set_exception(error)


async def abort_request(lane: Lane, pool: Pool, rid: str, *, timeout_s: float = 5.0) -> None:
    """Tells SGLang to end a request by its name. Failing is no news: the worker is gone then."""
    body = json.dumps({"rid": rid}).encode()
    endpoint = lane.endpoint
    head = request_head(
        b"POST",
        b"/abort_request",
        Headers([(b"Content-Type", b"application/json")]),
        prefix=endpoint.prefix,
        host=endpoint.host_header,
        authorization=endpoint.authorization,
        own_credentials=True,
        rank=0 if endpoint.ranks > 1 else None,
        length=len(body),
        request_id=None,
    )
    reply = _Reply()
    connection = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = lane.take() or await pool.connect(lane)
            connection.send(reply, (head, body), bodiless=False)
            await reply.done
    except (ConnectError, UpstreamError, TimeoutError) as error:
        _log.info("abort=failed rid=%s error=%s", rid, error)
    finally:
        if connection is not None and connection.serves(reply):
            connection.drop()
