"""How the server is and what it serves; and the page."""

import asyncio
import html
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from infinipot.server.http.errors import ApiError
from infinipot.server.http.objects import model_object
from infinipot.server.http.service import Served

router = APIRouter(tags=["server"])
page = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parents[1] / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not now."}}


@router.get("/health", responses=UNAVAILABLE)
async def health(service: Served) -> Response:
    """Say whether the server works; needs no key."""
    if service.dead:
        return JSONResponse({"status": "dead", "reason": "the worker died; the log says why"}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/ready", responses=UNAVAILABLE)
async def ready(service: Served) -> Response:
    """Say whether work is taken now; needs no key."""
    if service.obstacle:
        status = {"status": "not ready", "reason": service.obstacle}
        return JSONResponse(status, 503, {"Retry-After": "5"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(service: Served) -> Response:
    """Return numbers for Prometheus."""
    text = await asyncio.to_thread(generate_latest, service.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/state")
async def state(service: Served) -> dict[str, Any]:
    """Return what the slots are doing: numbers only, no tenant's data."""
    return {**await asyncio.to_thread(service.scheduler.state), "model": service.model}


@router.get("/v1/models")
async def models(service: Served) -> dict[str, Any]:
    """List the one model that is served."""
    return {"object": "list", "data": [model_object(service.model, service.created)]}


@router.get("/v1/models/{name:path}")
async def model(service: Served, name: str) -> dict[str, Any]:
    """Show a model."""
    service.check_model(name)
    return model_object(service.model, service.created)


@page.get("/")
async def index() -> Response:
    """Return the page."""
    return await asset("index.html")


@page.get("/page/{name}")
async def asset(name: str) -> Response:
    """Return one of the page's files by its name in the folder's own list: no name can lead elsewhere."""
    known = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
    if name not in known:
        raise ApiError(404, "the page has no such file")
    return FileResponse(known[name], media_type=TYPES[known[name].suffix])


@page.get("/docs")
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
