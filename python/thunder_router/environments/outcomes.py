"""What an engine's refusal means for the step that met it.

The statuses are Docker 20.10's, as measured: a port that is taken is a 500, a network in use a 403,
and a full address pool a 404, so the wording has a say in it.
"""

from thunder_router.environments.engine import EngineError, EngineUnreachableError
from thunder_router.environments.events import Outcome, Step

__all__ = ["judged"]

_NO_IMAGE = ("no such image",)
_NEVER = ("manifest unknown", "not found", "repository does not exist", "access denied", "invalid")


def judged(step: Step, error: EngineError) -> Outcome:
    """The outcome of a step that ended with this error."""
    message = error.message.lower()
    match step:
        case _ if isinstance(error, EngineUnreachableError):
            return Outcome.UNREACHABLE
        case Step.CREATE if error.status == 404 and any(words in message for words in _NO_IMAGE):
            return Outcome.MISSING
        case Step.CREATE if error.status == 400:
            return Outcome.REFUSED
        case Step.PULL if any(words in message for words in _NEVER):
            return Outcome.REFUSED
        case Step.FREEZE | Step.THAW if error.status == 404:
            return Outcome.MISSING
        case _:
            return Outcome.RETRY
