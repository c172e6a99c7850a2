"""What the relay needs from the rest of the house, and what it hands over.

The relay moves bytes. Who goes where and when is asked of an `Admission`, where a worker listens
of `Workers`, and what happened is told to an `Observer`. Nothing here is implemented in the relay:
`api.app` joins it to the scheduler's driver, the worker registry and the metrics, which need only
have these shapes.

One request makes one `Arrival`, gets one `Ticket`, and ends it exactly once:

    arrive ──> placed ──> finished | failed | cancelled
                 ^  │
                 └──┘ bounced (its worker could not take it; another may)

Everything is called from the event loop's thread. Methods without `async` return at once.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from thunder_router._core import RequestFacts

if TYPE_CHECKING:
    from thunder_router._core import Dialect

__all__ = [
    "Admission",
    "Arrival",
    "Ended",
    "Endpoint",
    "Fault",
    "Observer",
    "Outcome",
    "Place",
    "Ticket",
    "Workers",
]

Outcome = Literal["finished", "failed", "cancelled", "rejected"]
Fault = Literal["connect", "reset", "protocol", "timeout", "status"]


@dataclass(slots=True, eq=False)
class Arrival:
    """A whole request, before anyone decided about it. Not to be changed.

    Attributes:
        dialect: The API it speaks, or None for a path that is handed on unread.
        facts: What the body says, or None for a path that is handed on unread.
        headers: Names in lower case and values as received, in order, repeats included.
        target: The request target, path and query, as received.
        body_bytes: Length of the body.
        peer: Address of the client.
    """

    dialect: "Dialect | None"
    facts: RequestFacts | None
    headers: Sequence[tuple[bytes, bytes]]
    target: bytes
    body_bytes: int
    peer: str


class Place(Protocol):
    """Where a request goes, and what its body must say there.

    Attributes:
        worker: The worker's id, as `Workers.endpoint` knows it.
        rank: The DP rank, told to workers that have more than one.
        session_id: Spliced into the body where the client set none, or None.
        priority: Spliced into the body where the client set none, or None.
    """

    @property
    def worker(self) -> int: ...  # noqa: D102
    @property
    def rank(self) -> int: ...  # noqa: D102
    @property
    def session_id(self) -> str | None: ...  # noqa: D102
    @property
    def priority(self) -> int | None: ...  # noqa: D102


class Ticket(Protocol):
    """One admitted or waiting request."""

    @property
    def place(self) -> Place | None:
        """Its place where that is known now; None while it is held, and after `bounced`."""

    async def placed(self) -> Place:
        """Waits for a place.

        Cancelling the wait decides nothing: the relay calls `cancelled` itself. After an error
        was raised here the ticket has ended, and none of its methods is called again.

        Raises:
            RejectedError: the queue is full, or the hold was too long.
            NoWorkerError: nobody serves this model at present, or every worker bounced it.
            OversizeError: larger than any worker's KV cache.
        """

    def bounced(self) -> None:
        """Its worker never began it: back to its old place in the queue, for another worker.

        `place` and `placed` answer anew. Where no other worker could ever take it, `placed`
        raises `NoWorkerError` at once instead of waiting for the one that refused.
        """

    def progress(self, decoded_tokens: int) -> None:
        """At least this many tokens were decoded so far, in total. Called every few dozen."""

    def finished(
        self,
        *,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None,
        cached_host_tokens: int | None,
        tools: tuple[str, ...],
        response_id: str | None,
    ) -> None:
        """Answered whole. None where the answer did not say.

        `tools`: names of the tools that the answer called, in order, without repeats.
        `response_id`: the answer's own id, by which a client may continue it.
        """

    def failed(self) -> None:
        """Ended by an error, whoever's: its program keeps its size."""

    def cancelled(self) -> None:
        """The client left, held or in flight."""


class Admission(Protocol):
    """Decides where and when requests go."""

    def arrive(self, arrival: Arrival) -> Ticket:
        """Takes a request in, and decides at once where that is possible.

        Raises:
            IdentityConflictError: header and body name different programs.
            RejectedError: the queue is full.
            NoWorkerError: nobody serves this model at present.
            OversizeError: larger than any worker's KV cache.
        """

    def farewell(self, arrival: Arrival) -> tuple[str | None, bool]:
        """A final signal with nothing to generate from: ends the program, reaches no worker.

        Returns:
            The program named, and whether it was known.

        Raises:
            IdentityConflictError: header and body name different programs.
        """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a worker listens and how it wants to be spoken to.

    Attributes:
        host: Name or address; an IPv6 address without brackets.
        port: TCP port.
        tls: The context for https, None for http.
        prefix: Put before every path, without a final slash; mostly empty.
        host_header: What `Host` says.
        authorization: The worker's own credentials, `Bearer ...`, in place of the client's.
        ranks: DP ranks; above 1 each request says which, in its body (`routed_dp_rank`) and in
            `X-Data-Parallel-Rank`.
        drops: Body fields that this engine does not know and would refuse.
        aborts_by_rid: SGLang: a request can be named by `rid` and ended by `/abort_request`.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    prefix: bytes = b""
    host_header: bytes = b""
    authorization: bytes | None = None
    ranks: int = 1
    drops: tuple[Literal["session_id", "rid", "priority"], ...] = ()
    aborts_by_rid: bool = False


class Workers(Protocol):
    """Knows the workers, and learns how they behave from the traffic itself."""

    def endpoint(self, worker: int) -> Endpoint:
        """Where this worker listens: the same object until something about it changes.

        Raises:
            NoWorkerError: the worker is gone.
        """

    def answered(self, worker: int) -> None:
        """It answered a request with anything but a fault."""

    def faulted(self, worker: int, fault: Fault) -> None:
        """It broke its side, as `fault` says; `status` means it answered 500, 502 or 504.

        Client errors, 429 and 503 are no fault: a busy worker is a working one.
        """


@dataclass(slots=True, eq=False)
class Ended:
    """How one exchange went, for metrics and traces. Not to be changed.

    Attributes:
        dialect: The API it spoke, or None for a path that is handed on unread.
        outcome: How it ended.
        status: The HTTP status the client got, 0 where it left before one was sent.
        worker: Who served it last, or None.
        attempts: Workers it was sent to.
        held_s: Seconds from arrival to the place it was served at, or to its end without one.
        first_byte_s: Seconds from arrival to the first byte of the answer, None without one.
        total_s: Seconds from arrival to the end.
        prompt_tokens: As the worker counted, or None.
        completion_tokens: As the worker counted, or None.
        cached_tokens: As the worker counted, or None.
    """

    dialect: "Dialect | None"
    outcome: Outcome
    status: int
    worker: int | None
    attempts: int
    held_s: float
    first_byte_s: float | None
    total_s: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class Observer(Protocol):
    """Sees every exchange end."""

    def ended(self, exchange: Ended) -> None:
        """Called once for each request that was read whole. Must not raise, must be quick."""
