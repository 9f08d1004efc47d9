"""The whole app: routes behind limits, behind the key, counted; its scheduler starts and stops with it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from infinipot import __version__
from infinipot.server.http import answers, errors, pots, responses, routes
from infinipot.server.http.auth import AuthMiddleware
from infinipot.server.http.limits import FramingMiddleware, LimitsMiddleware
from infinipot.server.http.metrics import MetricsMiddleware
from infinipot.server.http.service import Service
from infinipot.server.http.temporary import remove_orphans
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings

log = logging.getLogger("infinipot.server")
ROUTERS = (routes.router, answers.router, responses.router, pots.router, routes.page)
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused; the message says what to do."},
    "5XX": {"description": "The server's fault, or closing."},
}
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_app(settings: Settings, scheduler: Scheduler, ready_first: bool = False) -> FastAPI:
    """Return the app, with which its scheduler starts and stops; with `ready_first`, before any answer."""
    service = Service(settings, scheduler)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(remove_orphans, settings.spool)
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
                await asyncio.to_thread(scheduler.stop, settings.drain_s)

    app = FastAPI(
        title="InfiniPot",
        version=__version__,
        description="Text of any length in pots of fixed size, in OpenAI's words.",
        docs_url=None,  # ours loads nothing from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
        lifespan=lifespan,
        exception_handlers=errors.HANDLERS,
        middleware=[  # the first is the outermost
            Middleware(MetricsMiddleware, metrics=service.metrics),
            Middleware(FramingMiddleware),
            Middleware(AuthMiddleware, settings=settings),
            Middleware(LimitsMiddleware, settings=settings),
        ],
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    document = app.openapi()  # made here, once: how a key is sent is added
    document.setdefault("components", {})["securitySchemes"] = KEYS
    document["security"] = [{name: []} for name in KEYS]
    for open_path in ("/health", "/ready"):
        document["paths"][open_path]["get"]["security"] = []
    return app


async def _start(service: Service) -> None:
    """Start the scheduler while the server answers already: /health says ok, /ready says not yet."""
    try:
        await asyncio.to_thread(service.scheduler.start)
    except Exception as error:  # whatever it is, the process must end with it: `serve` raises it
        log.error("the scheduler did not start: %s", error)
        service.failed = error
