"""How much a request may bring, and how slowly: counted as it comes, before anything is parsed."""

import asyncio
import codecs
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

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


TWO_LENGTHS = "the head has Content-Length and Transfer-Encoding: send one of them"


class FramingMiddleware:
    """ASGI middleware: refuses a request whose body has two ends, before anything else is looked at.

    A proxy in front may see the other end, and take what follows for somebody else's request: so the
    connection is closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else ()
        if b"content-length" in names and b"transfer-encoding" in names:
            await respond(ApiError(400, TWO_LENGTHS, code="two_lengths", close=True))(scope, receive, send)
            return
        await self._app(scope, receive, send)


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
            bounded = _counted(receive, most, self._settings)
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


class Places:
    """Places for what fills a disk or keeps a thread; of several tenants none can take them all."""

    def __init__(self, what: str, most: int, shared: bool) -> None:
        self._what, self._most, self._of_one = what, most, max(1, most - 1) if shared else most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Take a place until the block ends, or say that there is none."""
        if self._taken.total() >= self._most or self._taken[tenant] >= self._of_one:
            raise ApiError(429, f"too many {self._what} at once: try again", code="busy", retry_s=5)
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1


class Pace:
    """How fast a body must come; only the time that the server waits for the client counts."""

    def __init__(self, settings: Settings) -> None:
        self._idle, self._rate, self._left = settings.idle_s, settings.least_rate, settings.max_send_s
        self._waited, self._came = 0.0, 0  # seconds and bytes of the window that is being looked at

    async def next(self, receive: Receive) -> Message:
        """Wait for the next part of a body, or refuse the body: silent, too slow, or not whole in time."""
        window, started = self._idle - self._waited, time.monotonic()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, min(window, self._left)))
        except TimeoutError:
            raise self._refusal(out_of_time=self._left <= window) from None
        took = time.monotonic() - started
        self._left, self._waited = self._left - took, self._waited + took
        self._came += len(message.get("body", b""))
        if self._came >= self._idle * self._rate:  # the window has its share: the next one begins
            self._waited, self._came = 0.0, 0
        return message

    def _refusal(self, out_of_time: bool) -> ApiError:
        if out_of_time:
            said = "the body took too long: send it faster, or in parts"
        elif self._came:
            said = f"the body comes slower than {self._rate:,} bytes a second: send it faster"
        else:
            said = f"nothing came for {self._idle:g} s: send the body faster"
        return ApiError(408, said, code="too_slow", close=True)  # the rest is not waited for


def _counted(receive: Receive, most: int, settings: Settings) -> Receive:
    """Return `receive` with a bound on the body's bytes and on the time they take to come."""
    size, whole, pace = 0, False, Pace(settings)

    async def bounded() -> Message:
        nonlocal size, whole
        if whole:  # only the client's leaving can come now, whenever that is
            return await receive()
        message = await pace.next(receive)
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
