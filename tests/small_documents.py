"""Small real documents, made on the spot: PDF, DOCX and EPUB with the least that such files have."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = (
    '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="H2"><w:name w:val="Heading 2"/></w:style>'
)
CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)


def pdf(pages: Sequence[Sequence[str]], drawn: str = "") -> bytes:
    """A PDF with these lines on its pages; a page without lines has the drawing alone."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects.append(font)
    kids = []
    for lines in pages:
        said = " ".join(f"({line}) Tj 0 -16 Td" for line in lines)
        content = f"BT /F1 12 Tf 72 720 Td {said} ET" if lines else drawn
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
        objects.append(page + "/Resources << /Font << /F1 3 0 R >> >> >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}"
    end += f"trailer\n<< /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + end.encode()


def locked_pdf(pages: Sequence[Sequence[str]], password: str) -> bytes:
    """A PDF that opens with a password."""
    import pypdf

    writer, out = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(pages))), io.BytesIO()
    writer.encrypt(password, "owner", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """A zip file of these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name, text)
    return out.getvalue()


def paragraph(text: str, style: str = "") -> str:
    kind = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{kind}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, **more: str) -> bytes:
    """A DOCX file with this body; further members by the names of their parts."""
    parts = {"document": f"<w:body>{body}</w:body>", "styles": STYLES, **more}
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            **{f"word/{name}.xml": f"<w:{name} {W}>{text}</w:{name}>" for name, text in parts.items()},
        }
    )


def epub(chapters: Mapping[str, str], contents: Mapping[str, str] | None = None, **more: str) -> bytes:
    """An EPUB book of chapters by file name; `contents` are titles of files in its table of contents."""
    items = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(chapters)
    )
    points = "".join(
        f'<navPoint><navLabel><text>{title}</text></navLabel><content src="{name}#top"/></navPoint>'
        for name, title in (contents or {}).items()
    )
    items += '<item id="toc" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = f"<package><manifest>{items}</manifest><spine toc='toc'>{spine}</spine></package>"
    pages = {f"OEBPS/{name}": f"<html><body>{body}</body></html>" for name, body in chapters.items()}
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "OEBPS/book.opf": package,
            "OEBPS/toc.ncx": f"<!DOCTYPE ncx><ncx><docTitle><text>Book</text></docTitle>{points}</ncx>",
            **pages,
            **more,
        }
    )
