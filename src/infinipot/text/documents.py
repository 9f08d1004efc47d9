"""What a person names as a text (files, folders, patterns, addresses, standard input) as documents to read.

Everything is looked at before any long work starts: documents are made text at once, into a temporary file
that is gone with the process; plain texts are read once for their errors, and stay where they are.
"""

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from infinipot.common.atomic_files import failing_to
from infinipot.errors import ConfigError, InfiniPotError, InputError
from infinipot.text.convert import isolated
from infinipot.text.convert.kinds import CONVERTED, HEAD, Kind, kind_of
from infinipot.text.convert.markdown import sections
from infinipot.text.convert.outline import placed
from infinipot.text.fetch import Bounds, fetch, is_address
from infinipot.text.files import BLOCK, blocks_of, check_regular, decoded, label, named, read_text, title
from infinipot.text.folders import files_of, is_pattern

STANDARD = "standard input"


@dataclass(frozen=True)
class Document:
    """One text with a name: its number of characters where that is known, and how it is read."""

    name: str
    characters: int | None
    pieces: Callable[[], Iterator[str]]


@dataclass(frozen=True)
class Documents:
    """Several documents as one text; where there are several, each begins with a line of its name."""

    all: Sequence[Document]

    @property
    def characters(self) -> int | None:
        """How long the text is; None where that is not known before all was read."""
        sizes = [one.characters for one in self.all]
        between = 2 * (len(sizes) - 1) + sum(len(self._lead(one)) for one in self.all)
        return None if None in sizes else sum(size or 0 for size in sizes) + between

    def pieces(self) -> Iterator[str]:
        """Yield the text; the first piece of each document, page, chapter or section knows its name."""
        for index, document in enumerate(self.all):
            yield from ["\n\n"] if index else []
            yield from placed(document.pieces(), document.name, self._lead(document))

    def _lead(self, document: Document) -> str:
        return f"File: {document.name}\n\n" if len(self.all) > 1 else ""


@dataclass
class Finder:
    """Finds the documents that names stand for, and makes them text."""

    standard: BinaryIO | None = None  # what `-` stands for
    addresses: Bounds | None = field(default_factory=Bounds)  # None where the web is not asked
    tell: Callable[[str], None] = lambda _: None  # hears what a person must know
    limits: isolated.Limits = field(default_factory=isolated.Limits)
    _scratch: IO[bytes] | None = None

    def find(self, names: Sequence[str]) -> Documents:
        """Return the documents of all names; what cannot be read is refused here."""
        return Documents([document for name in names for document in self._named(name)])

    def _named(self, name: str) -> Iterator[Document]:
        if name == "-" and self.standard is not None:
            yield Document(STANDARD, None, partial(self._standard, self.standard))
        elif is_address(name):
            yield self._fetched(name)
        elif is_pattern(name):
            yield from self._several(name)
        else:
            yield self._file(Path(name), title(name))

    def _several(self, name: str) -> Iterator[Document]:
        """Yield what can be read of a folder or pattern, and tell how much was left out."""
        found, refused = 0, []
        for path, shown in files_of(name):
            try:
                with failing_to(f"read {path}", kind=InputError):
                    empty = not path.stat().st_size
                if empty:
                    continue
                yield self._file(path, shown)
            except (InputError, ConfigError) as error:
                problem = str(error) if isinstance(error, ConfigError) else error.problem
                refused.append(label(problem, 400))
            found += 1
        if refused:
            if len(refused) == found:
                raise InputError(f"nothing in {label(name)} can be read, such as: {refused[0]}")
            count = f"{len(refused):,} of {found:,} files of {label(name)} are left out"
            self.tell(f"{count}{'' if len(refused) == 1 else ', such as'}: {refused[0]}")

    def _file(self, path: Path, shown: str) -> Document:
        check_regular(path)
        shown = label(shown)
        with failing_to(f"read {path}", kind=InputError), path.open("rb") as stream:
            kind = kind_of(stream.read(HEAD), label(str(path), 4096))
            if kind in CONVERTED:
                return self._converted(kind, cast("BinaryIO", stream), shown)
        characters = sum(map(len, read_text(path)))  # once, for all errors that it can raise
        return Document(shown, characters, lambda: in_sections(kind, read_text(path)))

    def _fetched(self, address: str) -> Document:
        if self.addresses is None:
            raise InputError("addresses of the web are not read here", remedy="give a file")
        name, scratch = label(address), self._scratch_end()
        with tempfile.TemporaryFile() as file:
            said = fetch(address, cast("BinaryIO", file), self.addresses)
            file.seek(0)
            kind = kind_of(file.read(HEAD), address.partition("?")[0], said.mime)
            file.seek(0)
            if kind in CONVERTED:
                return self._converted(kind, cast("BinaryIO", file), name)
            start, length = scratch.tell(), 0
            for text in decoded(blocks_of(cast("BinaryIO", file)), name, said.charset or "utf-8"):
                scratch.write(text.encode())
                length += len(text)
        whole = [isolated.Part("", length)]
        return Document(name, length, lambda: in_sections(kind, self._kept(start, whole)))

    def _converted(self, kind: Kind, stream: BinaryIO, name: str) -> Document:
        scratch = self._scratch_end()
        start = scratch.tell()
        try:
            parts = isolated.convert(kind, stream, name, cast("BinaryIO", scratch), self.limits, self.tell)
        except InfiniPotError:
            scratch.truncate(start)
            raise
        return Document(name, sum(part.length for part in parts), lambda: self._kept(start, parts))

    def _standard(self, stream: BinaryIO) -> Iterator[str]:
        """Yield the text of standard input, which may be a document too."""
        head = stream.read(BLOCK)
        kind = kind_of(head[:HEAD], STANDARD)
        if kind not in CONVERTED:
            yield from decoded(blocks_of(stream, head), STANDARD)
            return
        with tempfile.TemporaryFile() as file:
            for data in blocks_of(stream, head):
                file.write(data)
            file.flush()
            document = self._converted(kind, cast("BinaryIO", file), STANDARD)
        yield from document.pieces()

    def _scratch_end(self) -> IO[bytes]:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed with the finder
            weakref.finalize(self, self._scratch.close)
        self._scratch.seek(0, os.SEEK_END)
        return self._scratch

    def _kept(self, start: int, parts: Sequence[isolated.Part]) -> Iterator[str]:
        """Yield a text of the temporary file."""
        return in_parts(decoded(self._bytes(start), "the temporary file"), parts)

    def _bytes(self, at: int) -> Iterator[bytes]:
        assert self._scratch is not None
        while True:
            self._scratch.seek(at)
            if not (data := self._scratch.read(BLOCK)):
                return
            at += len(data)
            yield data


def documents(*names: str | os.PathLike[str], allow_private: bool = False) -> Iterator[str]:
    """Return the text of files, folders, patterns and addresses, for `reader.read(documents("report.pdf"))`.

    Everything is looked at before this returns; pages, chapters and sections become places of passages.
    """
    found = Finder(addresses=Bounds(private=allow_private)).find([os.fspath(name) for name in names])
    return found.pieces()


def stored(path: Path, kind: Kind, parts: Sequence[isolated.Part], title: str) -> Iterator[str]:
    """Yield the text of a file whose kind is known, or of a document that was made text, by a title."""
    text = read_text(path)
    return placed(in_parts(text, parts) if parts else in_sections(kind, text), title)


def in_sections(kind: Kind, pieces: Iterator[str]) -> Iterator[str]:
    """Yield a plain text; Markdown has sections."""
    return sections(pieces) if kind == "markdown" else pieces


def in_parts(pieces: Iterable[str], parts: Sequence[isolated.Part]) -> Iterator[str]:
    """Yield a text cut into its parts, the first piece of each with the part's name; what follows is left."""
    more, rest = iter(pieces), ""
    for part in parts:
        left = part.length
        while left and (rest := rest or next(more, "")):
            piece, rest, first = rest[:left], rest[left:], left == part.length
            left -= len(piece)
            yield from named([piece], part.name) if first and part.name else [piece]
