"""How the server is, and what it serves: health, readiness, numbers, models."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from infinipot.server.objects import model_object
from infinipot.server.service import Service

router = APIRouter(tags=["server"])
UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not now."}}


@router.get("/health", responses=UNAVAILABLE)
async def health(request: Request) -> Response:
    """Say whether the server works; the one route that needs no key."""
    if Service.of(request).dead:
        return JSONResponse({"status": "dead", "reason": "the worker died; the log says why"}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/ready", responses=UNAVAILABLE)
async def ready(request: Request) -> Response:
    """Say whether work is taken now."""
    obstacle = Service.of(request).obstacle
    if obstacle:
        return JSONResponse({"status": "not ready", "reason": obstacle}, 503, {"Retry-After": "5"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return numbers for Prometheus."""
    text = await asyncio.to_thread(Service.of(request).metrics.text)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/state")
async def state(request: Request) -> dict[str, Any]:
    """Return what the slots are doing: numbers only, nobody's data."""
    service = Service.of(request)
    return {**await asyncio.to_thread(service.kitchen.state), "model": service.model}


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """List the one model that is served."""
    service = Service.of(request)
    return {"object": "list", "data": [model_object(service.model, service.created)]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    """Show a model."""
    service = Service.of(request)
    service.check_model(name)
    return model_object(service.model, service.created)
