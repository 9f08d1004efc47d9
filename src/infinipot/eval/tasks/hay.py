"""Hay to hide needles in: the passkey test's noise, or the texts of a folder, to any length.

Texts are taken in order from some start, and again from the first when all are used up.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from infinipot.errors import InputError
from infinipot.eval.tasks.jsonl import DAMAGED, PACKED, open_file
from infinipot.eval.tasks.passkey import NOISE
from infinipot.eval.tasks.task import Count

_END = re.compile(r"[.!?][\"'”’)\]]*(?=\s)|[。！？]|\n(?=\s*\n)")  # the last characters of a sentence
_NEAR = 2000  # characters
_ROUNDS = 4


@dataclass(frozen=True)
class Bale:
    """A piece of hay."""

    text: str
    passes: float  # how often the whole hay is in the piece; above 1 the hay repeats


@dataclass(frozen=True)
class Hay:
    """The .txt files of a folder, plain or packed, by name; one file; or noise where there is no path."""

    path: Path | None = None
    seed: int = 0

    @cached_property
    def files(self) -> list[Path]:
        """The files in order of their names; InputError if there is nothing to read."""
        if self.path is None or self.path.is_file():
            return [self.path] if self.path else []
        found = sorted(file for packed in PACKED for file in self.path.glob(f"*.txt{packed}"))
        if not found:
            there = self.path.is_dir()
            wrong = f"{self.path} holds no .txt file" if there else f"there is no folder {self.path}"
            raise InputError(wrong, field="hay", remedy="name a folder with some, or none for noise")
        return found

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts in order of their names."""
        return tuple(map(_read, self.files)) or (NOISE,)

    @property
    def name(self) -> str:
        """The name in results."""
        return self.path.name if self.path else "noise"

    def bale(self, count: Count, tokens: int, trial: int) -> Bale:
        """Return about that many tokens, to the end of a sentence; each trial begins at another text."""
        source = self._from(trial)
        size = _fitting(source, count, tokens)
        text = _first(source, size + 1)  # one more, to see whether a sentence ends there
        return Bale(text[: boundary(text, size)], size / len(source))

    def _from(self, trial: int) -> str:
        order = list(range(len(self.texts)))
        random.Random(self.seed).shuffle(order)
        start = order[trial % len(order)]
        joint = "\n\n" if self.path else " "
        return joint.join((*self.texts[start:], *self.texts[:start])) + joint


def boundary(text: str, at: int) -> int:
    """Return the last end of a sentence at or before a position; of a word where there is none; else 0."""
    if at >= len(text):
        return len(text)
    for start in (max(0, at - _NEAR), 0):  # nearly always the first: a text may have millions of characters
        ends = [end.end() for end in _END.finditer(text, start, at + 1) if end.end() <= at]
        if ends:
            return ends[-1]
    return max(text.rfind(" ", 0, at + 1), 0)


def _fitting(source: str, count: Count, tokens: int) -> int:
    """Find how many characters make the tokens: that varies along a text, so measure and correct."""
    if tokens <= 0:
        return 0
    size = 4 * tokens
    for _ in range(_ROUNDS):
        found = max(1, count(_first(source, size)))
        if 0.99 * tokens <= found <= tokens:
            break
        size = max(1, size * tokens // found)
    return size


def _first(source: str, size: int) -> str:
    return (source * (size // len(source) + 1))[:size]


def _read(path: Path) -> str:
    try:
        with open_file(path) as file:
            text = file.read().decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: convert it, or take it out of the hay") from error
    except DAMAGED as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not text:
        raise InputError(f"{path} has no text in it: take it out of the hay")
    return text
