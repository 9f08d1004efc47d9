"""The whole app: routes behind limits, behind the key, counted; its kitchen starts and stops with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware import Middleware

from infinipot import __version__
from infinipot.server import chat, errors, pages, pots, status
from infinipot.server.auth import Door
from infinipot.server.kitchen import Kitchen
from infinipot.server.limits import Limits
from infinipot.server.metrics import Counted
from infinipot.server.service import Service
from infinipot.server.settings import Settings
from infinipot.store import PotStore

log = logging.getLogger("infinipot.server")
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused; the message says what to do."},
    "5XX": {"description": "The server's fault, or closing."},
}


def create_app(settings: Settings, kitchen: Kitchen, store: PotStore, ready_first: bool = False) -> FastAPI:
    """Return the app; its kitchen is started when it is, and asked to finish when it stops.

    With `ready_first` nothing is answered before the kitchen is ready: for where nobody asks /ready.
    """
    service = Service(settings, kitchen, store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.ensure_future(_start(service))
        try:
            if ready_first:
                await starting
                if service.failed is not None:
                    raise service.failed
            yield
        finally:
            service.closing = True
            await starting
            if service.failed is None:
                await asyncio.to_thread(kitchen.stop, settings.drain_s)

    app = FastAPI(
        title="InfiniPot",
        version=__version__,
        description="Text of any length in pots of fixed size, in OpenAI's words.",
        docs_url=None,  # ours loads nothing from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
        lifespan=lifespan,
        middleware=[  # the first is the outermost
            Middleware(Counted, metrics=service.metrics),
            Middleware(pages.Careful),
            Middleware(Door, settings=settings),
            Middleware(Limits, settings=settings),
        ],
    )
    app.state.service = service
    for module in (status, chat, pots, pages):
        app.include_router(module.router)
    errors.install(app)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # FastAPI's own way to do it
    return app


async def _start(service: Service) -> None:
    """Warm up beside the open door: /health answers, /ready says not yet."""
    try:
        await asyncio.to_thread(service.kitchen.start)
    except Exception as error:  # whatever it is, the process must end with it: `serve` raises it
        log.error("the kitchen did not start: %s", error)
        service.failed = error


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with how a key is sent; made once."""
    if not app.openapi_schema:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemes = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        made.setdefault("components", {})["securitySchemes"] = schemes
        made["security"] = [{name: []} for name in schemes]
        made["paths"]["/health"]["get"]["security"] = []
        app.openapi_schema = made
    return app.openapi_schema
