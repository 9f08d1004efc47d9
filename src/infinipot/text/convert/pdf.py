"""PDF to text, page by page, by PDFium; no page stays in memory."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from infinipot.common.extras import needed_for
from infinipot.errors import InputError
from infinipot.text.convert.outline import Note, clean
from infinipot.text.files import named

_PASSWORD = 4  # PDFium's number for a password that is missing or wrong; an empty one was tried
_AGAIN = "fetch it again, or save it again from a viewer"
_OCR = "it is scanned or drawn: make its pictures text first (OCR, such as `ocrmypdf IN.pdf OUT.pdf`)"


def convert(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the text of every page, then what a person must know of pages that have none."""
    with needed_for("a PDF", "files"):
        import pypdfium2
    try:
        document = pypdfium2.PdfDocument(stream)
        count = len(document)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", 0) == _PASSWORD:
            raise InputError(f"{name} has a password", remedy="save a copy without one") from error
        raise InputError(f"{name} is damaged, or not whole", remedy=_AGAIN) from error
    pictures, damaged, found = 0, 0, False
    for index in range(count):
        try:
            text, drawn = _page(document, index)
        except pypdfium2.PdfiumError:
            damaged += 1
            continue
        if text.strip():
            found = True
            yield from named([f"{text.strip()}\n\n"], f"page {index + 1}")
        pictures += drawn and not text.strip()
    if not found:
        if damaged == count:
            raise InputError(f"{name} is damaged: none of its pages can be opened", remedy=_AGAIN)
        raise InputError(f"{name} has no text in it", remedy=_OCR)
    if missing := pictures + damaged:
        of = f"{missing:,} of {count:,} pages of {name} have no text in them and are not read"
        yield Note(f"{of}: pictures want OCR first" if pictures else f"{of}: they are damaged")


def _page(document: Any, index: int) -> tuple[str, bool]:
    """Return the text of a page, and whether something is drawn on it."""
    page = document[index]
    try:
        words = page.get_textpage()
        try:
            text = words.get_text_bounded()
        finally:
            words.close()
        # For a hyphen that only the end of a line put into a word PDFium gives U+0002, which `clean` drops.
        return clean(text), any(True for _ in page.get_objects(max_depth=2))
    finally:
        page.close()
