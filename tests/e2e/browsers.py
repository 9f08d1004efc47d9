"""What this machine can run a page in, and what a person does first with ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def first(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


CHROMIUM = first("chromium", "chromium-browser", "google-chrome")
NODE = first("node", "nodejs")
MISSING = "needs a Chromium, which is not here: `make test-long` installs it, or apt-get install chromium"
TEXT = "The keeper's name is Marlow. The sea was calm, and nobody came to the light that day. " * 400


def read(page: Page, title: str, text: str = TEXT) -> None:
    from playwright.sync_api import expect

    page.get_by_label("Or paste text").fill(text)
    page.get_by_label("Title").fill(title)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#open-title")).to_have_text(title, timeout=60_000)
    expect(page.locator("#watch")).to_be_hidden()


def ask(page: Page, question: str) -> str:
    from playwright.sync_api import expect

    page.get_by_label("Your question").fill(question)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Ask")).to_be_visible(timeout=60_000)
    return page.locator("#log article").last.locator(".said").inner_text()
