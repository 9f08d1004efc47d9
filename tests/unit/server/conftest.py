"""The app around a scheduler that needs no model, and a client that needs no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI

from fake_scheduler import FakeScheduler
from infinipot.server.http.app import create_app
from infinipot.server.settings import Keys, Settings
from infinipot.store import LocalStore

KEY, OTHER_KEY = "key-of-the-first-tenant", "key-of-the-second-tenant"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "spool").mkdir()
    return Settings(model="toy", spool=tmp_path / "spool", idle_s=2.0)


@pytest.fixture
def locked(settings: Settings) -> Settings:
    return replace(settings, keys=Keys.of([KEY, OTHER_KEY]))


@pytest.fixture
def scheduler(tmp_path: Path) -> FakeScheduler:
    return FakeScheduler(LocalStore(tmp_path / "pots"))


def made(settings: Settings, scheduler: FakeScheduler) -> FastAPI:
    scheduler.ready = True
    return create_app(settings, scheduler)  # type: ignore[arg-type]


@asynccontextmanager
async def calling(app: FastAPI, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers, timeout=20
    ) as client:
        yield client


class Client:
    """Calls from a test that is no coroutine."""

    def __init__(self, app: FastAPI, **headers: str) -> None:
        self.app, self.headers = app, headers

    def __call__(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            async with calling(self.app, **self.headers) as client:
                return await client.request(method, path, **more)

        return anyio.run(call)

    def chat(self, **more: Any) -> httpx.Response:
        body = {"model": "toy", "messages": [{"role": "user", "content": "Hi"}], **more}
        return self("POST", "/v1/chat/completions", json=body)


@pytest.fixture
def client(settings: Settings, scheduler: FakeScheduler) -> Client:
    return Client(made(settings, scheduler))


@pytest.fixture
def as_tenant(locked: Settings, scheduler: FakeScheduler) -> Callable[[str], Client]:
    app = made(locked, scheduler)
    return lambda key: Client(app, Authorization=f"Bearer {key}")


def data_of(text: str) -> list[str]:
    """The data of a stream's events, in request."""
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
