"""How each inference route reads its body and words its answer: one small class a route."""

from thunder_router.emulator.dialects.base import Dialect
from thunder_router.emulator.dialects.chat import Chat
from thunder_router.emulator.dialects.completions import Completions
from thunder_router.emulator.dialects.generate import Generate
from thunder_router.emulator.dialects.messages import Messages
from thunder_router.emulator.dialects.responses import Responses

__all__ = ["ROUTES", "Dialect"]

ROUTES: dict[str, type[Dialect]] = {
    "/v1/chat/completions": Chat,
    "/v1/completions": Completions,
    "/generate": Generate,
    "/v1/messages": Messages,
    "/v1/responses": Responses,
}
