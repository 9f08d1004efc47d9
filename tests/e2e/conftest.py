"""A browser with the page open, and a server behind it: a fake one, or that at INFINIPOT_PAGE_URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from e2e.browsers import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from e2e.fake_server import FakeServer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One per module: while it is open, nothing else in this thread can run an event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def fake() -> FakeServer:
    from e2e.fake_server import FakeServer

    return FakeServer()


@pytest.fixture
def base_url(fake: FakeServer) -> Iterator[str]:
    there = os.environ.get("INFINIPOT_PAGE_URL")
    if there:
        yield there
    else:
        from e2e.fake_server import serving

        with serving(fake) as address:
            yield address


@pytest.fixture
def page(browser: Browser, base_url: str) -> Iterator[Page]:
    """The page, opened. At the end the browser may have complained of refused requests only."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page, complaints = context.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(base_url)
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()
    assert [told for told in complaints if not told.startswith("Failed to load resource")] == []
