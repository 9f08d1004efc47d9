"""What is true of every document, however damaged: text in named parts, or one line that refuses it."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_documents as made
from infinipot.errors import InputError
from infinipot.text.convert import markdown, run

TABLE = f"<w:tbl><w:tr><w:tc>{made.paragraph('a')}</w:tc></w:tr></w:tbl>"
MEMBERS = {"a.xhtml": "<h1>The storm</h1><p>Wind.</p>", "b.xhtml": "<p>Rain"}
SOUND = {
    "pdf": made.pdf([["Page one", "two"], ["x"]]),
    "docx": made.docx(made.paragraph("Crew", "H2") + made.paragraph("Marta " * 50) + TABLE),
    "epub": made.epub(MEMBERS, {"a.xhtml": "Storm"}),
    "html": b"<!doctype html><h1>a</h1><table><tr><td>x<td>y</table><pre>q\n w</pre><![CDATA[z]]><ul><li>z",
}
KINDS = {"docx": "zip", "epub": "zip"}
Edit = tuple[float, int, bytes]  # where, how much goes, what comes instead
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=20)), min_size=1, max_size=8
)


def damaged(data: bytes, edits: list[Edit]) -> bytes:
    for where, length, new in edits:
        at = int(where * len(data))
        data = data[:at] + new + data[at + length :]
    return data


def read(kind: str, data: bytes) -> None:
    said = "it is fine"
    try:
        for piece in run.pieces(KINDS.get(kind, kind), io.BytesIO(data), "it"):
            piece.encode()
            assert not set(piece) & {"\0", "\x1b", "\r", "\ufeff"}
            assert "\n" not in getattr(piece, "source", "")
    except InputError as error:
        said = str(error)
    assert said.startswith("it ")
    assert "\n" not in said


@pytest.mark.parametrize("kind", SOUND)
@given(edits=EDITS)
@settings(max_examples=150)
def test_a_damaged_document_is_text_or_one_line(kind: str, edits: list[Edit]) -> None:
    read(kind, damaged(SOUND[kind], edits))


@given(member=st.sampled_from(["META-INF/container.xml", "OEBPS/book.opf", "OEBPS/toc.ncx"]), edits=EDITS)
@settings(max_examples=150)
def test_a_sound_zip_file_of_damaged_parts_is_text_or_one_line(member: str, edits: list[Edit]) -> None:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(SOUND["epub"])) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    read("epub", made.zipped({**parts, member: damaged(parts[member], edits)}))


@given(st.lists(st.text("# ab`~\n\r\u2028-", max_size=12)))
def test_markdown_in_sections_is_the_same_text(pieces: list[str]) -> None:
    assert "".join(markdown.sections(pieces)) == "".join(pieces)
