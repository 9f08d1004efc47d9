"""Uploads that are documents: made text on the way in, pages and chapters as places; hostile ones told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import small_documents as made
from fake_scheduler import FakeScheduler, uploads_in
from infinipot.server.http import uploads
from infinipot.server.settings import Settings
from infinipot.text.convert.isolated import Limits

from .conftest import Client
from .test_recall import serving

PDF = made.pdf([["Page one has", "two lines."], ["The second page."]])
BOOK = made.epub({"a.xhtml": "<h1>The storm</h1><p>Wind.</p>"})
DOCX = made.docx(made.paragraph("Crew", "H2") + made.paragraph("Marta."))


@pytest.fixture(autouse=True)
def _nothing_is_left(settings: Settings) -> Iterator[None]:
    yield
    assert uploads_in(settings.spool) == []
    assert list(settings.spool.iterdir()) == []


def make(client: Client, content: bytes, mime: str = "application/octet-stream", **params: str) -> Any:
    return client("POST", "/v1/pots/book", content=content, headers={"Content-Type": mime}, params=params)


@pytest.mark.parametrize(
    ("content", "mime", "params", "text", "parts"),
    [
        (
            PDF,
            "application/pdf",
            {},
            "Page one has\ntwo lines.\n\nThe second page.\n\n",
            ["page 1", "page 2"],
        ),
        (
            PDF,
            "text/plain",
            {"title": "a"},
            "Page one has\ntwo lines.\n\nThe second page.\n\n",
            ["page 1", "page 2"],
        ),
        (BOOK, "application/epub+zip", {}, "The storm\n\nWind.\n\n", ["The storm"]),
        (DOCX, "application/octet-stream", {}, "Crew\n\nMarta.\n\n", ["Crew"]),
        (b"<h1>Ship</h1><p>It sails.", "text/html", {}, "Ship\n\nIt sails.\n\n", ["Ship"]),
        (
            b"<h1>Ship</h1><p>It sails.",
            "text/plain",
            {"title": "ship.html"},
            "Ship\n\nIt sails.\n\n",
            ["Ship"],
        ),
    ],
)
def test_a_document_is_read_as_its_text(
    client: Client,
    scheduler: FakeScheduler,
    content: bytes,
    mime: str,
    params: dict[str, str],
    text: str,
    parts: list[str],
) -> None:
    got = make(client, content, mime, **params)
    assert got.status_code == 201, got.text
    (request,) = scheduler.requests
    assert request.bytes == len(text.encode()) == got.json()["source_bytes"]
    assert request.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert [part.name for part in request.parts] == parts
    assert sum(part.length for part in request.parts) == len(text)


def test_a_text_stays_as_it_is(client: Client, scheduler: FakeScheduler) -> None:
    page = b"<!doctype html><p>as it is"
    assert make(client, page, "text/plain").status_code == 201
    assert make(client, b"# Crew\nMarta", "text/plain", title="notes.md", replace="true").status_code == 201
    assert make(client, b"words", "text/plain", title="report.pdf", replace="true").status_code == 201
    first, second, third = scheduler.requests
    assert (first.kind, first.parts, first.bytes) == ("text", [], len(page))
    assert (second.kind, second.parts) == ("markdown", [])
    assert (third.kind, third.parts) == ("text", [])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (made.pdf([[]], "0 0 9 9 re f"), "the upload has no text in it: it is scanned or drawn"),
        (made.locked_pdf([["x"]], "secret"), "the upload has a password: save a copy without one"),
        (b"%PDF-1.4 rubbish", "the upload is damaged"),
        (made.zipped({"word/document.xml": bytes(30 * 2**20)}), "the upload is a zip bomb, or no document"),
        (
            made.zipped({"xl/workbook.xml": "x"}),
            "the upload is a spreadsheet (XLSX): save it as PDF or as text",
        ),
        (b"PK\x03\x04 rubbish", "the upload is damaged (File is not a zip file)"),
        (b"\x89PNG\r\n", "the upload is a picture (PNG)"),
        (
            bytes(9),
            "the upload is binary, not text: byte 0 is NUL: give text, Markdown, HTML, PDF, DOCX or EPUB",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(client: Client, content: bytes, says: str) -> None:
    got = make(client, content)
    assert got.status_code == 400
    assert got.json()["error"]["message"].startswith(says)
    assert "iconv" not in got.text


def test_a_conversion_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "CONVERSION", Limits(seconds=1))
    got = make(client, b"<p>" + b"<b>x" * 2_000_000, "text/html")
    assert got.status_code == 400
    assert got.json()["error"]["message"].startswith("the upload takes more than 1 s to convert")


def test_passages_of_an_uploaded_pdf_name_their_page(tmp_path: Path) -> None:
    pages = [
        [f"Day {day}: rain fell on the old harbour, line {line}." for line in range(12)] for day in range(8)
    ]
    pages[5][3] = "Ottilie kept a raven in the attic."
    with serving(tmp_path) as server:
        got = server.client()("POST", "/v1/pots/book?title=log.pdf", content=made.pdf(pages))
        assert got.status_code == 201, got.text
        passages = server.ask(pot="book")["passages"]
        (found,) = [passage for passage in passages if "raven" in passage["text"]]
        assert found["source"] == "log.pdf, page 6"
        assert found["place"].startswith("log.pdf, page 6, characters ")
