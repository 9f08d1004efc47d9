"""Errors as HTTP statuses, in OpenAI's shape: one line that says what to do, whatever went wrong."""

import json
import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from infinipot.errors import InfiniPotError, StoreError
from infinipot.server.scheduler.requests import BusyError, FaultError, MemoryFaultError
from infinipot.server.settings import OPTIONS

log = logging.getLogger("infinipot.server")
# OpenAI's type for a status; others are "server_error" from 500 on, "invalid_request_error" below.
TYPES = dict.fromkeys((401, 403), "authentication_error") | {404: "not_found_error", 429: "rate_limit_error"}
HTTP_SAYS = {
    400: "the body cannot be read: send JSON in UTF-8",
    404: "there is nothing at this address: see /docs",
    405: "this address has no such method: see /docs",
}
FIELDS = {"max_new_tokens": "max_tokens"}  # options that have another name in a request
_OPERATOR = {option.name for option in OPTIONS} - {"max_tokens"}
_PLACE = re.compile(r"(?<![\w.])(?:\w+://|/|[A-Za-z]:\\\\)[^\s',;)]+")  # a path or an address in a message


class ApiError(InfiniPotError):
    """A refusal with a status of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_s: int = 0,
        close: bool = False,  # the connection, after the answer
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.retry_s, self.close = retry_s, close


def refusal(error: Exception) -> ApiError:
    """Return any error as one with a status; what is not the caller's doing tells nothing of our insides."""
    match error:
        case ApiError():
            return error
        case BusyError():
            status, code = (503, "closing") if error.closing else (429, "busy")
            return ApiError(status, str(error), code=code, retry_s=error.retry_after)
        case MemoryFaultError():
            return ApiError(503, str(error), code="out_of_memory", retry_s=5)
        case FaultError():
            return ApiError(503, str(error), code="fault", retry_s=1)
        case StoreError():  # without where the pot lies on the server
            log.warning("%s", error)
            cause = error.__cause__
            full = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
            return ApiError(507 if full else 409, _PLACE.sub("the store", worded(error)), code="pot")
        case InfiniPotError():
            return ApiError(400, worded(error))
    return ApiError(500, "the server failed; its log says why")


def worded(error: InfiniPotError) -> str:
    """Return an error's message with options named as a request names them, or as the operator's."""
    operators: list[str] = []

    def spell(name: str) -> str:
        if name in _OPERATOR:
            operators.append(name)
        return FIELDS.get(name, name)

    text = error.worded(spell)
    return f"{text} (the server's operator sets {' and '.join(operators)})" if operators else text


def body(error: ApiError) -> dict[str, Any]:
    """Return the error object."""
    kind = TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    message = " ".join(str(error).split())
    return {"error": {"message": message, "type": kind, "param": error.param, "code": error.code}}


def respond(error: ApiError) -> Response:
    """Return the response; plain ASCII, since a caller's words may be in it that UTF-8 cannot carry."""
    headers = {"Retry-After": str(error.retry_s)} if error.retry_s else {}
    if error.close:
        headers["Connection"] = "close"
    return Response(json.dumps(body(error)), error.status, headers, "application/json")


async def on_error(_: Request, error: Exception) -> Response:
    """Respond to any error of a route."""
    if isinstance(error, RequestValidationError):
        return respond(_invalid(error))
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase.lower()
        answer = respond(ApiError(error.status_code, HTTP_SAYS.get(error.status_code, phrase)))
        answer.headers.update(error.headers or {})
        return answer
    if not isinstance(error, InfiniPotError):
        log.error("a request failed", exc_info=error)
    return respond(refusal(error))


KINDS = (InfiniPotError, HTTPException, RequestValidationError, Exception)
HANDLERS: dict[int | type[Exception], Any] = dict.fromkeys(KINDS, on_error)


def _invalid(error: RequestValidationError) -> ApiError:
    """Say what is wrong with the first field that is; nothing of what was sent is repeated."""
    found = error.errors()
    # Where a text or a list may stand, the other of the two is not what is wrong.
    first = next((one for one in found if one["type"] not in ("string_type", "list_type")), found[0])
    # What else is wrong with a part follows from its type, if that is wrong.
    first = next((one for one in found if one["type"] == "literal_error"), first)
    places = [str(place) for place in first["loc"]]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON (character {places[-1]}): {first['ctx']['error']}")
    if places == ["body"] and first["type"] != "value_error":
        return ApiError(400, "send a JSON object as the body, with `Content-Type: application/json`")
    where = ".".join(place for place in places[1:] if place.isidentifier() or place.isdigit())
    said = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "union_tag_invalid":
        said = f"items of this type are not served here: send {first['ctx']['expected_tags']}"
    return ApiError(400, f"{where}: {said}" if where else said, param=where or None)
