"""Everything a reader has read, as passages in a SQLite database with a full-text index.

The database of a reader is a temporary one of SQLite's own: on disk beyond some megabytes, and gone with the
process, however that ends; `save` makes a file of it. Forks share a database until one of them writes. A
digest runs through all passages: by the digest a pot knows its own archive, and a changed passage is noticed.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any, Self

from infinipot.errors import StoreError
from infinipot.recall.database import FORMAT, MARK, PASSAGE, SOUND, TABLES, Database, check_make
from infinipot.recall.passages import Cutter, Passage

_TOGETHER = 256  # passages written at once
_SLICE = 65536  # characters taken down before they are passed on: a card reads what came before meanwhile


class Archive:
    """The passages of one reader: of all that its database holds, those up to the reader's last."""

    def __init__(
        self, most_bytes: int | None = None, database: Database | None = None, chain: bytes = b""
    ) -> None:
        self._database = database  # made with the first passage
        self._most_bytes = most_bytes  # on disk; beyond, nothing more is archived
        self._chain = chain  # of digests, up to the last passage
        self.last = database.last if database else 0
        self.problem = ""  # why nothing is written any more; empty where all is well
        self.unkept = ""  # why the archive was not kept with its pot

    @property
    def digest(self) -> str:
        """What all passages together are known by; empty where there are none, or where some are missing."""
        return self._chain.hex() if self.last and not self.problem else ""

    def fork(self) -> Self:
        """Return an archive with the same passages, which goes on by itself."""
        return copy(self)

    # Writing ---------------------------------------------------------------------

    def taking(self, pieces: Iterable[str], source: str = "", turn: int | None = None) -> Iterator[str]:
        """Pass on the pieces of a text; what has passed is archived.

        A piece that knows its own `source`, as a file's first piece does, begins a source of that name.
        A long piece is passed on slice by slice.
        """
        writer = _Writer(self, source, turn)
        try:
            for piece in pieces:
                if (named := getattr(piece, "source", None)) is not None:
                    writer.end()
                    writer = _Writer(self, named, turn)
                for at in range(0, len(piece), _SLICE):
                    writer.push(part := piece[at : at + _SLICE])
                    yield part
        finally:
            writer.end()

    def add(self, text: str, source: str = "", turn: int | None = None) -> None:
        """Archive a text that is there as a whole, such as one turn of a talk."""
        for _ in self.taking([text], source, turn):
            pass

    def add_turn(self, speaker: str, text: str) -> None:
        """Archive the next turn of a talk."""
        number = self._database.run("SELECT max(turn) FROM sources")[0][0] if self._database else None
        self.add(text, speaker, (number or 0) + 1)

    def turns(self, most: int) -> list[str]:
        """Return the beginnings of the last turns of a talk."""
        if self._database is None:
            return []
        command = (
            "SELECT p.text FROM sources s JOIN passages p ON p.source = s.id AND p.start = 0 "
            "WHERE s.turn IS NOT NULL AND p.id <= ? ORDER BY p.id DESC LIMIT ?"
        )
        return [row[0] for row in self._rows(command, self.last, most)][::-1]

    def note_tokens(self, first: int, count: int) -> None:
        """Note which tokens the last reading was, so that its passages know about where they stand."""
        if self._database is None:  # nothing was archived
            return
        with self._writing() as database:
            if database is None:
                return
            fresh = database.run("SELECT id, length FROM sources WHERE tokens IS NULL ORDER BY id")
            passed, total = 0, sum(length for _, length in fresh)
            for source, length in fresh:
                place = (first + passed * count // total, length * count // total)
                database.run("UPDATE sources SET token = ?, tokens = ? WHERE id = ?", *place, source)
                passed += length

    def begin(self, source: str, turn: int | None) -> int:
        """Open a source; return its number."""
        with self._writing() as database:
            if database is not None:
                database.run("INSERT INTO sources VALUES (NULL, ?, ?, 0, NULL, 0)", source, turn)
                return int(database.run("SELECT last_insert_rowid()")[0][0])
        return 0

    def append(self, source: int, start: int, texts: Sequence[str]) -> None:
        """Archive the next passages of a source."""
        with self._writing() as database:
            if database is None:
                return
            rows, last, chain = [], self.last, self._chain
            for text in texts:
                last, chain = last + 1, _linked(chain, text)
                rows.append((last, source, start, text))
                start += len(text)
            database.run("BEGIN")
            database.add(rows)
            database.run("UPDATE sources SET length = ? WHERE id = ?", start, source)
            database.run("COMMIT")
            self.last, self._chain, database.last = last, chain, last

    @contextmanager
    def _writing(self) -> Iterator[Database | None]:
        """Give a database of this archive's own; a disk that refuses ends the archive, not the reading."""
        if not self.problem:
            with self._refusals():
                self._database = self._opened()
        if self.problem or self._database is None:
            yield None
            return
        with self._refusals(), self._database.undoing():
            yield self._database

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            self.problem = f"the archive could not be written ({error})"
            self._leave_unreadable()

    def _leave_unreadable(self) -> None:
        """Forget a database that SQLite gave up: it had begun to move to a full disk and cannot go back."""
        try:
            if self._database is not None:
                self._database.run("SELECT count(*) FROM passages")
        except sqlite3.Error:
            self._database, self.last = None, 0

    def _opened(self) -> Database:
        if self._database is not None:
            return self._own(self._database)
        made = Database(self._most_bytes)
        for command in TABLES.values():
            made.run(command)
        return made

    def _own(self, shared: Database) -> Database:
        """Return the database, or a copy up to the last passage where a fork has gone on."""
        if shared.last <= self.last:
            return shared
        found = Database(self._most_bytes)
        with shared.lock:
            found.fill_from(shared.connection)
        found.cut_after(self.last)
        return found

    # Finding ---------------------------------------------------------------------

    def matching(self, terms: Sequence[str], most: int) -> dict[int, float]:
        """Return the numbers of passages that share a word with the terms, the best first, each with how well
        it does (BM25, more is better)."""
        if self._database is None or not terms:
            return {}
        wanted = " OR ".join(f'"{term}"' for term in terms)
        command = "SELECT rowid, -rank FROM words WHERE words MATCH ? AND rowid <= ? ORDER BY rank LIMIT ?"
        return dict(self._rows(command, wanted, self.last, most))

    def count(self, term: str, number: int | None = None) -> int:
        """Return how many passages have a word: of all, or of the one with that number."""
        if self._database is None:
            return 0
        first, last = (1, self.last) if number is None else (number, number)
        command = "SELECT count(*) FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
        return int(self._rows(command, f'"{term}"', first, last)[0][0])

    def passages(self, numbers: Iterable[int]) -> Iterator[Passage]:
        """Yield passages by their numbers, in the order given."""
        if self._database is None:
            return
        for number in numbers:
            found, source, turn, start, token, text = self._rows(PASSAGE, number)[0]
            yield Passage(found, source, turn, start, start + len(text), token, text)

    def texts(self) -> Iterator[str]:
        """Return everything that was read, passage by passage."""
        return (passage.text for passage in self.passages(range(1, self.last + 1)))

    def meanings(self, embed: Callable[[Sequence[str]], Sequence[bytes]]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each passage and what `embed` makes of its text, once for each database."""
        for first in range(1, self.last + 1, _TOGETHER):
            numbers = range(first, min(self.last + 1, first + _TOGETHER))
            known = dict(self._rows("SELECT * FROM meanings WHERE id BETWEEN ? AND ?", first, numbers[-1]))
            missing = [number for number in numbers if number not in known]
            made = embed([passage.text for passage in self.passages(missing)]) if missing else ()
            for number, vectors in zip(missing, made, strict=True):
                assert self._database is not None
                known[number] = vectors
                with suppress(sqlite3.OperationalError):  # a full disk: they are made anew the next time
                    self._database.run("INSERT OR REPLACE INTO meanings VALUES (?, ?)", number, vectors)
            yield from known.items()

    def _rows(self, command: str, *values: str | int | bytes) -> list[tuple[Any, ...]]:
        assert self._database is not None
        try:
            return self._database.run(command, *values)
        except sqlite3.Error as error:
            raise StoreError(f"the archive could not be read ({error})", remedy="use `recall` 0") from error

    # Keeping ---------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the archive to a file that does not exist yet."""
        if self._database is None:
            raise StoreError("there is no archive to keep: nothing was read")
        try:
            self._database = self._own(self._database)
            with closing(sqlite3.connect(path)) as target, self._database.lock:
                self._database.connection.backup(target)
                target.execute(f"PRAGMA application_id = {MARK}")
                target.execute(f"PRAGMA user_version = {FORMAT}")
        except sqlite3.Error as error:
            raise StoreError(f"cannot write the archive: {error}") from error

    @classmethod
    def load(
        cls,
        path: Path,
        digest: str,
        what: str = "the archive",
        stranger: bool = False,
        most_bytes: int | None = None,
    ) -> Self:
        """Return the archive of a file, if all its passages are those of the digest.

        The index of a `stranger`'s file is made anew from the passages.
        """
        database, chain = Database(most_bytes), b""
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
                check_make(source, what, most_bytes)
                database.fill_from(source)
            for number, text in database.connection.execute("SELECT id, text FROM passages ORDER BY id"):
                database.last += 1
                if number != database.last or not isinstance(text, str):
                    raise sqlite3.DatabaseError("its passages do not follow each other")
                chain = _linked(chain, text)
            if database.run(SOUND)[0][0] != database.last:
                raise sqlite3.DatabaseError("its passages have no place")
            if stranger:
                database.index_again()
        except sqlite3.Error as error:
            raise StoreError(f"{what} is damaged ({error})") from error
        if chain.hex() != digest:
            raise StoreError(f"{what} is of another text, or was changed")
        return cls(most_bytes, database, chain)


def _linked(chain: bytes, text: str) -> bytes:
    """Return the digest of all passages with one more."""
    return hashlib.sha256(chain + text.encode("utf-8", "surrogatepass")).digest()


class _Writer:
    """One source on its way into an archive."""

    def __init__(self, archive: Archive, name: str, turn: int | None) -> None:
        self._archive, self._name, self._turn = archive, name, turn
        self._cutter, self._number, self._start, self._waiting = Cutter(), 0, 0, list[str]()

    def push(self, piece: str) -> None:
        """Take the next piece of the text."""
        self._waiting.extend(self._cutter.push(piece))
        if len(self._waiting) >= _TOGETHER:
            self._write()

    def end(self) -> None:
        """Archive what is left."""
        self._waiting.extend(self._cutter.flush())
        self._write()

    def _write(self) -> None:
        texts, self._waiting = self._waiting, []
        if texts:
            self._number = self._number or self._archive.begin(self._name, self._turn)
            self._archive.append(self._number, self._start, texts)
            self._start += sum(map(len, texts))
