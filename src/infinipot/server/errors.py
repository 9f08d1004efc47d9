"""How errors look to a caller: OpenAI's shape, one line that says what to do, whatever went wrong.

The only place that turns the project's errors into HTTP statuses.
"""

from __future__ import annotations

import json
import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from infinipot.errors import InfiniPotError, StoreError
from infinipot.server.orders import BusyError, FaultError

log = logging.getLogger("infinipot.server")

INVALID, AUTHENTICATION, RATE, FAULT, MISSING = (
    "invalid_request_error",
    "authentication_error",
    "rate_limit_error",
    "server_error",
    "not_found_error",
)
_PLACE = re.compile(r"(?<![\w.])(?:\w+://|/|[A-Za-z]:\\\\)[^\s',;)]+")  # a path or an address in a message
OUR_FAULT = "the server failed; its log says why"
CLOSING = "the server is closing: ask again, another one may answer"


class ApiError(InfiniPotError):
    """A refusal with a status of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after


def kind(status: int) -> str:
    """Return OpenAI's type for a status."""
    named = {401: AUTHENTICATION, 403: AUTHENTICATION, 404: MISSING, 429: RATE}
    return named.get(status, FAULT if status >= 500 else INVALID)


def refusal(error: Exception) -> ApiError:
    """Return any error as one with a status; what is not the caller's doing tells nothing of our insides."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        status, code = (503, "closing") if error.closing else (429, "busy")
        return ApiError(status, str(error), code=code, retry_after=error.retry_after)
    if isinstance(error, FaultError):
        return ApiError(503, str(error), code="fault", retry_after=1)
    if isinstance(error, StoreError):
        return _of_store(error)
    if isinstance(error, InfiniPotError):
        return ApiError(400, str(error))
    return ApiError(500, OUR_FAULT)


def _of_store(error: StoreError) -> ApiError:
    """A pot that cannot be used now, or a disk that cannot: without where it lies on the server."""
    log.warning("%s", error)
    said = _PLACE.sub("the store", str(error))
    cause = error.__cause__
    full = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)  # gone: somebody's doing
    return ApiError(507 if full else 409, said, code="pot")


def body(error: ApiError) -> dict[str, Any]:
    """Return the error object."""
    message = " ".join(str(error).split())
    told = {"message": message, "type": kind(error.status), "param": error.param, "code": error.code}
    return {"error": told}


def respond(error: ApiError) -> Response:
    """Return the response; plain ASCII, since a caller's words may be in it that UTF-8 cannot carry."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, error.retry_after))}
    if error.status == 408:  # the rest of the body is not waited for
        headers["Connection"] = "close"
    return Response(json.dumps(body(error)), error.status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Make every error of an app look like this."""

    async def ours(_: Request, error: Exception) -> Response:
        return respond(refusal(error))

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase.lower()
        said = {
            400: "the body cannot be read: send JSON in UTF-8",
            404: "there is nothing at this address: see /docs",
            405: "this address has no such method: see /docs",
        }
        answer = respond(ApiError(error.status_code, said.get(error.status_code, phrase)))
        answer.headers.update(error.headers or {})
        return answer

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(_first(error))

    async def unknown(_: Request, error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return respond(refusal(error))

    app.add_exception_handler(InfiniPotError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unknown)


def _first(error: RequestValidationError) -> ApiError:
    """Say what is wrong with the first field that is; nothing of what was sent is repeated."""
    found = error.errors()
    # Where a text or a list may stand, the other of the two is not what is wrong.
    first = next((one for one in found if one["type"] not in ("string_type", "list_type")), found[0])
    places = [str(place) for place in first["loc"]]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON (character {places[-1]}): {first['ctx']['error']}")
    if places == ["body"] and first["type"] != "value_error":
        return ApiError(400, "send a JSON object as the body, with `Content-Type: application/json`")
    where = ".".join(place for place in places[1:] if place.isidentifier() or place.isdigit())
    said = str(first["msg"]).removeprefix("Value error, ")
    return ApiError(400, f"{where}: {said}" if where else said, param=where or None)
