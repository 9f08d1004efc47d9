"""Sentences found by their meaning, for a question in words that the text does not use.

Each sentence of an archive has a vector. Vectors are made when first wanted and kept beside the passages; the
sentences nearest to a question come back as passages of their own.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from infinipot.recall.archive import Archive
from infinipot.recall.passages import Passage

SHORT = 25  # characters: a shorter sentence goes with the next
_TITLES = "".join(rf"(?<!\b{title})" for title in ("Mr", "Mrs", "Ms", "Dr", "St"))
_END = re.compile(rf"{_TITLES}[.!?…][\"'”’»)\]]*\s+|[。！？]|\n[ \t]*\n\s*")


class Embedder(Protocol):
    """A model of sentences."""

    def vectors(self, texts: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.float16]]":
        """Return a vector of length 1 for each text; near in meaning is near in angle."""


def sentences(text: str) -> list[tuple[int, int]]:
    """Return where each sentence of a text begins and ends; together they are the text."""
    starts = [0]
    for end in _END.finditer(text):
        if end.end() - starts[-1] >= SHORT and len(text) - end.end() >= SHORT:
            starts.append(end.end())
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def nearest(archive: Archive, embedder: Embedder, queries: Sequence[str], most: int) -> list[Passage]:
    """Return the sentences nearest in meaning to several wordings of a question together, the best first."""

    def embed(texts: Sequence[str]) -> list[bytes]:
        parts = [[text[start:end] for start, end in sentences(text)] for text in texts]
        made = embedder.vectors([one for part in parts for one in part])
        ends = list(accumulate(map(len, parts)))
        return [some.tobytes() for some in np.split(made, ends[:-1])]

    wanted = embedder.vectors(queries).astype(np.float32).sum(0)
    found = [
        (near, number, place)
        for number, kept in archive.meanings(embed)
        for place, near in enumerate(np.frombuffer(kept, np.float16).reshape(-1, len(wanted)) @ wanted)
    ]
    best = sorted(found, key=lambda one: -one[0])[:most]
    whole = archive.passages(number for _, number, _ in best)
    return [_sentence(passage, place) for passage, (_, _, place) in zip(whole, best, strict=True)]


def _sentence(passage: Passage, place: int) -> Passage:
    start, end = sentences(passage.text)[place]
    at, text = passage.start + start, passage.text[start:end]
    return replace(passage, start=at, end=at + len(text), text=text)
