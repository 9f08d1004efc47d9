"""How much a request may bring, and how slowly: counted as it comes, before anything is parsed.

Small bodies are taken in whole, within a budget that all requests share. Uploads pass through as they come.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infinipot.server.errors import ApiError, respond
from infinipot.server.settings import Settings

MOST_NESTING = 32
MOST_VALUES = 200_000  # strings, objects, arrays and what stands between commas in one body
# Bodies of the largest size that are held at the same time. Parsed and split into tokens one takes eight
# times as much, which must fit into the bound that the server prints.
SHARED = 3

# A string as one match, whatever is in it, also one that does not end: possessive, and never tried twice, so
# that the time is linear in the body's length.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)


def is_upload(scope: Scope) -> bool:
    """Say whether a request's body is a text or a pot of any size."""
    return str(scope["path"]).startswith("/v1/pots/") and scope["method"] in ("POST", "PUT")


class Limits:
    """ASGI middleware: body sizes, JSON's shape, and clients that stop sending."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._most, self._idle = app, settings.max_body, settings.idle_s
        self._most_upload = settings.max_upload
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = 0
        try:
            if is_upload(scope):
                check_length(scope, self._most_upload)
                receive = counted(receive, self._most_upload, self._idle)
            else:
                body = await self._whole(scope, receive)
                held = len(body)
                receive = replayed(body, receive)
        except ApiError as error:
            await respond(error)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._held -= held

    async def _whole(self, scope: Scope, receive: Receive) -> bytes:
        """Take in a body; its bytes count against the shared budget until the request is done."""
        check_length(scope, self._most)
        parts: list[bytes] = []
        size = 0
        try:
            async for part in arriving(counted(receive, self._most, self._idle)):
                self._held += len(part)
                size += len(part)
                parts.append(part)
                if self._held > SHARED * self._most:
                    raise ApiError(
                        429, "too many large requests at once: try again", code="busy", retry_after=1
                    )
            body = b"".join(parts)
            check_structure(body)
        except BaseException:
            self._held -= size
            raise
        return body


async def arriving(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the parts of a body; a client that leaves ends it with an error nobody will read."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "the client left before the body was whole")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


def counted(receive: Receive, most: int, idle_s: float) -> Receive:
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
            raise too_large(most)
        return message

    return bounded


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body already taken in, and then what the connection says."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def check_length(scope: Scope, most: int) -> None:
    """Refuse by what the client says it will send, before it does."""
    headers = Headers(scope=scope)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "send the body as it is, not compressed")
    said = headers.get("content-length", "0")
    if not said.isdecimal():
        raise ApiError(400, "content-length is not a number")
    if len(said) > 18 or int(said) > most:
        raise too_large(most)


def too_large(most: int) -> ApiError:
    """Return the refusal of a body over its bound."""
    text = f"the body is over {most:,} bytes: put long texts into a pot with POST /v1/pots/NAME"
    return ApiError(413, text, code="too_large")


def check_structure(body: bytes) -> None:
    """Refuse JSON nested so deeply, or of so many parts, that parsing it would be an attack."""
    if b"\0" in body[:4] or body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ApiError(
            400, "send the body in UTF-8, not in UTF-16 or UTF-32"
        )  # which would not be seen through
    depth = 0
    for count, found in enumerate(_STRUCTURE.finditer(body)):
        first = found[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MOST_NESTING:
            raise ApiError(400, f"the body is nested deeper than {MOST_NESTING} levels", code="too_deep")
        if count > MOST_VALUES:
            raise ApiError(400, f"the body has over {MOST_VALUES:,} parts", code="too_many_parts")
