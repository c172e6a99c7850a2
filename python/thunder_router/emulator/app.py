"""The ASGI application: which worker by the port that was called, which route by the path."""

from collections.abc import Mapping

from thunder_router.emulator import control, info
from thunder_router.emulator.dialects import ROUTES as DIALECTS
from thunder_router.emulator.exchange import exchange
from thunder_router.emulator.http import Receive, Scope, Send, allowed, read_body, respond
from thunder_router.emulator.worker import Worker

__all__ = ["App"]

_MODEL_CARDS = "/v1/models/"


class App:
    """Serves several workers, each on its own port."""

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        worker = self._workers[scope["server"][1]]
        path: str = scope["path"]
        method: str = scope["method"]
        headers = dict(scope["headers"])
        if not allowed(worker.options, path, headers):
            await respond(send, 401, {"error": "Unauthorized"})
            return
        dialect = DIALECTS.get(path)
        methods, route = control.ROUTES.get(path, ((), None))
        if dialect is not None:
            methods = ("POST",)
        if dialect is None and route is None:
            await self._unrouted(worker, path, send)
        elif method not in methods:
            allow = (b"allow", ", ".join(methods).encode())
            await respond(send, 405, {"detail": "Method Not Allowed"}, allow)
        else:
            body = await read_body(receive)
            if body is None:
                return
            if dialect is not None:
                await exchange(worker, dialect, headers, body, receive, send)
            elif route is not None:
                request = control.Request(method, path, scope["query_string"], headers, body)
                await route(worker, request, send)

    async def _unrouted(self, worker: Worker, path: str, send: Send) -> None:
        if not path.startswith(_MODEL_CARDS):
            await respond(send, 404, {"detail": "Not Found"})
            return
        name = path.removeprefix(_MODEL_CARDS)
        if name == worker.options.model:
            await respond(send, 200, info.model_card(worker))
            return
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        await respond(send, 404, {"error": error})
