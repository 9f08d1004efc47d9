"""A key for every path and method but `GET /health` and `/ready`; never in an address, which is logged.

A browser must not be used against its owner: what another site's page sends is refused, and where no key
is set, so is a name that merely points here (DNS rebinding); and headers tell it to load nothing else.
"""

import base64
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infinipot.server.http.errors import ApiError, respond
from infinipot.server.settings import Settings

NO_KEY = "this server needs a key: send `Authorization: Bearer KEY`"
WRONG_KEY = "this key is not known here: check it, and that its header came once only"
OTHER_SITE = "a page of another site may not use this server: open the server's own page"
OTHER_NAME = "this server answers to localhost only while its operator has set no key: ask localhost"
OPEN = frozenset((path, method) for path in ("/health", "/ready") for method in ("GET", "HEAD"))
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


METHODS = "GET, HEAD, POST, PUT, DELETE"
# For a page of an origin that the operator allows. No credentials: a key comes in a header of its own.
SHARED = {"Access-Control-Expose-Headers": "Retry-After", "Cross-Origin-Resource-Policy": "cross-origin"}
_NAMES = re.compile(r"[A-Za-z0-9-]+(?:, ?[A-Za-z0-9-]+){0,63}")  # of headers


class AuthMiddleware:
    """ASGI middleware: lets in who may come, notes the tenant, tells browsers what to do with any answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._keys, self._origins = app, settings.keys, frozenset(settings.allow_origin)
        self._names = LOCAL_NAMES | {settings.host} if settings.local and not settings.keys else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""

        origin = self._allowed_origin(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if origin:
                    headers.update({"Access-Control-Allow-Origin": origin, **SHARED})
                if self._origins:  # a cache must not give one origin's answer to another
                    headers.add_vary_header("Origin")
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] == "websocket":  # no route of ours is one
            await send({"type": "websocket.close", "code": 1008})
            return
        if origin and scope["method"] == "OPTIONS":  # a browser asks before it sends a key
            await _preflight(Headers(scope=scope))(scope, receive, with_headers)
            return
        if scope["type"] == "http" and (scope["path"], scope["method"]) not in OPEN:
            try:
                found = self._tenant(scope["method"], Headers(scope=scope), bool(origin))
                scope.setdefault("state", {})["tenant"] = found
            except ApiError as refused:
                answer = respond(refused)
                if refused.status == 401:
                    answer.headers["WWW-Authenticate"] = 'Basic realm="infinipot", charset="UTF-8"'
                await answer(scope, receive, with_headers)
                return
        await self._app(scope, receive, with_headers)

    def _allowed_origin(self, scope: Scope) -> str:
        """Return the origin of the page that asks, if the operator allows that one; else nothing."""
        given = Headers(scope=scope).getlist("origin") if scope["type"] == "http" else []
        return given[0] if len(given) == 1 and given[0] in self._origins else ""

    def _tenant(self, method: str, headers: Headers, allowed: bool) -> str:
        """Return whose key came, or refuse the request; `allowed` if the asking page's origin is."""
        key = _key(headers)
        tenant = self._keys.tenant(key)
        if tenant is None:
            raise ApiError(401, NO_KEY if key is None else WRONG_KEY, code="invalid_api_key")
        if not allowed and _from_elsewhere(method, headers):
            raise ApiError(403, OTHER_SITE, code="cross_site")
        if self._names is not None and _name(headers.get("host", "")) not in self._names:
            raise ApiError(403, OTHER_NAME, code="unknown_host")
        return tenant


def _preflight(headers: Headers) -> Response:
    """Answer a browser that asks which methods and headers a page of an allowed origin may send."""
    asked = headers.get("access-control-request-headers", "")
    told = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": "600"}
    if _NAMES.fullmatch(asked):
        told["Access-Control-Allow-Headers"] = asked
    return Response(status_code=204, headers=told)


def _key(headers: Headers) -> bytes | None:
    """Return the key a request brings; None where it brings none, or several headers of one name."""
    for name, read in (("authorization", _authorization), ("x-api-key", str.encode)):
        if values := headers.getlist(name):
            return read(values[0]) if len(values) == 1 else None
    return None


def _authorization(value: str) -> bytes | None:
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return None


def _from_elsewhere(method: str, headers: Headers) -> bool:
    """Say whether a browser sent this for a page of another origin; a link that is followed is harmless."""
    site, mode, purpose = (headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest"))
    if site in ("cross-site", "same-site"):
        return (mode, purpose) != ("navigate", "document") or method not in ("GET", "HEAD")
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _name(host: str) -> str:
    """Return a Host header without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
