"""One request's life, from the moment it is read whole to its one end.

The fast path never leaves the call stack that read the client's last byte: scan, admit, take an
idle connection, send. A task is made only where something must be waited for: a place, or a new
connection. Then the worker's bytes come as calls of `received`, and every way out goes through
`_end`, which ends the ticket once and tells the client's connection that its turn is over.

What may be tried again, once: a request that its worker cannot have begun, because it took no
connection or said 503 (SGLang: its queue is full). An idle connection that ended just as it was
used again costs nothing: the request goes to the same worker on a fresh one.
"""

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, Protocol

from thunder_router._core import RequestFacts, ResponseScanner, scan_request
from thunder_router.answers import Problem, explain
from thunder_router.errors import (
    ConnectError,
    NoWorkerError,
    ProtocolError,
    ThunderError,
    UpstreamError,
    WorkerTimeoutError,
)
from thunder_router.relay import errands
from thunder_router.relay.answer import Answer
from thunder_router.relay.contract import Arrival, Ended, Endpoint, Fault, Outcome, Place, Ticket
from thunder_router.relay.headers import request_head
from thunder_router.relay.pool import Lane
from thunder_router.relay.request import Request
from thunder_router.relay.upstream import Upstream

if TYPE_CHECKING:
    from thunder_router.relay.relay import Relay

__all__ = ["Client", "Exchange"]

_log = logging.getLogger(__name__)

_RETRIES: Final = 1
_PROGRESS_CHUNKS: Final = 32
"""Chunks of a stream between two reports of progress."""
_PEEK_BYTES: Final = 64 * 1024
"""Bytes of a stream held back at most while its first event is not complete."""
_USAGE_ON_REQUEST: Final = frozenset({"chat", "completions"})
"""APIs that stream usage only to those who ask (`stream_options.include_usage`)."""
_FAULTY_STATUS: Final = frozenset({500, 502, 504})


class Client(Protocol):
    """The client's connection, as an exchange sees it."""

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


class Exchange:
    """One request and its answer."""

    def __init__(self, relay: "Relay", client: Client, request: Request) -> None:
        assert request.route is not None, "only requests on the relay's routes become exchanges"
        self._relay = relay
        self._client = client
        self._request = request
        self._dialect = request.route.dialect
        self._body = request.take_body()
        self._request_id = request.fields.get(b"x-request-id")
        if self._request_id is None:
            self._own_id: bytes | None = relay.next_id().encode()
        else:
            self._own_id = None
        self._answer = Answer(
            client.write,
            request,
            keeps=client.keeps(request),
            request_id=self._request_id or self._own_id,
        )
        self._facts: RequestFacts | None = None
        self._ticket: Ticket | None = None
        self._place: Place | None = None
        self._endpoint: Endpoint | None = None
        self._rid: str | None = None
        self._connection: Upstream | None = None
        self._message = b"", b""
        self._scanner: ResponseScanner | None = None
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._peeked: list[bytes] = []
        self._begun = False  # the worker's answer is being passed on
        self._over = False
        self._retries = 0
        self._attempts = 0
        self._chunks = 0
        self._since = relay.loop.time()
        self._placed_at: float | None = None
        self._first_byte_at: float | None = None
        self.deadline = math.inf
        """When the worker has been silent for too long, in the loop's seconds."""

    # --- before the worker ---

    def start(self) -> None:
        """Asks for a place; sends at once where there is one."""
        try:
            self._admit()
        except Exception as error:
            self._refuse(error)

    def _admit(self) -> None:
        request, dialect = self._request, self._dialect
        facts = None
        if dialect is not None:
            facts = self._facts = scan_request(self._body, dialect)
        arrival = Arrival(
            dialect, facts, request.headers, request.target, len(self._body), self._client.peer
        )
        if facts is not None and facts.final_only:
            self._say_farewell(arrival)
            return
        self._ticket = self._relay.admission.arrive(arrival)
        self._go()

    def _say_farewell(self, arrival: Arrival) -> None:
        program, known = self._relay.admission.farewell(arrival)
        self._answer.whole(200, self._relay.farewell_body(program, known))
        self._end("finished")

    def _go(self) -> None:
        """Sends if there are a place and an idle connection, else waits for what is missing."""
        assert self._ticket is not None
        place = self._ticket.place
        if place is not None:
            lane = self._take_place(place)
            connection = lane.take()
            if connection is not None:
                self._send(connection)
                return
        elif self._relay.settings.keepalive_comment_s is not None and self._may_comment():
            self._tick()
        self._task = self._relay.loop.create_task(self._travel(place))

    async def _travel(self, place: Place | None, *, fresh: bool = False) -> None:
        """Waits for a place where there is none yet, and for a connection."""
        try:
            if place is None:
                assert self._ticket is not None
                try:
                    place = await self._ticket.placed()
                except ThunderError:
                    self._ticket = None  # its wait was its end
                    raise
            lane = self._take_place(place)
            connection = None if fresh else lane.take()
            if connection is None:
                connection = await self._relay.pool.connect(lane)
            self._send(connection)
        except ConnectError as error:
            self._relay.workers.faulted(self._worker_id(), "connect")
            self._retry(error)
        except Exception as error:
            self._refuse(error)

    def _take_place(self, place: Place) -> Lane:
        """Gets everything ready that the worker is to be sent."""
        self._place = place
        self._placed_at = self._relay.loop.time()
        endpoint = self._endpoint = self._relay.workers.endpoint(place.worker)
        self._message = self._address(place, endpoint)
        return self._relay.pool.lane(place.worker, endpoint)

    def _address(self, place: Place, endpoint: Endpoint) -> tuple[bytes, bytes]:
        """Head and body for this worker."""
        request, facts, body = self._request, self._facts, self._body
        if facts is not None:
            rid = None
            if endpoint.aborts_by_rid and not facts.stream:
                self._rid = facts.rid
                if self._rid is None and facts.n == 1:
                    self._rid = rid = self._relay.next_id()
            body = facts.forward(
                body,
                include_usage=self._dialect in _USAGE_ON_REQUEST,
                drop=endpoint.drops,
                session_id=place.session_id,
                rid=rid,
                priority=place.priority,
                dp_rank=place.rank if endpoint.ranks > 1 else None,
            )
        head = request_head(
            request.method,
            request.target,
            request.names,
            request.headers,
            endpoint=endpoint,
            rank=place.rank,
            length=len(body) if body or request.method == b"POST" else None,
            own_credentials=self._relay.key is not None,
            request_id=self._own_id,
        )
        return head, body

    def _send(self, connection: Upstream) -> None:
        head, body = self._message
        self._connection = connection
        self._attempts += 1
        self._scanner = None
        self._peeked.clear()
        self._arm(self._relay.settings.first_byte_timeout_s)
        connection.send(self, head, body, bodiless=self._request.method == b"HEAD")
        if self._client.paused:
            connection.pause()

    # --- the worker's answer ---

    def received(self, chunk: bytes, complete: bool) -> None:
        """The worker sent more of its answer."""
        try:
            if self._begun:
                self._pass_on(chunk, complete)
            else:
                self._look_at(chunk, complete)
        except Exception as error:
            self._broke(error)

    def _pass_on(self, chunk: bytes, complete: bool) -> None:
        scanner = self._scanner
        if scanner is not None:
            if chunk:
                chunk = scanner.feed(chunk)
            if complete:
                chunk += scanner.finish()
            self._chunks += 1
            if self._chunks % _PROGRESS_CHUNKS == 0 and self._ticket is not None:
                self._ticket.progress(scanner.decoded_events)
        if complete:
            self._complete(chunk)
            return
        if chunk:
            self._answer.more(chunk)
        if self.deadline != math.inf:
            self._arm(self._relay.settings.stream_idle_timeout_s)

    def _look_at(self, chunk: bytes, complete: bool) -> None:
        """Holds the head until something of the body, and of a stream one event, is there."""
        connection = self._connection
        assert connection is not None
        if self._first_byte_at is None:
            self._first_byte_at = self._relay.loop.time()
        status, headers = connection.status, dict(connection.headers)
        sse = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        facts, scanner = self._facts, self._scanner
        if facts is not None and scanner is None and b"content-encoding" not in headers:
            # A compressed answer is passed on unread; its usage is then not known.
            strip = sse and not facts.include_usage and self._dialect in _USAGE_ON_REQUEST
            assert self._dialect is not None
            scanner = ResponseScanner(self._dialect, stream=sse, strip_usage=strip)
            self._scanner = scanner
        if scanner is not None:
            chunk = scanner.feed(chunk) if chunk else chunk
            if complete:
                chunk += scanner.finish()
        self._peeked.append(chunk)
        if not complete and not self._seen_enough(scanner, sse):
            self._arm(self._relay.settings.stream_idle_timeout_s)
            return
        if status == 503 and self._retries < _RETRIES:
            self._retry(None)
            return
        if scanner is not None and sse and scanner.first_event_error is not None:
            self._refuse_first_event(scanner)
            return
        if self._answer.status:  # an early 200 is out: only events fit now
            if not sse or status >= 300:
                self._refuse_late(scanner, status)
                return
        else:
            self._answer.begin(
                status, connection.reason, connection.names, connection.headers, sse=sse
            )
        self._begin(complete)

    def _seen_enough(self, scanner: ResponseScanner | None, sse: bool) -> bool:
        size = sum(map(len, self._peeked))
        if self._answer.status and not sse:
            return size > _PEEK_BYTES
        if scanner is None or not sse:
            return size > 0
        return scanner.events > 0 or size > _PEEK_BYTES

    def _begin(self, complete: bool) -> None:
        """From here on the answer is passed on as it comes."""
        self._begun = True
        self._body = b""  # nothing is tried again now
        self._message = b"", b""
        self._stop_ticking()
        chunk = b"".join(self._peeked)
        self._peeked.clear()
        if complete:
            self._complete(chunk)
        else:
            self._answer.more(chunk)
            self._arm(self._relay.settings.stream_idle_timeout_s)

    def _refuse_first_event(self, scanner: ResponseScanner) -> None:
        """A stream that began with 200 and an error gets the status that it should have had."""
        status = scanner.first_event_error_code
        if status is None or not 400 <= status < 600:
            status = 500
        if status == 503 and self._retries < _RETRIES:
            self._retry(None)
            return
        message = scanner.first_event_error or "The worker refused the request."
        self._release_connection()
        self._refuse_with(Problem(status, message, "worker_refused"))

    def _refuse_late(self, scanner: ResponseScanner | None, status: int) -> None:
        message = scanner.error if scanner is not None else None
        self._release_connection()
        problem = Problem(status, message or "The worker refused the request.", "worker_refused")
        self._refuse_with(problem)

    def _complete(self, chunk: bytes) -> None:
        connection, scanner = self._connection, self._scanner
        assert connection is not None
        self._connection = None
        self._answer.more(chunk, complete=True, trailers=connection.trailers)
        status = connection.status
        if status in _FAULTY_STATUS:
            self._relay.workers.faulted(self._worker_id(), "status")
        else:
            self._relay.workers.answered(self._worker_id())
        failed = status >= 400 or (scanner is not None and scanner.error is not None)
        self._end("failed" if failed else "finished")

    # --- when it goes wrong ---

    def lost(self, error: UpstreamError, *, stale: bool) -> None:
        """The worker's connection broke before the answer was complete."""
        try:
            self._connection = None
            if stale:
                self._task = self._relay.loop.create_task(self._travel(self._place, fresh=True))
                return
            self._relay.workers.faulted(self._worker_id(), _fault(error))
            self._refuse(error)
        except Exception as bug:
            self._broke(bug)

    def _retry(self, error: ThunderError | None) -> None:
        """Its worker never began it: back to the queue, unless it was there often enough."""
        self._release_connection()
        self.deadline = math.inf
        if self._retries >= _RETRIES:
            self._refuse(error or NoWorkerError("No worker could take the request."))
            return
        assert self._ticket is not None
        self._retries += 1
        self._ticket.bounced()
        self._go()

    def leave(self) -> None:
        """The client is gone."""
        if not self._over:
            self._stop_worker()
            self._end("cancelled", tell=False)

    def expire(self, now: float) -> None:
        """Gives a silent worker up once its time is over."""
        if now >= self.deadline and not self._over:
            self._stop_worker()
            self.lost(WorkerTimeoutError("The worker was silent for too long."), stale=False)

    def pause(self) -> None:
        """The client does not keep up: the worker waits."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The client reads again."""
        if self._connection is not None:
            self._connection.resume()

    def _refuse(self, error: Exception) -> None:
        problem = explain(error)
        if problem.status == 500:
            _log.error("exchange=failed dialect=%s", self._dialect, exc_info=error)
        self._refuse_with(problem)

    def _refuse_with(self, problem: Problem) -> None:
        if self._over:
            return
        self._stop_ticking()
        rejected = problem.status == 429
        if not self._answer.status:
            self._answer.refuse(problem)
        elif not self._answer.break_off(problem):
            self._end("failed", tell=False)
            self._client.cut()
            return
        self._end("rejected" if rejected else "failed")

    def _broke(self, error: Exception) -> None:
        """Our own code failed while the worker was speaking."""
        self._stop_worker()
        self._refuse(error)

    # --- ends ---

    def _end(self, outcome: Outcome, *, tell: bool = True) -> None:
        """The one end of every exchange."""
        if self._over:
            return
        self._over = True
        self.deadline = math.inf
        self._stop_ticking()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task(self._relay.loop):
            task.cancel()
        ticket, self._ticket = self._ticket, None
        try:
            if ticket is not None:
                self._end_ticket(ticket, outcome)
            if self._relay.observer is not None:
                self._relay.observer.ended(self._summary(outcome))
        except Exception:
            _log.exception("exchange=ended outcome=%s", outcome)
        if tell:
            self._client.answered(keeps=self._answer.keeps)

    def _end_ticket(self, ticket: Ticket, outcome: Outcome) -> None:
        if outcome == "cancelled":
            ticket.cancelled()
        elif outcome != "finished":
            ticket.failed()
        elif (scanner := self._scanner) is None:
            ticket.finished(
                prompt_tokens=None,
                completion_tokens=None,
                cached_tokens=None,
                cached_host_tokens=None,
                tools=(),
            )
        else:
            ticket.finished(
                prompt_tokens=scanner.prompt_tokens,
                completion_tokens=scanner.completion_tokens,
                cached_tokens=scanner.cached_tokens,
                cached_host_tokens=scanner.cached_host_tokens,
                tools=scanner.tools,
            )

    def _summary(self, outcome: Outcome) -> Ended:
        now, since, scanner = self._relay.loop.time(), self._since, self._scanner
        first = self._first_byte_at
        return Ended(
            dialect=self._dialect,
            outcome=outcome,
            status=self._answer.status,
            worker=None if self._place is None else self._place.worker,
            attempts=self._attempts,
            held_s=(now if self._placed_at is None else self._placed_at) - since,
            first_byte_s=None if first is None else first - since,
            total_s=now - since,
            prompt_tokens=None if scanner is None else scanner.prompt_tokens,
            completion_tokens=None if scanner is None else scanner.completion_tokens,
            cached_tokens=None if scanner is None else scanner.cached_tokens,
        )

    def _stop_worker(self) -> None:
        """Ends the worker's part, by closing its connection and, where it would not look, by name.

        SGLang looks for a closed connection every 4 s only, unless it streams.
        """
        in_flight = self._connection is not None
        self._release_connection()
        if in_flight and self._rid is not None and self._endpoint is not None:
            self._relay.run(
                errands.abort_request(
                    self._relay.pool.lane(self._worker_id(), self._endpoint),
                    self._relay.pool,
                    self._rid,
                )
            )

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.serves(self):
            connection.drop()

    def _worker_id(self) -> int:
        assert self._place is not None
        return self._place.worker

    def _arm(self, seconds: float | None) -> None:
        self.deadline = math.inf if seconds is None else self._relay.loop.time() + seconds

    # --- comments for held streams ---

    def _may_comment(self) -> bool:
        facts = self._facts
        return facts is not None and facts.stream and not self._request.http10

    def _tick(self) -> None:
        """The next comment, some time from now."""
        if self._ticker is None:
            seconds = self._relay.settings.keepalive_comment_s
            assert seconds is not None
            self._ticker = self._relay.loop.call_later(seconds, self._comment)

    def _comment(self) -> None:
        self._ticker = None
        if not self._client.paused:
            self._answer.keep_alive()
        self._tick()

    def _stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None


def _fault(error: UpstreamError) -> Fault:
    if isinstance(error, WorkerTimeoutError):
        return "timeout"
    return "protocol" if isinstance(error, ProtocolError) else "reset"
