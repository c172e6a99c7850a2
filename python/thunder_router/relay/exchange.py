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
from typing import TYPE_CHECKING, Final

from thunder_router._core import scan_request
from thunder_router.answers import Problem, explain
from thunder_router.errors import (
    ConnectError,
    NoWorkerError,
    ThunderError,
    UpstreamError,
    WorkerTimeoutError,
)
from thunder_router.relay import errands
from thunder_router.relay.answer import Answer
from thunder_router.relay.books import fault, settle
from thunder_router.relay.client import Client
from thunder_router.relay.comments import Comments
from thunder_router.relay.contract import Arrival, Ended, Outcome, Place, Ticket
from thunder_router.relay.message import Message, compose
from thunder_router.relay.opening import Opening
from thunder_router.relay.pool import Lane
from thunder_router.relay.request import Request
from thunder_router.relay.upstream import Upstream

if TYPE_CHECKING:
    from thunder_router._core import RequestFacts, ResponseScanner
    from thunder_router.relay.relay import Relay

__all__ = ["Exchange"]

_log = logging.getLogger(__name__)

_RETRIES: Final = 1
_PROGRESS_CHUNKS: Final = 32
"""Chunks of a stream between two reports of progress."""


class Exchange:
    """One request and its answer.

    Attributes:
        deadline: When the worker has been silent for too long, in the loop's seconds.
    """

    deadline = math.inf
    _facts: "RequestFacts | None" = None
    _ticket: Ticket | None = None
    _place: Place | None = None
    _lane: Lane | None = None
    _message: Message | None = None
    _connection: Upstream | None = None
    _opening: Opening | None = None  # until the worker's answer is passed on
    _scanner: "ResponseScanner | None" = None
    _task: asyncio.Task[None] | None = None
    _comments: Comments | None = None
    _begun = False  # the worker's answer is being passed on
    _over = False
    _attempts = _retries = _chunks = 0
    _placed_at: float | None = None
    _first_byte_at: float | None = None

    def __init__(self, relay: "Relay", client: Client, request: Request) -> None:
        assert request.route is not None, "only requests on the relay's routes become exchanges"
        self._relay = relay
        self._client = client
        self._request = request
        self._dialect = request.route.dialect
        self._body = request.take_body()
        self._since = relay.loop.time()
        self._id = relay.next_id()
        self._idle_s = relay.settings.stream_idle_timeout_s
        request_id = request.headers.get(b"x-request-id") or self._id.encode()
        self._answer = Answer(client, request, request_id=request_id)

    # --- before the worker ---

    def start(self) -> None:
        """Asks for a place; sends at once where there is one."""
        try:
            self._admit()
        except Exception as error:
            self._refuse(error)

    def _admit(self) -> None:
        relay, request, dialect, body = self._relay, self._request, self._dialect, self._body
        facts = None
        if dialect is not None:
            facts = self._facts = scan_request(body, dialect)
        headers = request.headers.lowered
        arrival = Arrival(dialect, facts, headers, request.target, len(body), self._client.peer)
        if facts is not None and facts.final_only:
            program, known = relay.admission.farewell(arrival)
            self._answer.whole(200, relay.farewell_body(program, known))
            self._end("finished")
            return
        self._ticket = relay.admission.arrive(arrival)
        self._go()

    def _go(self) -> None:
        """Sends if there are a place and an idle connection, else waits for what is missing."""
        assert self._ticket is not None
        place, lane = self._ticket.place, None
        if place is not None:
            lane = self._aim(place)
            connection = lane.take()
            if connection is not None:
                self._send(connection)
                return
        else:
            self._comment_while_held()
        self._task = self._relay.loop.create_task(self._travel(lane))

    async def _travel(self, lane: Lane | None) -> None:
        """Waits for a place where there is none yet, and for a new connection."""
        try:
            connection = None
            if lane is None:
                lane = self._aim(await self._wait_for_place())
                connection = lane.take()
            try:
                self._send(connection or await self._relay.pool.connect(lane))
            except ConnectError as error:
                self._relay.workers.faulted(self._worker, "connect")
                self._retry(error)
        except Exception as error:
            self._refuse(error)

    async def _wait_for_place(self) -> Place:
        assert self._ticket is not None
        try:
            return await self._ticket.placed()
        except ThunderError:
            self._ticket = None  # its wait was its end
            raise

    def _aim(self, place: Place) -> Lane:
        """Gets everything ready that the worker at this place is to be sent."""
        relay = self._relay
        self._place = place
        self._placed_at = relay.loop.time()
        endpoint = relay.workers.endpoint(place.worker)
        self._message = compose(
            self._request,
            self._body,
            self._dialect,
            self._facts,
            place,
            endpoint,
            spare_id=self._id,
            own_credentials=relay.key is not None,
        )
        self._lane = lane = relay.pool.lane(place.worker, endpoint)
        return lane

    def _send(self, connection: Upstream) -> None:
        message = self._message
        assert message is not None
        self._connection = connection
        self._attempts += 1
        self._arm(self._relay.settings.first_byte_timeout_s)
        bodiless = self._request.method == b"HEAD"
        connection.send(self, message.parts, bodiless=bodiless)
        if self._client.paused:
            connection.pause()

    # --- the worker's answer ---

    def received(self, chunk: bytes, complete: bool) -> None:
        """The worker sent more of its answer."""
        try:
            if not self._begun:
                self._look_at(chunk, complete)
                return
            scanner = self._scanner
            if scanner is not None:
                chunk = scanner.feed(chunk)
                self._chunks += 1
                if not self._chunks % _PROGRESS_CHUNKS and self._ticket is not None:
                    self._ticket.progress(scanner.decoded_events)
                if complete:
                    chunk += scanner.finish()
            if complete:
                self._complete(chunk)
                return
            if self._idle_s is not None:
                self._arm(self._idle_s)
            if chunk:
                self._answer.more(chunk)
        except Exception as error:
            self._stop_worker()
            self._refuse(error)

    def _look_at(self, chunk: bytes, complete: bool) -> None:
        """Decides what the beginning of an answer is worth, as soon as that is clear."""
        connection, opening, reply = self._connection, self._opening, self._answer
        assert connection is not None
        if opening is None:
            self._first_byte_at = self._relay.loop.time()
            self._opening = opening = Opening(connection, self._dialect, self._facts)
            self._scanner = opening.scanner
        held = opening.feed(chunk, complete)
        if not opening.clear:
            self._arm(self._idle_s)
            return
        if self._retries < _RETRIES and opening.busy:
            self._retry(None)
            return
        if opening.sse or reply.status:
            # Once an early head is out, only a stream can follow it.
            problem = opening.refusal or (opening.no_stream if reply.status else None)
            if problem is not None:
                self._release_connection()
                self._refuse_with(problem)
                return
        if self._comments is not None:
            self._comments.stop()
        if not reply.status:
            reply.begin(connection, sse=opening.sse)
        self._begun = True
        self._opening = self._message = None  # nothing is tried again now
        self._body = b""
        if complete:
            self._complete(held)
        else:
            self._arm(self._idle_s)
            reply.more(held)

    def _complete(self, rest: bytes) -> None:
        connection, scanner = self._connection, self._scanner
        assert connection is not None
        self._connection = None
        self._answer.more(rest, complete=True, trailers=connection.trailers)
        status = connection.status
        if status in (500, 502, 504):
            self._relay.workers.faulted(self._worker, "status")
        else:
            self._relay.workers.answered(self._worker)
        failed = status >= 400 or (scanner is not None and scanner.error is not None)
        self._end("failed" if failed else "finished")

    # --- when it goes wrong ---

    def lost(self, error: UpstreamError, *, stale: bool) -> None:
        """The worker's connection broke before the answer was complete."""
        self._connection = None
        if stale:
            self._task = self._relay.loop.create_task(self._travel(self._lane))
            return
        try:
            self._relay.workers.faulted(self._worker, fault(error))
            self._refuse(error)
        except Exception as bug:
            self._refuse(bug)

    def _retry(self, error: ThunderError | None) -> None:
        """Its worker never began it: back to the queue, unless it was there often enough."""
        self._release_connection()
        self._opening = self._scanner = None
        self.deadline = math.inf
        if self._retries >= _RETRIES:
            self._refuse(error or NoWorkerError("No worker could take the request."))
            return
        self._retries += 1
        assert self._ticket is not None
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
        """The client does not keep up: the worker waits, and is not to blame for its silence."""
        self.deadline = math.inf
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The client reads again."""
        if self._connection is not None:
            self._arm(self._idle_s)
            self._connection.resume()

    def _refuse(self, error: Exception) -> None:
        problem = explain(error)
        if problem.status == 500:
            _log.error("exchange=failed dialect=%s", self._dialect, exc_info=error)
        self._refuse_with(problem)

    def _refuse_with(self, problem: Problem) -> None:
        """Tells the client, as far as it can still be told."""
        if self._over:
            return
        turned_away = problem.status == 429 and self._ticket is None
        outcome: Outcome = "rejected" if turned_away else "failed"
        if not self._answer.status:
            self._answer.refuse(problem)
        elif not self._answer.break_off(problem):
            self._end(outcome, tell=False)
            self._client.cut()
            return
        self._end(outcome)

    # --- ends ---

    def _end(self, outcome: Outcome, *, tell: bool = True) -> None:
        """The one end of every exchange."""
        if self._over:
            return
        self._over = True
        self.deadline = math.inf
        if self._comments is not None:
            self._comments.stop()
        if self._task is not None and self._task is not asyncio.current_task(self._relay.loop):
            self._task.cancel()
        try:
            if self._ticket is not None:
                settle(self._ticket, outcome, self._scanner)
            if self._relay.observer is not None:
                self._relay.observer.ended(self._summary(outcome))
        except Exception:
            _log.exception("exchange=ended outcome=%s", outcome)
        if tell:
            self._client.answered(keeps=self._answer.keeps)

    def _summary(self, outcome: Outcome) -> Ended:
        now, since, first = self._relay.loop.time(), self._since, self._first_byte_at
        scanner = self._scanner
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
        rid = None if self._message is None else self._message.rid
        if self._connection is not None and self._lane is not None and rid is not None:
            self._relay.run(errands.abort_request(self._lane, self._relay.pool, rid))
        self._release_connection()

    def _release_connection(self) -> None:
        """Drops the connection, unless its answer is complete and it rests already."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.serves(self):
            connection.drop()

    @property
    def _worker(self) -> int:
        assert self._place is not None
        return self._place.worker

    def _arm(self, seconds: float | None) -> None:
        self.deadline = math.inf if seconds is None else self._relay.loop.time() + seconds

    def _comment_while_held(self) -> None:
        """Keeps a held stream alive, from now until its worker says something."""
        period_s, facts = self._relay.settings.keepalive_comment_s, self._facts
        able = facts is not None and facts.stream and not self._request.http10
        if able and period_s is not None and self._comments is None:
            self._comments = Comments(self._relay.loop, period_s, self._comment)

    def _comment(self) -> None:
        if not self._client.paused:
            self._answer.keep_alive()
