"""The page, and a plain list of routes: our own files only, and browsers told to load nothing else."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infinipot.server.http.errors import ApiError

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """ASGI middleware that tells browsers what they may do with any answer of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, adding headers."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


@router.get("/")
async def page() -> Response:
    """Return the page."""
    return await asset("index.html")


@router.get("/page/{name}")
async def asset(name: str) -> Response:
    """Return one of the page's files by its name in the folder's own list: no name can lead elsewhere."""
    known = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
    if name not in known:
        raise ApiError(404, "the page has no such file")
    return FileResponse(known[name], media_type=TYPES[known[name].suffix])


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return every route in one plain list: HTML that needs neither style nor script."""
    document: dict[str, Any] = request.app.openapi()
    rows = "".join(
        f"<dt><code>{html.escape(method.upper())} {html.escape(path)}</code></dt>"
        f"<dd>{html.escape(route.get('description') or route.get('summary', ''))}</dd>"
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    )
    title = html.escape(document["info"]["title"])
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<meta name=viewport content='width=device-width'><h1>{title}</h1>"
        "<p>Every field: <a href=openapi.json>openapi.json</a>, for any OpenAPI viewer. "
        f"The page: <a href='.'>here</a>.</p><dl>{rows}</dl></html>"
    )
