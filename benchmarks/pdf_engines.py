"""PDFium and pypdf on the same PDF, and what a process of its own costs: `python benchmarks/pdf_engines.py`.

Prints one JSON document. The PDF, 100 pages of a page of the documentation, is made by matplotlib.
"""

from __future__ import annotations

import io
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pypdf
import pypdfium2
from matplotlib import rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from infinipot.text.documents import Finder

PAGES, LINES, WIDTH = 100, 60, 95
TEXT = Path(__file__).parents[1] / "docs" / "how-it-works.md"


def made() -> bytes:
    """A PDF whose letters are those of a font, as word processors write them."""
    lines = [line[:WIDTH].replace("$", "") for line in TEXT.read_text("utf-8").splitlines()[:LINES]]
    out = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}), PdfPages(out) as pdf:
        for _ in range(PAGES):
            page = Figure(figsize=(8, 11))
            page.text(0.05, 0.05, "\n".join(lines), fontsize=8)
            pdf.savefig(page)
    return out.getvalue()


def timed(read: Any) -> dict[str, Any]:
    started = time.perf_counter()
    words = len(read().split())
    return {"seconds": round(time.perf_counter() - started, 2), "words": words}


def main() -> None:
    data = made()

    def pdfium() -> str:
        with pypdfium2.PdfDocument(data) as document:
            return "\n".join(page.get_textpage().get_text_bounded() for page in document)

    def plain() -> str:
        return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages)

    def apart(name: str, content: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(content)
            return "".join(Finder().find([str(path)]).pieces())

    rows = {
        "pdfium": timed(pdfium),
        "pypdf": timed(plain),
        "pdfium in a process of its own": timed(lambda: apart("a.pdf", data)),
        "one short page of HTML in a process of its own": timed(lambda: apart("a.html", b"<p>Words.")),
    }
    about = {"pages": PAGES, "pypdfium2": version("pypdfium2"), "pypdf": version("pypdf")}
    print(json.dumps({**about, "machine": platform.machine(), "rows": rows}, indent=2, default=str))


if __name__ == "__main__":
    main()
