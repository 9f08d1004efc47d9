"""Documents from the page of a real server with a toy model: chosen, read, asked, their pages named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import small_documents as made
from e2e.browsers import ask
from toy_server import running

pytestmark = pytest.mark.browser

RAIN = [f"Day {day}: rain fell on the old harbour, and nobody came." for day in range(14)]
FACT = "Ottilie kept a raven in the attic."
HTML = (
    "".join(f"<h2>Watch {n}</h2><p>{' '.join(RAIN)}</p>" for n in range(4)) + f"<h2>Attic</h2><p>{FACT}</p>"
)
DOCX = (
    "".join(made.paragraph(" ".join(RAIN)) for _ in range(4))
    + made.paragraph("Attic", "H2")
    + made.paragraph(FACT)
)
DOCUMENTS = {
    "log.pdf": (made.pdf([*[RAIN] * 4, [FACT]]), "page 5"),
    "log.docx": (made.docx(DOCX), "Attic"),
    "log.epub": (made.epub({"a.xhtml": HTML}), "Attic"),
    "log.html": (f"<!doctype html>{HTML}".encode(), "Attic"),
}


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server: what is tested is the way through all of it."""
    with running(tmp_path_factory.mktemp("server"), capacity=2048, recall=900, slots=1) as server:
        yield server.url


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_chosen_read_and_asked(page: Page, tmp_path: Path, name: str) -> None:
    data, place = DOCUMENTS[name]
    (tmp_path / name).write_bytes(data)
    page.locator("#file").set_input_files(tmp_path / name)
    expect(page.get_by_label("Title")).to_have_value(name)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#open-title")).to_have_text(name, timeout=60_000)
    ask(page, "Which animal did Ottilie keep?")
    passages = page.locator("#log article").last.locator(".places")
    expect(passages).to_contain_text(f"{name}, {place}")
    if folder := os.environ.get("INFINIPOT_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (made.pdf([[]], "0 0 9 9 re f"), "has no text in it: it is scanned or drawn"),
        (made.zipped({"word/document.xml": bytes(64 * 2**20)}), "is a zip bomb, or no document"),
    ],
)
def test_what_cannot_be_read_is_told_on_the_page(page: Page, data: bytes, says: str) -> None:
    page.locator("#file").set_input_files({"name": "scan.pdf", "mimeType": "", "buffer": data})
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#read-note")).to_contain_text(says)


def test_documents_are_not_joined(page: Page) -> None:
    files = [{"name": name, "mimeType": "", "buffer": b"x"} for name in ("a.txt", "b.pdf")]
    page.locator("#file").set_input_files(files)
    expect(page.locator("#read-note")).to_have_text("Read b.pdf by itself, then add the others to it.")
    expect(page.locator("#chosen")).to_be_hidden()
