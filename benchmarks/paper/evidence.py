"""Where a text says the answer, and how many heads still hold that place: what Table 8 looks at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from infinipot.inspect.measures import shares, texts, words
from infinipot.reading.recording import Record

AROUND = 60  # words that are shown of a place
SHORT = 4  # letters; shorter words of a question say little about where its answer is
Place = tuple[int, int]  # first token, and the one after the last


@dataclass(frozen=True)
class Held:
    """A word, and the share of all layers and heads that hold it in each of several pots."""

    text: str
    start: int  # its first token
    shares: tuple[float, ...]


def places(pieces: Sequence[str], answers: Iterable[str]) -> list[Place]:
    """Where the text says one of the answers in whole words; `yes` and `no` are said nowhere."""
    told = [answer.strip() for answer in answers]
    wanted = [answer for answer in told if answer.lower() not in ("yes", "no")]
    return sorted({place for answer in wanted for place in find(pieces, answer, spoken=True)})


def evidence(pieces: Sequence[str], found: Sequence[Place], question: str) -> Place | None:
    """The place around which most of the question's words are said, the first of equal ones.

    Chosen before any pot is looked at, so that it does not favour one of them.
    """
    asked = _said(question)

    def near(place: Place) -> int:
        first, last = around(pieces, place)
        return len(asked & _said("".join(pieces[first:last])))

    return max(found, key=near, default=None)


def around(pieces: Sequence[str], place: Place, count: int = AROUND) -> Place:
    """The tokens of about `count` words with the place in their middle."""
    starts = words(pieces)
    first, last = (
        int(np.searchsorted(starts, token, side="right")) - 1 for token in (place[0], place[1] - 1)
    )
    before = max(0, count - (last - first + 1)) // 2
    begin = max(0, first - before)
    end = max(last + 1, min(len(starts), begin + count))
    ends = [*starts.tolist(), len(pieces)]
    return int(starts[begin]), int(ends[end])


def share(record: Record, found: Iterable[Place]) -> float:
    """The share of all layers and heads that hold these places in the end, as the mean over them."""
    held = record.held().mean((0, 1))
    return float(np.mean([held[first:last].mean() for first, last in found]))


def shown(records: Sequence[Record], place: Place, count: int = AROUND) -> list[Held]:
    """The words around a place, with the share of heads that hold each, pot by pot."""
    return side_by_side(records, *around(records[0].pieces, place, count))


def within(held: Sequence[Held], place: Place) -> list[bool]:
    """Which of the words shown are the place's own."""
    ends = [*(one.start for one in held[1:]), place[1]]
    return [one.start < place[1] and end > place[0] for one, end in zip(held, ends, strict=True)]


def find(pieces: Sequence[str], phrase: str, spoken: bool = False) -> list[tuple[int, int]]:
    """Every place where the text says the phrase, as first token and the one after the last.

    With `spoken`, whole words only, in capitals or not.
    """
    if not phrase:
        return []
    pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)" if spoken else re.escape(phrase)
    ends = np.cumsum([len(piece) for piece in pieces])
    found = []
    for match in re.finditer(pattern, "".join(pieces), re.IGNORECASE if spoken else re.NOFLAG):
        first = int(np.searchsorted(ends, match.start(), side="right"))
        last = int(np.searchsorted(ends, match.end(), side="left"))
        found.append((first, last + 1))
    return found


def side_by_side(records: Sequence[Record], start: int = 0, end: int | None = None) -> list[Held]:
    """Words of the tokens `start` to `end`, with the share of heads that hold them in the end."""
    pieces = records[0].pieces[start:end]
    starts = words(pieces)
    found = [shares(record.held()[..., start:end], starts) for record in records]
    rows = zip(texts(pieces, starts), starts.tolist(), *(one.tolist() for one in found), strict=True)
    return [Held(text, start + first, tuple(rest)) for text, first, *rest in rows]


def _said(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) >= SHORT or word.isdigit()}
