"""Every error thunder-router raises, as one tree.

    ThunderError
    ├── ConfigError                 a setting is missing, unknown or contradicts another
    ├── SchedulerError              the core refused an event: a bug in its caller
    │   ├── UnknownProgramError
    │   ├── UnknownRequestError
    │   ├── UnknownWorkerError
    │   ├── DuplicateRequestError
    │   ├── TransitionError         the table of allowed transitions has no such row
    │   └── InvariantError          `check()` found the books wrong
    ├── RequestError                a client's request cannot be served as it stands
    │   ├── UnauthorizedError
    │   ├── InvalidBodyError        not JSON, wrong types, duplicate keys
    │   ├── BodyTooLargeError
    │   ├── UnknownModelError       no worker serves this model
    │   ├── IdentityConflictError   header and body name different programs
    │   └── OversizeError           larger than any worker's KV cache
    ├── RejectedError               admission said no; carries `retry_after_s`
    ├── NoWorkerError               nobody serves this model at present
    ├── UpstreamError               a worker broke its side of the exchange
    │   ├── ConnectError            it never saw the request: safe to try elsewhere
    │   ├── WorkerResetError        it went away after the request was sent
    │   ├── WorkerTimeoutError      it was silent for longer than the settings allow
    │   └── ProtocolError           its bytes are not HTTP/1.1
    └── ClientGoneError             the client left; nobody is there to be answered

`answers` owns the one table from these to HTTP status codes and error bodies. A rejection by
the scheduler is first a `Decision`; it becomes `RejectedError` only where it must unwind a request.
"""

__all__ = [
    "BodyTooLargeError",
    "ClientGoneError",
    "ConfigError",
    "ConnectError",
    "DuplicateRequestError",
    "IdentityConflictError",
    "InvalidBodyError",
    "InvariantError",
    "NoWorkerError",
    "OversizeError",
    "ProtocolError",
    "RejectedError",
    "RequestError",
    "SchedulerError",
    "ThunderError",
    "TransitionError",
    "UnauthorizedError",
    "UnknownModelError",
    "UnknownProgramError",
    "UnknownRequestError",
    "UnknownWorkerError",
    "UpstreamError",
    "WorkerResetError",
    "WorkerTimeoutError",
]


class ThunderError(Exception):
    """Root of the tree."""


class ConfigError(ThunderError, ValueError):
    """A setting is missing, unknown, out of range or contradicts another."""


class SchedulerError(ThunderError):
    """The core refused an event. Clients cannot cause this; a caller's bug can."""


class UnknownProgramError(SchedulerError, KeyError):
    """No such program is known."""


class UnknownRequestError(SchedulerError, KeyError):
    """No such request is held or in flight."""


class UnknownWorkerError(SchedulerError, KeyError):
    """No such (worker, DP rank) is known."""


class DuplicateRequestError(SchedulerError, ValueError):
    """This request id is already held or in flight."""


class TransitionError(SchedulerError):
    """The table of allowed transitions has no row for this event in this state."""


class InvariantError(SchedulerError, AssertionError):
    """`Scheduler.check()` found a count that does not add up."""


class RequestError(ThunderError, ValueError):
    """A client's request cannot be served as it stands."""


class UnauthorizedError(RequestError):
    """The client's API key is missing or wrong."""


class InvalidBodyError(RequestError):
    """The body is not the JSON object that the route needs."""


class BodyTooLargeError(RequestError):
    """The body is longer than `relay.max_body_bytes`."""


class IdentityConflictError(RequestError):
    """Header and body name different programs."""


class UnknownModelError(RequestError):
    """No worker serves this model."""


class OversizeError(RequestError):
    """The program needs more KV cache than the largest worker has."""


class RejectedError(ThunderError):
    """Admission said no.

    Attributes:
        retry_after_s: Seconds after which a retry has a chance.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NoWorkerError(ThunderError):
    """Nobody serves this model at present."""


class UpstreamError(ThunderError):
    """A worker broke its side of the exchange."""


class ConnectError(UpstreamError):
    """The worker never saw the request, so another may have it."""


class WorkerResetError(UpstreamError):
    """The worker went away after the request was sent."""


class WorkerTimeoutError(UpstreamError):
    """The worker was silent for longer than the settings allow."""


class ProtocolError(UpstreamError):
    """The worker's bytes are not HTTP/1.1."""


class ClientGoneError(ThunderError):
    """The client left; nobody is there to be answered."""
