"""Tasks in JSON lines files, plain or packed (.xz, .gz), and the rows that cannot be used.

One bad row must not end a run of hours: such a row comes out as a `BadRow` among the examples.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, ClassVar, Self, TypeVar, cast

from infinipot.errors import InputError
from infinipot.eval.tasks.task import BadRow, Count, Example
from infinipot.recipes.option import Option

T = TypeVar("T")
DATA = Option("data", Path, None, "Folder with the task's files.", metavar="DIR")
PACKED = ("", ".xz", ".gz")  # what may follow a file's own suffix, in the order looked for
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading a packed file may raise


class RowError(ValueError):
    """What is wrong with a row; never leaves `built`, which makes a BadRow of the row."""


@dataclass(frozen=True)
class Row:
    """One JSON object and where it came from; its methods raise RowError for what is not as it should be."""

    file: str
    line: int
    fields: Mapping[str, object]

    def text(self, name: str, blank: bool = True) -> str:
        """Return a field that must be a string; one with something in it where not `blank`."""
        value = string(name, self._get(name), "be a string")
        if not blank and not value.strip():
            raise RowError(f"{name!r} is empty")
        return value

    def integer(self, name: str) -> int:
        """Return a field that must be a whole number."""
        value = _typed(name, self._get(name), int, "be a whole number")
        if isinstance(value, bool) or value < 0:
            raise RowError(f"{name!r} should be a whole number")
        return value

    def items(self, name: str) -> list[object]:
        """Return a field that must be a list with something in it."""
        values: list[object] = _typed(name, self._get(name), list, "be a list")
        if not values:
            raise RowError(f"{name!r} is empty")
        return values

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a field that must be a list of strings with something in it."""
        return tuple(string(name, value) for value in self.items(name))

    def row(self, name: str) -> Self:
        """Return a field that must be an object, as a row of the same place."""
        return replace(self, fields=_typed(name, self._get(name), dict, "be an object"))

    def rows(self, name: str) -> list[Self]:
        """Return a field that must be a list of objects with something in it, as rows of the same place."""
        return [replace(self, fields=_typed(name, each, dict, "hold objects")) for each in self.items(name)]

    def _get(self, name: str) -> object:
        if name not in self.fields:
            raise RowError(f"{name!r} is missing")
        return self.fields[name]


@dataclass(frozen=True)
class FileTask:
    """The rows of a folder's `NAME.jsonl` (or .xz, .gz), each made an example by `example`."""

    name: str
    folder: Path | None = None
    how: ClassVar[str]  # to get the files

    def __post_init__(self) -> None:
        self.file()  # a missing file is told now, not in the middle of a run

    def file(self) -> Path:
        """Return the task's file."""
        return find_file(self.folder, [f"{self.name}.jsonl"], self.how)

    def rows(self) -> Iterator[Row | BadRow]:
        """Yield the task's rows as they are."""
        return read_rows(self.file())

    def examples(self, count: Count) -> Iterator[Example | BadRow]:  # noqa: ARG002 - rows have their length
        """Yield the rows in their order, each made an example."""
        return from_rows(self.rows(), self.example)

    def example(self, row: Row) -> Example:
        """Make an example of a row; RowError if the row does not allow it."""
        raise NotImplementedError


def string(name: str, value: object, wanted: str = "hold strings") -> str:
    """Return a value that must be a string: a field, or one value of a list field."""
    found = _typed(name, value, str, wanted)
    try:
        found.encode()
    except UnicodeEncodeError:  # JSON can spell half a character; no tokenizer takes it
        raise RowError(f"{name!r} holds half of a surrogate pair") from None
    return found


def _typed(name: str, value: object, kind: type[T], wanted: str) -> T:
    if not isinstance(value, kind):
        raise RowError(f"{name!r} should {wanted}, not {type(value).__name__}")
    return value


@cache
def official(file: str) -> dict[str, Any]:
    """Return what is official about each part of a task, by name."""
    return cast("dict[str, Any]", json.loads((files("infinipot.eval.tasks") / file).read_text("utf-8")))


def data_folder(given: Path | None, how: str) -> Path:
    """Return the folder a user named for a task's data; `how` says how to get the files otherwise."""
    if given is None:
        raise InputError("this task needs its data", field="data", remedy=f"give `data` its folder: {how}")
    if not given.is_dir():
        raise InputError(f"there is no folder {given}", field="data", remedy=how)
    return given


def find_file(folder: Path | None, names: Sequence[str], how: str) -> Path:
    """Return the first file there is, plain or packed; `how` says how to get it otherwise."""
    folder = data_folder(folder, how)
    for path in (folder / (name + packed) for name in names for packed in PACKED):
        if path.is_file():
            return path
    raise InputError(f"{folder} has no {' or '.join(names)} (nor .xz, .gz): {how}")


def find_files(folder: Path | None, pattern: str, how: str) -> list[Path]:
    """Return every file whose name fits a pattern, plain or packed, by name; one in two forms once."""
    folder, found = data_folder(folder, how), dict[str, Path]()
    for packed in PACKED:
        for path in folder.glob(pattern + packed):
            found.setdefault(path.name.removesuffix(packed), path)
    if not found:
        raise InputError(f"{folder} has no {pattern} (nor .xz, .gz): {how}")
    return [found[name] for name in sorted(found)]


def open_file(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a plain or packed file for reading."""
    if path.suffix == ".xz":
        return lzma.open(path)
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """Yield every row of a file; a damaged packed file ends with a BadRow."""
    line = 0
    try:
        with open_file(path) as lines:
            for line, content in enumerate(lines, 1):  # not `splitlines`: contexts hold U+2028
                if content.strip():
                    yield _parsed(str(path), line, content)
    except DAMAGED as error:
        yield BadRow(str(path), line + 1, f"the file is damaged from here on ({error})")


def read_list(path: Path) -> Iterator[Row | BadRow]:
    """Yield every object of a file that is one JSON list; the place in the list is the row's line."""
    try:
        with open_file(path) as file:
            found = json.loads(file.read().decode("utf-8"))
    except (*DAMAGED, ValueError, RecursionError) as error:
        yield BadRow(str(path), 1, f"the file is damaged or not JSON ({error})")
        return
    if not isinstance(found, list):
        yield BadRow(str(path), 1, f"should be a JSON list, not {type(found).__name__}")
        return
    for place, fields in enumerate(found, 1):
        yield _row(str(path), place, fields)


def _parsed(file: str, line: int, content: bytes) -> Row | BadRow:
    try:
        fields = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        return BadRow(file, line, "not UTF-8")
    except (ValueError, RecursionError) as error:
        return BadRow(file, line, f"not JSON ({error})")
    return _row(file, line, fields)


def _row(file: str, line: int, fields: object) -> Row | BadRow:
    if not isinstance(fields, dict):
        return BadRow(file, line, f"should be a JSON object, not {type(fields).__name__}")
    return Row(file, line, fields)


def built(rows: Iterable[Row | BadRow], build: Callable[[Row], T]) -> Iterator[T | BadRow]:
    """Build something from every row; bad rows, and rows of which nothing can be built, come out bad."""
    for row in rows:
        try:
            yield build(row) if isinstance(row, Row) else row
        except RowError as error:
            yield BadRow(row.file, row.line, str(error))


def from_rows(rows: Iterable[Row | BadRow], build: Callable[[Row], Example]) -> Iterator[Example | BadRow]:
    """Build an example from every row; ids that come again are told apart by their line."""
    seen = set()

    def one(row: Row) -> Example:
        example = build(row)
        example = replace(example, id=f"{example.id}#{row.line}") if example.id in seen else example
        seen.add(example.id)
        return example

    return built(rows, one)
