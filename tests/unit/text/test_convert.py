"""Documents to text: pages, chapters and sections by name, and one line for everything that is no text."""

from __future__ import annotations

import io
import random
import re
import resource
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_documents as made
from infinipot.errors import ConfigError, InputError
from infinipot.text.convert import isolated, kinds, markdown, run, zipped
from infinipot.text.convert.outline import PIECE, Note
from infinipot.text.documents import Finder
from infinipot.text.files import Piece

SCAN = "0 0 612 792 re f"
LINES = [["Page one has", "two lines."], [], ["The third page."]]


def parts(pieces: Iterable[str]) -> list[tuple[str, str]]:
    """The named parts of a text, joined."""
    found: list[tuple[str, str]] = []
    for piece in pieces:
        if isinstance(piece, Note):
            continue
        if isinstance(piece, Piece):
            found.append((piece.source, ""))
        name, text = found.pop()
        found.append((name, text + piece))
    return found


def converted(kind: str, data: bytes, name: str = "it") -> list[tuple[str, str]]:
    return parts(run.pieces(kind, io.BytesIO(data), name))


def refused(data: bytes, name: str, tmp_path: Path) -> str:
    """What is said of a file, as a command reads it."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        Finder().find([str(path)])
    said = str(caught.value)
    assert "\n" not in said
    assert "iconv" not in said
    assert name in said
    return said.replace(f"{tmp_path}/", "")


# PDF -----------------------------------------------------------------------------


def test_a_pdf_is_its_pages() -> None:
    assert converted("pdf", made.pdf(LINES)) == [
        ("page 1", "Page one has\ntwo lines.\n\n"),
        ("page 3", "The third page.\n\n"),
    ]


def test_a_word_that_a_line_cut_in_two_is_whole() -> None:
    assert (
        converted("pdf", made.pdf([["It is an en-", "coding of words."]]))[0][1]
        == "It is an encoding of words.\n\n"
    )


def test_an_empty_password_opens_a_pdf_and_another_is_asked_for(tmp_path: Path) -> None:
    assert converted("pdf", made.locked_pdf(LINES, ""))[1] == ("page 3", "The third page.\n\n")
    locked = refused(made.locked_pdf(LINES, "secret"), "locked.pdf", tmp_path)
    assert locked == "locked.pdf has a password: save a copy without one"


def test_a_scanned_pdf_is_told_and_pages_of_it_are_counted(tmp_path: Path) -> None:
    said = refused(made.pdf([[], []], SCAN), "scan.pdf", tmp_path)
    assert said.startswith("scan.pdf has no text in it: it is scanned or drawn: make its pictures text first")
    notes = [
        one for one in run.pieces("pdf", io.BytesIO(made.pdf(LINES, SCAN)), "it") if isinstance(one, Note)
    ]
    assert notes == ["1 of 3 pages of it have no text in them and are not read: pictures want OCR first"]


@pytest.mark.parametrize("data", [b"%PDF-1.4\ngarbage", made.pdf(LINES)[:120], b"%PDF-1.7"])
def test_a_damaged_pdf_is_refused(data: bytes, tmp_path: Path) -> None:
    assert refused(data, "bad.pdf", tmp_path).startswith("bad.pdf is damaged")


def test_a_pdf_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(ConfigError, match=r"a PDF needs more packages: run pip install '\.\[files\]'"):
        converted("pdf", made.pdf(LINES))


# DOCX ----------------------------------------------------------------------------


def test_a_docx_has_sections_tables_and_notes() -> None:
    table = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>".format(
        made.paragraph("rope"), made.paragraph("12 m")
    )
    deleted = "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:t>kept</w:t></w:r></w:p>"
    body = (
        made.paragraph("Before.")
        + made.paragraph("The voyage", "berschrift1")
        + made.paragraph("Stores", "H2")
        + "<w:p><w:r><w:t>A</w:t><w:tab/><w:t>B</w:t><w:br/><w:t>C</w:t></w:r></w:p>"
        + table
        + deleted
        + made.paragraph("Crew", "H2")
        + made.paragraph("Marta &amp; Jon.")
    )
    notes = f'<w:footnote w:id="1">{made.paragraph("A footnote.")}</w:footnote>'
    assert converted("zip", made.docx(body, footnotes=notes)) == [
        ("", "Before.\n\n"),
        ("The voyage > Stores", "The voyage\n\nStores\n\nA\tB\nC\n\nrope\t12 m\nkept\n\n"),
        ("The voyage > Crew", "Crew\n\nMarta & Jon.\n\n"),
        ("footnotes", "A footnote.\n\n"),
    ]


def test_what_a_docx_says_twice_is_read_once() -> None:
    both = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice>{made.paragraph('once')}</mc:Choice><mc:Fallback>{made.paragraph('once')}</mc:Fallback>"
        "</mc:AlternateContent>"
    )
    assert converted("zip", made.docx(both + made.paragraph("after"))) == [("", "once\n\nafter\n\n")]


def test_entities_of_a_docx_are_never_expanded(tmp_path: Path) -> None:
    lol = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    bomb = made.zipped({"word/document.xml": f"{lol}<w:document {made.W}>&b;</w:document>"})
    assert "it declares entities" in refused(bomb, "laughs.docx", tmp_path)
    styled = made.zipped({"word/document.xml": made.paragraph("x"), "word/styles.xml": f"{lol}<x>&b;</x>"})
    assert "word/styles.xml: it declares entities" in refused(styled, "styled.docx", tmp_path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"nothing of the kind", "bad.docx is no DOCX, or a damaged one: open it and save it again"),
        (made.docx(made.paragraph("x"))[:200], "bad.docx is damaged (File is not a zip file)"),
        (made.zipped({"word/document.xml": "<w:document"}), "bad.docx is damaged (word/document.xml: "),
        (made.docx(""), "bad.docx has no text in it"),
    ],
)
def test_a_damaged_docx_is_refused(data: bytes, says: str, tmp_path: Path) -> None:
    assert refused(data, "bad.docx", tmp_path).startswith(says)


def test_a_member_whose_bytes_were_changed_is_noticed(tmp_path: Path) -> None:
    data = bytearray(made.docx(made.paragraph("some words to be read " * 50)))
    at = data.index(b"word/document.xml") + 40
    data[at : at + 8] = bytes(8)
    assert "is damaged (" in refused(bytes(data), "changed.docx", tmp_path)


# EPUB ----------------------------------------------------------------------------


def test_an_epub_has_its_chapters_in_reading_order() -> None:
    book = made.epub(
        {
            "b%20one.xhtml": "<p>It began.</p>",
            "a.xhtml": "<h1>The storm</h1><p>Wind &eacute;t rain.</p><h2>Night</h2><p>Dark.</p>",
            "z.xhtml": "<p>No heading.</p>",
        },
        {"b%20one.xhtml": "Prologue", "a.xhtml": "The storm"},
    )
    data = io.BytesIO(book)
    with zipfile.ZipFile(data) as old:  # the name in the zip file is not quoted
        book = made.zipped({name.replace("%20", " "): old.read(name) for name in old.namelist()})
    assert converted("zip", book) == [
        ("Prologue", "It began.\n\n"),
        ("The storm", "The storm\n\nWind ét rain.\n\n"),
        ("The storm > Night", "Night\n\nDark.\n\n"),
        ("part 3", "No heading.\n\n"),
    ]


def test_a_newer_table_of_contents_names_chapters_too() -> None:
    nav = '<nav><ol><li><a href="x.xhtml"><span>The ship</span></a></li></ol></nav>'
    book = made.epub({"x.xhtml": "<p>Words.</p>", "nav.xhtml": nav})
    with zipfile.ZipFile(io.BytesIO(book)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    package = members["OEBPS/book.opf"].replace(b'href="nav.xhtml"', b'href="nav.xhtml" properties="nav"')
    found = converted("zip", made.zipped({**members, "OEBPS/book.opf": package}))
    assert found[0] == ("The ship", "Words.\n\n")


def test_a_locked_book_is_refused_and_locked_fonts_do_not_matter(tmp_path: Path) -> None:
    def locked(member: str) -> bytes:
        said = f'<encryption><CipherReference URI="{member}"/></encryption>'
        return made.epub({"x.xhtml": "<p>Words.</p>"}, **{"META-INF/encryption.xml": said})

    assert refused(locked("OEBPS/x.xhtml"), "drm.epub", tmp_path).startswith("drm.epub is locked (DRM)")
    assert converted("zip", locked("OEBPS/font.ttf")) == [("part 1", "Words.\n\n")]


def test_a_book_that_names_what_it_has_not_is_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(made.epub({"x.xhtml": "<p>Words.</p>"}))) as old:
        kept = {name: old.read(name) for name in old.namelist() if "x.xhtml" not in name}
    assert refused(made.zipped(kept), "less.epub", tmp_path).startswith(
        "less.epub is damaged: it has no OEBPS/x.xhtml"
    )


# HTML and Markdown ---------------------------------------------------------------

PAGE = b"""<!doctype html><head><title>T</title><style>p {}</style><script>var x = "<p>no</p>";</script>
<meta charset=utf-8><body><nav>Home</nav>
<h1>The <b>ship</b><a href=#ship>&para;</a></h1><p>It sailed
   on  <i>Monday</i>.<br>At noon.<h2>Crew</h2><ul><li>Marta<li>Jon</ul>
<pre>a
  b</pre><table><tr><th>name<th>age<tr><td>Jon<td>44</table>&lt;end&gt; \x1b[31m"""


def test_a_page_is_its_words_in_sections() -> None:
    assert converted("html", PAGE) == [
        ("", "Home\n\n"),
        ("The ship", "The ship\n\nIt sailed on Monday.\nAt noon.\n\n"),
        ("The ship > Crew", "Crew\n\n- Marta\n- Jon\n\na\n  b\n\nname\tage\nJon\t44\n\n<end> [31m\n\n"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        '<meta charset="iso-8859-1"><p>Café – “x”'.encode("cp1252"),
        "<p>Café – “x”".encode("cp1252"),
        "\ufeff<p>Café – “x”".encode(),
        "<p>Café – “x”".encode("utf-16"),
        '<meta charset="no-such-thing"><p>Café – “x”'.encode(),
        '<meta charset="rot13"><p>Café – “x”'.encode(),
        '<meta charset="idna"><p>Café – “x”'.encode(),
        '<meta charset="utf-7"><p>Café – “x”'.encode(),
        '<?xml version="1.0" encoding="UTF-8"?><p>Café – “x”</p>'.encode(),
    ],
)
def test_a_page_in_any_encoding(data: bytes) -> None:
    assert converted("html", data) == [("", "Café – “x”\n\n")]


@given(
    st.lists(st.sampled_from(["<p>", "a b", "<script>", "</script>", "<h1>", "</h2>", "&amp", "<", "<!--"]))
)
def test_a_page_comes_out_the_same_however_it_is_cut(words: list[str]) -> None:
    from infinipot.text.convert.html import Page

    def text(cuts: Iterable[str]) -> str:
        page = Page()
        return "".join([piece for cut in cuts for piece in page.take(cut)] + list(page.end()))

    whole = "".join(words)
    assert text([whole[:7], whole[7:]]).split() == text([whole]).split()


MARKDOWN = """intro

# Title

## One ##
text
```
# no heading
```
### Deep
more
Two
===
"""


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_markdown_stays_as_it_is_in_sections(step: int) -> None:
    cut = [MARKDOWN[at : at + step] for at in range(0, len(MARKDOWN), step)]
    found = parts(markdown.sections(cut))
    assert "".join(text for _, text in found) == MARKDOWN
    assert [name for name, _ in found] == ["", "Title > One", "Title > One > Deep"]
    assert found[1][1].startswith("# Title\n\n## One ##\ntext\n```\n# no heading")


SLOW_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*\r?\n?")  # quadratic in spaces


@given(st.text("#  \ta", max_size=12), st.sampled_from(["", "\n", "\r\n"]))
def test_headings_are_those_of_the_slow_and_obvious_pattern(line: str, end: str) -> None:
    slow = SLOW_HEADING.fullmatch(line + end)
    (name, text), *more = parts(markdown.sections([f"{line}{end}"])) or [("", "")]
    assert (name, text, more) == (" ".join(slow[2].split()) if slow else "", line + end, [])


def test_no_line_takes_markdown_long() -> None:
    started = time.monotonic()
    for line in (f"# x{' ' * 50_000}a\n", f"# x{' #' * 25_000}a\n", f"# x {'#' * 50_000}a\n"):
        assert "".join(markdown.sections([line] * 4)) == line * 4
    assert time.monotonic() - started < 5


def test_headings_in_a_row_are_given_out_as_they_come() -> None:
    started = time.monotonic()
    found = list(markdown.sections(repeat("# a\n## b\n" * 100, 1_000)))
    assert "".join(found) == "# a\n## b\n" * 100_000
    assert max(map(len, found)) <= PIECE + 10
    assert time.monotonic() - started < 10


def test_markdown_takes_bounded_memory() -> None:
    longest = max(map(len, markdown.sections(repeat("x" * 5_000, 200))))
    assert longest < 3 * 65_536


# What cannot be read -------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(9), "is a picture (PNG): make its words text first (OCR)"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "is a picture (JPEG): make its words text first (OCR)"),
        (b"\x1f\x8b\x08abc", "is compressed (gzip): unpack it first"),
        (
            b"\xd0\xcf\x11\xe0" + bytes(9),
            "is an old Office file, or one with a password: save it",
        ),
        (b"{\\rtf1 hello}", "is rich text (RTF): save it as DOCX or PDF"),
        (b"\0\0\0 ftypisom" + bytes(9), "is a film or sound (MP4)"),
        (b"ID3\x03\0\0" + bytes(9), "is a sound (MP3): write down what is said first"),
        (b"RIFF\x10\0\0\0WAVE", "is a picture, sound or film (RIFF)"),
        (b"BZh91AY&SY\x01\xff", "is compressed (bzip2): unpack it first"),
        (b"GIF89a\x10\0\x10\0", "is a picture (GIF)"),
        (made.zipped({"xl/workbook.xml": "x"}), "is a spreadsheet (XLSX): save it as PDF or as text"),
        (made.zipped({"ppt/presentation.xml": "x"}), "is a presentation (PPTX): save it as PDF or as text"),
        (made.zipped({"content.xml": "x"}), "is an OpenDocument file (ODT): save it as PDF or as text"),
        (made.zipped({"a.txt": "x"}), "is a zip archive: unpack it, and give the folder"),
        (bytes(20), "is binary, not text: byte 0 is NUL: give text, Markdown, HTML, PDF, DOCX or EPUB"),
        (
            b"\x01\x02\xff\xfe\x80",
            "is binary, not text (byte 2): give text, Markdown",
        ),
    ],
)
def test_other_files_are_refused_by_what_they_are(data: bytes, says: str, tmp_path: Path) -> None:
    assert refused(data, "some.bin", tmp_path).startswith(f"some.bin {says}")


def test_a_file_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    said = refused(b"just words", "words.pdf", tmp_path)
    assert said == "words.pdf is no PDF, or a damaged one: open it and save it again"
    assert kinds.kind_of(b"<!DOCTYPE html><p>", "page") == "html"
    assert kinds.kind_of(b"<!DOCTYPE html><p>", "page.txt", "text/plain") == "text"
    assert kinds.kind_of(b"# x", "readme", "text/markdown") == "markdown"
    assert kinds.kind_of(made.pdf(LINES)[:1024], "no-suffix") == "pdf"


@pytest.mark.parametrize(
    "text",
    [
        "ID3 tags, told in full",
        "RIFF is a format of files.",
        "BZh, said the bee.\n\n\x1b[1mBzz\x1b[0m",
        "GIF89a is a picture",
        "Rar! Rar! said the crow",
        "Softftyp",
        "A PDF begins with %PDF-1.4, as they say: é.",
    ],
)
def test_a_text_may_begin_with_the_letters_of_another_kind(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text(text, "utf-8")
    assert "".join(Finder().find([str(path)]).pieces()) == text


@pytest.mark.parametrize("before", [b"\n", b"\xef\xbb\xbf \r\n", b"From: x\n\n\0", b"From: x\n\n\xe2\xe3"])
def test_a_pdf_may_have_something_in_front(before: bytes) -> None:
    assert kinds.kind_of(before + made.pdf(LINES)[:900], "some") == "pdf"
    assert kinds.kind_of(b"From: x\n\n%PDF-1.4\n", "some.pdf") == "pdf"
    assert kinds.kind_of(b"From: x\n\n%PDF-1.4\n", "some", "application/pdf") == "pdf"
    assert kinds.kind_of("A %PDF- is ñ".encode()[:-1], "some") == "text"  # cut within a letter


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = made.zipped({"word/document.xml": bytes(64 * 2**20)})
    assert len(bomb) < 100_000
    tracemalloc.start()
    said = refused(bomb, "bomb.docx", tmp_path)
    with pytest.raises(InputError):
        converted("zip", bomb)
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()
    assert said.startswith("bomb.docx is a zip bomb, or no document: word/document.xml would unpack to 67 MB")


def test_many_members_or_much_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    book = made.epub({f"{n}.xhtml": f"<p>{n}</p>" * 9 for n in range(9)})
    monkeypatch.setattr(zipped, "MOST_BYTES", 800)
    with pytest.raises(InputError, match="would unpack to"):
        converted("zip", book)
    monkeypatch.setattr(zipped, "MOST_FILES", 8)
    with pytest.raises(InputError, match="it has 13 files in it, more than 8"):
        converted("zip", book)
    monkeypatch.setattr(run, "MOST_TEXT", 10)
    with pytest.raises(InputError, match="of text in it: split it"):
        run.write("html", io.BytesIO(b"<p>some more than that"), "it", io.BytesIO(), lambda _: None)


# The process ---------------------------------------------------------------------


def apart_from(data: bytes, tmp_path: Path, kind: kinds.Kind = "pdf", **limits: int) -> list[isolated.Part]:
    (tmp_path / "in").write_bytes(data)
    with (tmp_path / "in").open("rb") as stream, (tmp_path / "out").open("wb") as out:
        return isolated.convert(kind, stream, "it", out, isolated.Limits(**limits))


def test_a_process_of_its_own_writes_the_text_and_tells_its_parts(tmp_path: Path) -> None:
    assert apart_from(made.pdf(LINES), tmp_path) == [isolated.Part("page 1", 25), isolated.Part("page 3", 17)]
    assert (tmp_path / "out").read_text() == "Page one has\ntwo lines.\n\nThe third page.\n\n"


def test_a_conversion_that_wants_too_much_is_ended(tmp_path: Path) -> None:
    page = b"<p>" + b"<b>x" * 2_000_000
    with pytest.raises(InputError, match="it takes more than 1 s to convert: split it"):
        apart_from(page, tmp_path, "html", seconds=1)
    with pytest.raises(InputError, match=r"it cannot be converted within 0.1 GB of memory"):
        apart_from(b"<!--" + b"x" * 16_000_000, tmp_path, "html", memory=50 * 2**20)


def test_a_conversion_starts_within_lower_limits_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>fine")
    code = "from infinipot.text.documents import Finder; print(*Finder().find(['page.html']).pieces())"
    shell = f'ulimit -t 300 && ulimit -v 1900000 && exec "{sys.executable}" -P -c "{code}"'
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.stdout.strip() == b"fine", done.stderr


def test_limits_that_the_system_does_not_know_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, tuple[int, int]]] = []

    def refusing(kind: int, limits: tuple[int, int]) -> None:
        asked.append((kind, limits))
        raise ValueError if kind == resource.RLIMIT_AS else OSError  # macOS bounds no memory

    monkeypatch.setattr(resource, "setrlimit", refusing)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run.bound(10, 2**20)
    assert asked == [
        (resource.RLIMIT_CPU, (10, 15)),
        (resource.RLIMIT_AS, (2**20, 2**20)),
        (resource.RLIMIT_CORE, (0, 0)),
    ]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5, 12))
    run.bound(10, 2**20)
    assert [limits for _, limits in asked[3:]] == [(10, 12), (12, 12), (0, 0)]


def test_parts_are_no_more_than_a_number_and_the_last_has_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_PARTS", 3)
    told: list[object] = []
    out, page = io.BytesIO(), b"".join(b"<h1>%d</h1><p>x" % number for number in range(9))
    run.write("html", io.BytesIO(page), "it", out, told.append)
    assert told == [["0", 6], ["1", 6], ["2", 42]]
    assert len(out.getvalue()) == 54
    assert not hasattr(isolated.Part("", 0), "__dict__")  # of which a document has many


def test_a_long_document_takes_bounded_memory(tmp_path: Path) -> None:
    """More text than the process may have memory, were it all held at once."""
    words = random.Random(0).choices(["sea", "lamp", "calm", "night", "harbour", "stowaway"], k=60_000)
    body = made.paragraph(" ".join(words)) * 90
    assert len(body) > 30 * 2**20
    (part,) = apart_from(made.docx(body), tmp_path, "zip", memory=64 * 2**20)
    assert part.length > 30 * 2**20
    pages = [[f"Page {page}, line {line} of a long book." for line in range(40)] for page in range(300)]
    assert len(apart_from(made.pdf(pages), tmp_path, memory=128 * 2**20)) == 300


def test_a_program_in_the_working_folder_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "zipfile.py").write_text("raise SystemExit('run!')")
    (tmp_path / "page.html").write_text("<p>fine")
    code = "from infinipot.text.documents import Finder; print(*Finder().find(['page.html']).pieces())"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.stdout.strip() == b"fine", done.stderr
