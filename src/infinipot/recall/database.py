"""The tables of an archive, and the temporary SQLite database they live in while a reader reads."""

import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

from infinipot.errors import StoreError
from infinipot.recall.words import indexed

FORMAT = 1
MARK = 0x1F07A7C4  # SQLite's application_id: the file is an archive of ours
TABLES = {
    "sources": "CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT, turn INTEGER, token INTEGER, "
    "tokens INTEGER, length INTEGER)",
    "passages": "CREATE TABLE passages (id INTEGER PRIMARY KEY, source INTEGER, start INTEGER, text TEXT)",
    "words": "CREATE VIRTUAL TABLE words USING fts5(body, content='', tokenize='porter unicode61')",
}
PASSAGE = (
    "SELECT p.id, s.name, s.turn, p.start, s.token + coalesce(p.start * s.tokens / s.length, 0), p.text "
    "FROM passages p JOIN sources s ON s.id = p.source WHERE p.id = ?"
)
SOUND = (  # passages with a place
    "SELECT count(*) FROM passages p JOIN sources s ON s.id = p.source WHERE typeof(s.name) = 'text' AND "
    "typeof(p.start) || typeof(s.token) || typeof(s.length) = 'integerintegerinteger' AND "
    "typeof(s.turn) IN ('integer', 'null') AND typeof(s.tokens) IN ('integer', 'null')"
)
VECTORS = "CREATE TEMP TABLE meanings (id INTEGER PRIMARY KEY, vectors BLOB)"  # in none of our files
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name, type"


class Database:
    """A temporary SQLite database, used by one thread at a time."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.lock = threading.RLock()
        self.connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self.connection.execute("PRAGMA trusted_schema = OFF")
        self.connection.execute(VECTORS)
        self.last = 0  # passages in the database
        self._most_bytes = most_bytes
        self._bound()
        weakref.finalize(self, self.connection.close)

    def _bound(self) -> None:
        if self._most_bytes is not None:
            (page,) = self.run("PRAGMA page_size")[0]
            self.run(f"PRAGMA max_page_count = {max(1, self._most_bytes // page)}")

    def fill_from(self, source: sqlite3.Connection) -> None:
        """Become a copy of another database, within this one's own bound: its pages may be larger."""
        source.backup(self.connection)
        self._bound()

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """Hold the database for one thread; where the block fails, what it began to write is undone."""
        with self.lock:
            try:
                yield
            except BaseException:
                self.connection.rollback()
                raise

    def run(self, command: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one command; return its rows."""
        with self.lock:
            return self.connection.execute(command, values).fetchall()

    def add(self, rows: list[tuple[int, int, int, str]]) -> None:
        """Take in passages: number, source, start and text of each."""
        with self.lock:
            self.connection.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
            found = [(number, indexed(text)) for number, _, _, text in rows]
            self.connection.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", found)

    def index_again(self) -> None:
        """Make the index anew from the passages."""
        self.run("DROP TABLE words")
        self.run(TABLES["words"])
        for number, text in self.connection.execute("SELECT id, text FROM passages"):
            self.run("INSERT INTO words (rowid, body) VALUES (?, ?)", number, indexed(text))

    def cut_after(self, last: int) -> None:
        """Forget all passages after the last."""
        for number, text in self.run("SELECT id, text FROM passages WHERE id > ?", last):
            self.run("INSERT INTO words (words, rowid, body) VALUES ('delete', ?, ?)", number, indexed(text))
        self.run("DELETE FROM passages WHERE id > ?", last)
        self.last = last


@cache
def _schema() -> list[tuple[Any, ...]]:
    """Everything in an archive, as SQLite has it: the tables, and those of the full-text index."""
    with closing(sqlite3.connect(":memory:")) as made:
        for command in TABLES.values():
            made.execute(command)
        return made.execute(SCHEMA).fetchall()


def check_make(source: sqlite3.Connection, what: str, most_bytes: int | None = None) -> None:
    """Refuse a file that is no archive, newer or too large, or has more than its tables, such as triggers."""
    source.execute("PRAGMA trusted_schema = OFF")
    mark, version, pages, page = (
        source.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "page_count", "page_size")
    )
    if mark != MARK:
        raise StoreError(f"{what} is no archive")
    if version > FORMAT:
        raise StoreError(f"{what} has format {version}, newer than {FORMAT}", remedy="upgrade infinipot")
    if source.execute(SCHEMA).fetchall() != _schema():
        raise StoreError(f"{what} is an archive of unknown make")
    if most_bytes is not None and pages * page > most_bytes:
        raise StoreError(f"{what} is over {most_bytes:,} bytes", remedy="raise `max_archive`")
