"""Documents that are zip files, DOCX and EPUB: bounded in size before anything is unpacked."""

import zipfile
from collections.abc import Iterator
from typing import IO, BinaryIO

from infinipot.errors import InputError
from infinipot.text.files import label

MOST_FILES = 20_000
MOST_BYTES = 512 * 2**20  # that a document's texts may have, unpacked
MOST_RATIO, SMALL = 200, 2**20  # how far a file of more bytes than that may shrink; text shrinks 3 to 30 fold
_AGAIN = "open it and save it again"
_OTHERS = (  # a file inside, what has it
    ("xl/workbook.xml", "a spreadsheet (XLSX)"),
    ("ppt/presentation.xml", "a presentation (PPTX)"),
    ("content.xml", "an OpenDocument file (ODT)"),
)


class Zip:
    """A zip file whose members are opened within bounds."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.document, self._left = name, MOST_BYTES
        self._zip = zipfile.ZipFile(stream)
        if len(self._zip.filelist) > MOST_FILES:
            raise InputError(f"{name} has {len(self._zip.filelist):,} files in it, more than {MOST_FILES:,}")
        self.names = {one.filename: one for one in self._zip.filelist}

    def opened(self, member: str) -> IO[bytes]:
        """Open a member, if all that was opened stays within bounds."""
        info = self.names.get(member)
        if info is None:
            raise InputError(f"{self.document} is damaged: it has no {label(member)}", remedy=_AGAIN)
        if info.flag_bits & 1:
            raise InputError(f"{self.document} has a password", remedy="save a copy without one")
        self._left -= info.file_size
        shrunk = info.file_size > MOST_RATIO * max(1, info.compress_size) and info.file_size > SMALL
        if shrunk or self._left < 0:
            size = f"{info.file_size / 1e6:,.0f} MB from {info.compress_size / 1e6:,.3f} MB"
            problem = f"{self.document} is a zip bomb, or no document: {label(member)} would unpack to {size}"
            raise InputError(problem, remedy="if it is yours, save its text as a .txt file")
        return self._zip.open(info)


def convert(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the text of a DOCX or EPUB file; any other zip file is refused by what it is."""
    from infinipot.text.convert import docx, epub

    found = Zip(stream, name)
    if "word/document.xml" in found.names:
        return docx.convert(found)
    if "META-INF/container.xml" in found.names and "xl/workbook.xml" not in found.names:
        return epub.convert(found)
    for member, what in _OTHERS:
        if member in found.names:
            raise InputError(f"{name} is {what}", remedy="save it as PDF or as text")
    raise InputError(f"{name} is a zip archive", remedy="unpack it, and give the folder")
