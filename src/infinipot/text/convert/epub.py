"""EPUB to text: its chapters in the order of its spine, named by its table of contents and their headings."""

import posixpath
from collections.abc import Iterator
from typing import BinaryIO, cast
from urllib.parse import unquote

from infinipot.errors import InputError
from infinipot.text.convert import html
from infinipot.text.convert.outline import LOWEST, Outline
from infinipot.text.convert.zipped import Zip
from infinipot.text.files import BLOCK

_CONTAINER, _RIGHTS = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


class Tags(html.Markup):
    """Every element of a small XML file with its attributes and the text right after its start."""

    def __init__(self, data: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(data)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self.found.append((tag.rpartition(":")[2], {name: value or "" for name, value in attrs}, []))

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self.found:
            self.found[-1][2].append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a name."""
        return [attributes for name, attributes, _ in self.found if name == tag]


def convert(book: Zip) -> Iterator[str]:
    """Yield the text of a book, chapter by chapter."""
    where = next((one.get("full-path", "") for one in _tags(book, _CONTAINER).all("rootfile")), "")
    package = _tags(book, where)
    items = {one.get("id", ""): one for one in package.all("item")}
    pages = [items[one["idref"]] for one in package.all("itemref") if one.get("idref") in items]
    spine = [_at(where, one.get("href", "")) for one in pages if one.get("media-type") in _PAGES]
    locked = _locked(book)
    if locked.intersection(spine):
        raise InputError(f"{book.document} is locked (DRM)", remedy="give a copy that is not")
    titles = _contents(book, where, package)
    for number, page in enumerate(spine, 1):
        with book.opened(page) as stream:
            known = Outline(titles.get(page, ""), 0)
            outline = known if known.name else Outline(f"part {number}", LOWEST)
            yield from html.convert(cast("BinaryIO", stream), book.document, outline)


def _tags(book: Zip, member: str) -> Tags:
    with book.opened(member) as stream:
        return Tags(stream.read(64 * BLOCK).decode("utf-8", "replace"))


def _at(where: str, address: str) -> str:
    """Return the member that an address in another member means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(where), unquote(address.partition("#")[0])))


def _locked(book: Zip) -> set[str]:
    """Return the members that are encrypted; fonts often are, which does not matter."""
    if _RIGHTS not in book.names:
        return set()
    return {unquote(one.get("uri", "")) for one in _tags(book, _RIGHTS).all("cipherreference")}


def _contents(book: Zip, where: str, package: Tags) -> dict[str, str]:
    """Return the titles of chapters by the members they begin, from either kind of table of contents."""
    titles: dict[str, str] = {}
    for item in package.all("item"):
        listed = "nav" in item.get("properties", "").split() or item.get("media-type", "").endswith("ncx+xml")
        if not listed or (member := _at(where, item.get("href", ""))) not in book.names:
            continue
        for address, text in _entries(_tags(book, member)):
            titles.setdefault(_at(member, address), text)
    return titles


def _entries(contents: Tags) -> Iterator[tuple[str, str]]:
    """Yield the addresses and titles of a table of contents: `a` around text, or `content` after `text`."""
    address = text = ""
    for tag, attributes, words in contents.found:
        if tag in ("a", "navpoint"):
            address, text = attributes.get("href", ""), ""
        elif tag == "content":
            address = attributes.get("src", "")
        text = text or " ".join("".join(words).split())
        if address and text:
            yield address, text
            address = ""
