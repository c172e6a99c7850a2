"""One request's dealings with the scheduler, from arrival to its single end.

Theory of operation. A ticket is held, placed or ended, and only its pool moves it. Whoever has it
waits until it is placed, says how the answer goes, and ends it with exactly one of `finished`,
`failed` or `cancelled`; what comes after the first end is ignored, so every clean-up path may
simply end the ticket again. A future is made only when somebody really waits.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Literal

from thunder_router.errors import ThunderError
from thunder_router.scheduling.continuations import Continuations
from thunder_router.scheduling.core import Hold
from thunder_router.scheduling.estimate import PromptFacts
from thunder_router.scheduling.seats import Placement, Seat
from thunder_router.scheduling.tenancy import Tenant

if TYPE_CHECKING:
    from thunder_router.scheduling.pool import Pool

__all__ = ["State", "Ticket"]

_PROGRESS_STEP: Final = 32
"""Decoded tokens between two words to the core: well under any admission margin."""


State = Literal["held", "placed", "ended"]
"""Where a ticket stands."""


class Ticket:
    """A request that the scheduler holds or has placed.

    Attributes:
        id: The request's number, unique in this process.
        program: The program it belongs to, or None.
        final: Its end is its program's end.
        place: Where it goes, while it is placed.
        arrived_ms: When it came, by the driver's clock.
        held_by: The last decision to hold it; its reason says why in numbers.
        refused: Workers that refused it before they started it.
        core_knows: The core accounts for it; False once it is served plainly.
        tenant: Whom it is accounted to, or None.
        continuations: Told which answer it got, where that names programs.
    """

    __slots__ = (
        "_future",
        "_pool",
        "_reported",
        "arrived_ms",
        "continuations",
        "core_knows",
        "error",
        "facts",
        "final",
        "group",
        "held_by",
        "id",
        "model",
        "place",
        "prefix",
        "program",
        "prompt_tokens",
        "refused",
        "seat",
        "state",
        "tenant",
    )

    def __init__(
        self,
        pool: "Pool",
        request: int,
        *,
        program: str | None,
        group: str | None,
        final: bool,
        model: str,
        facts: PromptFacts | None,
        prompt_tokens: int,
        prefix: int | None,
        now_ms: int,
    ) -> None:
        self._pool = pool
        self._future: asyncio.Future[None] | None = None
        self._reported = 0
        self.id = request
        self.program = program
        self.group = group
        self.final = final
        self.model = model
        self.facts = facts
        self.prompt_tokens = prompt_tokens
        self.prefix = prefix
        self.arrived_ms = now_ms
        self.state: State = "held"
        self.core_knows = True
        self.seat: Seat | None = None
        self.place: Placement | None = None
        self.error: ThunderError | None = None
        self.held_by: Hold | None = None
        self.refused: tuple[int, ...] = ()
        self.tenant: Tenant | None = None
        self.continuations: Continuations | None = None

    async def placed(self) -> Placement:
        """Its place, as soon as it has one.

        Cancelling the wait does not end the ticket: its owner still says how it ends.

        Raises:
            RejectedError: held too long, or a limit was reached.
            OversizeError: it fits no worker.
            NoWorkerError: nobody serves it.
        """
        while self.place is None:
            if self.error is not None:
                raise self.error
            if self.state == "ended":
                raise asyncio.CancelledError
            if self._future is None or self._future.done():
                self._future = asyncio.get_running_loop().create_future()
            # Shielded: a caller that waits in steps comes back to the same future.
            await asyncio.shield(self._future)
        return self.place

    def bounced(self) -> None:
        """Its worker refused it before it started: back to its place in the queue.

        `place` and `placed` answer anew; never with a worker that refused it.
        """
        if self.state == "placed":
            self._pool.bounce(self)

    def progress(self, decoded_tokens: int) -> None:
        """`decoded_tokens` of the answer so far, in total."""
        if decoded_tokens - self._reported >= _PROGRESS_STEP and self.state == "placed":
            self._reported = decoded_tokens
            self._pool.progress(self, decoded_tokens)

    def finished(
        self,
        *,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None,
        cached_host_tokens: int | None,
        tools: tuple[str, ...],
        response_id: str | None = None,
    ) -> None:
        """Answered whole. None where the answer did not say."""
        if self.state == "placed":
            if response_id is not None and self.continuations is not None:
                self.continuations.answered(response_id, self.program)
            self._pool.finish(
                self, prompt_tokens, completion_tokens, cached_tokens, cached_host_tokens, tools
            )

    def failed(self) -> None:
        """Ended by an error, at any stage."""
        if self.state != "ended":
            self._pool.fail(self)

    def cancelled(self) -> None:
        """The client left, at any stage."""
        if self.state != "ended":
            self._pool.cancel(self)

    def wake(self) -> None:
        """The pool moved it: whoever waits looks again."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
