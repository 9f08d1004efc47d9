"""How much a request may bring, and how slowly: counted as it comes, before anything is parsed."""

import asyncio
import codecs
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infinipot.server.http.errors import ApiError, respond
from infinipot.server.settings import Settings

MOST_NESTING = 32
MOST_VALUES = 200_000  # strings, objects, arrays and what stands between commas in one body
# Bodies of the largest size that are held at the same time. Parsed and split into tokens one takes eight
# times as much, which must fit into the bound that the server prints.
SHARED = 3
# A string as one match, whatever is in it, also one that does not end: possessive, and never tried twice, so
# that the time is linear in the body's length.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)


class LimitsMiddleware:
    """ASGI middleware: takes small bodies in whole, within a shared budget, and passes uploads through."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._held = 0  # bytes of all bodies that are taken in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = str(scope["path"]).startswith("/v1/pots/") and scope["method"] in ("POST", "PUT")
        most = self._settings.max_upload if upload else self._settings.max_body
        held = 0
        try:
            _check_head(Headers(scope=scope), most)
            bounded = _counted(receive, most, self._settings.idle_s)
            if not upload:
                body = await self._take_in(bounded)
                held, bounded = len(body), _replayed(body, receive)
        except ApiError as error:
            await respond(error)(scope, receive, send)
            return
        try:
            await self._app(scope, bounded, send)
        finally:
            self._held -= held

    async def _take_in(self, receive: Receive) -> bytes:
        """Take in a body; its bytes count against the shared budget until the request is done."""
        body, more = bytearray(), True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "the client left before the body was whole")
                part, more = message.get("body", b""), message.get("more_body", False)
                body += part
                self._held += len(part)
                if self._held > SHARED * self._settings.max_body:
                    raise ApiError(429, "too many large requests at once: try again", code="busy", retry_s=1)
            check_structure(whole := bytes(body))
        except BaseException:
            self._held -= len(body)
            raise
        return whole


def _counted(receive: Receive, most: int, idle_s: float) -> Receive:
    """Return `receive` with a bound on the body's bytes and on the wait for each part of it."""
    size, whole = 0, False

    async def bounded() -> Message:
        nonlocal size, whole
        if whole:  # only the client's leaving can come now, whenever that is
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), idle_s)
        except TimeoutError:
            raise ApiError(408, f"nothing came for {idle_s:g} s: send the body faster") from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body")
        if size > most:
            raise _too_large(most)
        return message

    return bounded


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body already taken in, and then what the connection says."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


def _check_head(headers: Headers, most: int) -> None:
    """Refuse a body by the size and encoding that its headers announce, before it is sent."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "send the body as it is, not compressed")
    said = headers.get("content-length", "0")
    if not said.isdecimal():
        raise ApiError(400, "content-length is not a number")
    if len(said) > 18 or int(said) > most:
        raise _too_large(most)


def _too_large(most: int) -> ApiError:
    text = f"the body is over {most:,} bytes: put long texts into a pot with POST /v1/pots/NAME"
    return ApiError(413, text, code="too_large")


def check_structure(body: bytes) -> None:
    """Refuse JSON nested so deeply, or of so many parts, that parsing it would be an attack."""
    if b"\0" in body[:4] or body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # The brackets in it would not be seen.
        raise ApiError(400, "send the body in UTF-8, not in UTF-16 or UTF-32")
    depth = 0
    for count, found in enumerate(_STRUCTURE.finditer(body)):
        first = found[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MOST_NESTING:
            raise ApiError(400, f"the body is nested deeper than {MOST_NESTING} levels", code="too_deep")
        if count > MOST_VALUES:
            raise ApiError(400, f"the body has over {MOST_VALUES:,} parts", code="too_many_parts")
