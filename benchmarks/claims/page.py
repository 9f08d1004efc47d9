"""A page of the documentation: where a phrase stands in it, and which of its numbers look measured.

A phrase is a text with a `{...}` for each number, filled in as `str.format` does: "{:.1f} of {}" finds "37.7
of 248" on the page. Words are compared as they are; spaces and line ends are alike, and a number may be bold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any

NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
UNIT = (
    r"\s?(?:%|ms\b|s\b|GB\b|MB\b|KB\b|nats\b|x\b|times\b|points?\b|seconds\b|bytes\b|T?G?FLOP/s|tokens/s"
    r"|of \d|keys\b|rows\b|\(-?[\d.]+ to | to -?\d[\d.]*[,)])"
)
COMPARES = (
    r"\b(?:faster|slower|sooner|better|worse|higher|lower|fewer|above|below|found|lost|right|against)\b"
)
NEAR = 24  # letters between a number and a word that compares
HIDDEN = (  # is not read as prose: code, comments, addresses, headings, tables that the program writes
    r"^```.*?^```",
    r"^<!-- (\w+).*?<!-- end of \1 -->",
    r"<!--.*?-->",
    r"^<svg.*?</svg>",
    r"`[^`\n]*`",
    r"\]\([^)\s]*\)",
    r"^#.*?$",
    r"\b(?:1,024|2,048|3,072|4,096|8,192)\b",  # sizes of pots
    r"\b95%",  # of intervals
    r"\b(?:Llama|Qwen|Gemma|Phi|Mistral)[ -]v?\d[\d.]*(?:(?: to| and) v?\d[\d.]*)?",
    r"\b(?:ADR|Python|Tables?|Figures?|sections?|version|v|torch|transformers) ?\d[\d.]*"
    r"(?:(?:,| to| and) \d[\d.]*)*",
)
_HIDDEN = re.compile("|".join(f"(?:{one})" for one in HIDDEN), re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(rf"(?<![\w./#=-])({NUMBER})(?![\w-]|\.\d)")
_UNIT, _COMPARES = re.compile(UNIT), re.compile(COMPARES)
_PART = re.compile(r"\d of $|\(-?[\d.,]+ to $")  # of so many; the end of an interval


@dataclass(frozen=True)
class Printed:
    """A number as it stands on a page, and what it should be by the raw files."""

    at: int  # of its first letter
    end: int
    text: str
    right: tuple[str, ...]  # a half may be rounded either way

    @property
    def agrees(self) -> bool:
        """Whether the page has the right number; a plus sign is a matter of taste."""
        return self.text.lstrip("+") in (one.lstrip("+") for one in self.right)


class Page:
    """One file of the documentation."""

    def __init__(self, path: Path, name: str) -> None:
        self.name, self.text = name, path.read_text("utf-8")

    def line(self, at: int) -> int:
        """Return the number of the line that a letter stands on."""
        return self.text.count("\n", 0, at) + 1

    def places(self, phrase: str, values: tuple[Any, ...] = ()) -> list[list[Printed]]:
        """Return the phrase's numbers at every place where the page has the phrase, whatever the numbers."""
        parts, given, pattern = list(Formatter().parse(phrase)), iter(values), ""
        right = []
        for words, _, spec, _ in parts:
            pattern += _words(words)
            if spec is not None:
                right.append(_rounded(next(given), spec))
                pattern += rf"\**(?P<n{len(right)}>{NUMBER})\**"
        if unused := list(given):
            raise ValueError(f"{self.name}: {len(unused)} values too many for {phrase!r}")
        found = re.finditer(pattern, self.text)
        return [[Printed(*m.span(f"n{n}"), m[f"n{n}"], r) for n, r in enumerate(right, 1)] for m in found]

    def spans(self, words: str) -> list[tuple[int, int]]:
        """Return where the page has some words, numbers and all."""
        return [found.span() for found in re.finditer(_words(words), self.text)]

    @cached_property
    def prose(self) -> str:
        """The text with as many spaces wherever something is not prose."""
        return _HIDDEN.sub(lambda m: re.sub(r"\S", " ", m[0]), self.text)

    def figures(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers that look measured: with a unit or interval, of so many, beside a comparison.

        In a table every number with a decimal does.
        """
        for found in _FIGURE.finditer(self.prose):
            before, after = self._around(*found.span())
            line = self.prose[self.prose.rfind("\n", 0, found.start()) + 1 :]
            tabled = line.lstrip().startswith("|") and "." in found[1]
            if tabled or _UNIT.match(after) or _PART.search(before) or _COMPARES.search(f"{before} {after}"):
                yield found.start(), found[1]

    def _around(self, start: int, end: int) -> tuple[str, str]:
        """Return what stands near a number in its own sentence or its own cell of a table."""
        before = re.split(r"[|]|[.;:]\s", self.prose[max(0, start - NEAR) : start])[-1]
        return before, re.split(r"[|]|[.;:]\s", self.prose[end : end + NEAR])[0]


def _rounded(value: Any, spec: str) -> tuple[str, ...]:
    """Write a number as Python rounds it, a half to the even digit, and as people do, a half upwards."""
    plain = format(value, spec)
    with localcontext(rounding=ROUND_HALF_UP):
        up = format(Decimal(repr(value)), spec) if isinstance(value, float) else plain
    return (plain,) if plain == up else (plain, up)


def _words(text: str) -> str:
    """Return a pattern of some words, with any spaces and line ends between them."""
    return re.sub(r"\s+", r"\\s+", re.sub(r"[^\s\w]", lambda m: re.escape(m[0]), text))
