"""Hay to hide needles in: the passkey test's noise, or the texts of a folder, to any length.

Texts are taken in order from some start, and again from the first when all are used up.
"""

from __future__ import annotations

import lzma
import random
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from infinipot.errors import InputError
from infinipot.eval.tasks.jsonl import PACKED, open_file
from infinipot.eval.tasks.passkey import NOISE
from infinipot.eval.tasks.task import Count

_END = re.compile(r"[.!?][\"'”’)\]]*(?=\s)|[。！？]|\n(?=\s*\n)")  # the last characters of a sentence
_NEAR = 2000  # characters
_ROUNDS = 4


@dataclass(frozen=True)
class Bale:
    """A piece of hay."""

    text: str
    passes: float  # how often the whole hay is in it; above 1 it repeats


@dataclass(frozen=True)
class Hay:
    """The .txt files of a folder, plain or packed, by name; one file; or noise where there is no path."""

    path: Path | None = None
    repeat: bool = True
    seed: int = 0

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts in order of their names."""
        return tuple(map(_read, _files(self.path))) if self.path else (NOISE,)

    @property
    def name(self) -> str:
        """What results call it."""
        return self.path.name if self.path else "noise"

    def check(self) -> None:
        """Raise InputError if there is nothing to read."""
        if self.path:
            _files(self.path)

    def bale(self, count: Count, tokens: int, trial: int) -> Bale:
        """Return about that many tokens, to the end of a sentence; each trial begins at another text."""
        source = self._from(trial)
        size = _fitting(source, count, tokens)
        if self.path and not self.repeat and size > len(source):
            has = count(source)
            raise InputError(f"{self.path} fills {has} of {tokens} tokens: add texts, or let them repeat")
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


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"there is no folder {path}: name one with .txt files, or leave it out for noise")
    found = sorted(file for packed in PACKED for file in path.glob(f"*.txt{packed}"))
    if not found:
        raise InputError(f"{path} holds no .txt file: name a folder with some, or leave it out for noise")
    return found


def _read(path: Path) -> str:
    try:
        with open_file(path) as file:
            text = file.read().decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: convert it, or take it out of the hay") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not text:
        raise InputError(f"{path} has no text in it: take it out of the hay")
    return text
