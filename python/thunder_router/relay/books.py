"""What the scheduler and the worker registry are told of an exchange's end."""

from typing import TYPE_CHECKING

from thunder_router.errors import ProtocolError, UpstreamError, WorkerTimeoutError
from thunder_router.relay.contract import Fault, Outcome, Ticket

if TYPE_CHECKING:
    from thunder_router._core import ResponseScanner

__all__ = ["fault", "settle"]


def settle(ticket: Ticket, outcome: Outcome, scanner: "ResponseScanner | None") -> None:
    """Ends the ticket, with what the worker counted where the answer said it."""
    if outcome == "cancelled":
        ticket.cancelled()
    elif outcome != "finished":
        ticket.failed()
    elif scanner is None:
        ticket.finished(
            prompt_tokens=None,
            completion_tokens=None,
            cached_tokens=None,
            cached_host_tokens=None,
            tools=(),
            response_id=None,
        )
    else:
        ticket.finished(
            prompt_tokens=scanner.prompt_tokens,
            completion_tokens=scanner.completion_tokens,
            cached_tokens=scanner.cached_tokens,
            cached_host_tokens=scanner.cached_host_tokens,
            tools=scanner.tools,
            response_id=scanner.response_id,
        )


def fault(error: UpstreamError) -> Fault:
    """What a worker that broke off its answer is charged with."""
    if isinstance(error, WorkerTimeoutError):
        return "timeout"
    return "protocol" if isinstance(error, ProtocolError) else "reset"
