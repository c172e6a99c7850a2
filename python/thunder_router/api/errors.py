"""Errors of the control surface, in the one form and by the one table that `answers` holds."""

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from thunder_router import answers
from thunder_router.errors import ThunderError, UnknownProgramError, UnknownWorkerError

__all__ = ["install", "problem"]

_CODES = {400: "invalid_request", 401: "invalid_api_key", 404: "not_found", 405: "not_allowed"}


def install(app: FastAPI) -> None:
    """Every error that leaves `app` is a JSON object, and names nothing of ours."""

    async def thunder(_request: Request, error: Exception) -> Response:
        return problem(_explain(error))

    async def http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "registered for HTTPException alone"
        code = _CODES.get(error.status_code, "error")
        return problem(answers.Problem(error.status_code, str(error.detail), code), error.headers)

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError), "registered for it alone"
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return problem(answers.Problem(400, f"{where}: {first['msg']}", "invalid_request"))

    app.add_exception_handler(ThunderError, thunder)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def problem(what: answers.Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    return Response(answers.body(what, None), what.status, headers, "application/json")


def _explain(error: Exception) -> answers.Problem:
    """The control surface names programs and workers, so unknown ones are the caller's mistake."""
    match error:
        case UnknownProgramError():
            return answers.Problem(404, "No such program.", "unknown_program")
        case UnknownWorkerError():
            return answers.Problem(404, "No such worker.", "unknown_worker")
        case _:
            return answers.explain(error)
