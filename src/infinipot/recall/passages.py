"""A text of any length as passages that end with a paragraph or a sentence; joined, they are the text."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

LEAST, MOST = 200, 600  # characters of a passage
_ENDS = (
    re.compile(r"\n[ \t\r]*\n\s*"),  # of a paragraph
    re.compile(r"(?:[.!?…][\"'”’»)\]]*|\])[ \t\r]*\n\s*"),  # of a line that is one: a turn, an entry
    re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？]"),  # of a sentence
    re.compile(r"\n"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True)
class Passage:
    """Characters [start, end) of a source."""

    id: int  # 1 is the first that was read
    source: str  # a file's name, or who spoke; empty where that is not known
    turn: int | None  # of a talk; none in a text
    start: int
    end: int
    token: int  # about as many tokens were read before the passage
    text: str

    @property
    def place(self) -> str:
        """Where the passage stands, for people."""
        if self.turn is not None:
            return f"turn {self.turn}, {self.source}" if self.source else f"turn {self.turn}"
        where = f"characters {self.start:,} to {self.end:,}"
        return f"{self.source}, {where}" if self.source else where

    def quote(self, words: Iterable[str], most: int = 200) -> str:
        """Return the sentence that shares most words with a question, in one line."""
        wanted = {word[:5] for word in words if len(word) > 3}  # enough of a word to meet its other forms
        sentences = [one.strip() for one in _ENDS[2].split(self.text) if one.strip()]
        best = max(sentences, key=lambda one: sum(word in one.lower() for word in wanted), default="")
        line = " ".join(best.split())
        return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."

    def to_json(self) -> dict[str, Any]:
        """Return the passage as JSON-ready data."""
        return {**asdict(self), "place": self.place}


class Cutter:
    """Cuts a text that comes in pieces into passages."""

    def __init__(self) -> None:
        self._waiting = ""

    def push(self, piece: str) -> Iterator[str]:
        """Take the next piece; yield the passages that no later piece can change."""
        self._waiting += piece
        at = 0
        while len(self._waiting) - at > 2 * MOST:
            end = _end(self._waiting, at)
            yield self._waiting[at:end]
            at = end
        self._waiting = self._waiting[at:]

    def flush(self) -> Iterator[str]:
        """Yield the last passages."""
        at, text, self._waiting = 0, self._waiting, ""
        while at < len(text):
            end = _end(text, at) if len(text) - at > MOST else len(text)
            yield text[at:end]
            at = end


def _end(text: str, at: int) -> int:
    """Return where the passage from `at` on ends: after a paragraph, or else a sentence, a line, a word."""
    for end in _ENDS:
        found = [match.end() for match in end.finditer(text, at + LEAST, at + MOST)]
        if found:
            return found[-1]
    return at + MOST
