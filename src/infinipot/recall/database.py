"""The tables of an archive, and the temporary SQLite database they live in while a reader reads."""

import sqlite3
import threading
import weakref
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
_PAGE = 4096  # bytes, SQLite's own


class Database:
    """A temporary SQLite database, used by one thread at a time."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.lock = threading.RLock()
        self.connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        if most_bytes is not None:
            self.connection.execute(f"PRAGMA max_page_count = {max(1, most_bytes // _PAGE)}")
        self.last = 0  # passages in the database
        weakref.finalize(self, self.connection.close)

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

    def index(self, number: int, text: str) -> None:
        """Take a passage into the full-text index."""
        self.run("INSERT INTO words (rowid, body) VALUES (?, ?)", number, indexed(text))

    def index_again(self) -> None:
        """Make the index anew from the passages."""
        self.run("DROP TABLE words")
        self.run(TABLES["words"])
        for number, text in self.connection.execute("SELECT id, text FROM passages"):
            self.index(number, text)

    def cut_after(self, last: int) -> None:
        """Forget all passages after the last."""
        for number, text in self.run("SELECT id, text FROM passages WHERE id > ?", last):
            self.run("INSERT INTO words (words, rowid, body) VALUES ('delete', ?, ?)", number, indexed(text))
        self.run("DELETE FROM passages WHERE id > ?", last)
        self.last = last


def check_make(source: sqlite3.Connection, what: str) -> None:
    """Refuse a file that is no archive, that is newer, or that holds anything but an archive's tables."""
    source.execute("PRAGMA trusted_schema = OFF")
    (mark,), (version,) = (
        source.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if mark != MARK:
        raise StoreError(f"{what} is no archive")
    if version > FORMAT:
        raise StoreError(f"{what} has format {version}, newer than {FORMAT}", remedy="upgrade infinipot")
    found = dict(
        source.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'words\\_%' ESCAPE '\\'")
    )
    if found != TABLES:
        raise StoreError(f"{what} is an archive of unknown make")
