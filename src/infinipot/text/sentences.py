"""Where sentences end, token by token: numbers by which a pot can keep whole sentences.

A sentence ends at its full stop, question or exclamation mark, with the quotes and brackets that close it, if
a space follows; and at an empty line. The end of a single line does not end one: text of a fixed width has
them everywhere. Knows a tokenizer's pieces of text, and no language.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from infinipot.text.tokenizer import Tokenizer

MARKS = (".", "!", "?", "。", "！", "？")
CLOSING = "\"')]”’»*_ \n"  # may follow a mark


class Since(NamedTuple):
    """Where a stream of tokens is: the sentence's number, and what came since its last word."""

    number: int = 0
    ended: bool = False  # the last word ended a sentence
    lines: int = 0  # that ended since
    spaced: bool = False  # anything blank came since


START = Since()


class _Kind(NamedTuple):
    """What a token does to sentences."""

    blank: bool
    spaced: bool  # begins with a space
    ends: bool
    closes: bool  # nothing but quotes and brackets
    lines: int  # that end in it


class Sentences:
    """Numbers the sentences of one tokenizer's tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._kinds: dict[int, _Kind] = {}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Sentences":
        """Return the one of a tokenizer: what its tokens are is found out once."""
        found = _KNOWN.get(tokenizer)
        if found is None:
            found = _KNOWN[tokenizer] = cls(tokenizer)
        return found

    def numbers(self, tokens: Sequence[int], since: Since) -> tuple[list[int], Since]:
        """Return the number of each token's sentence, and where the stream is after them."""
        number, ended, lines, spaced = since
        found = []
        for token in tokens:
            kind = self._kinds.get(token) or self._kind(token)
            if kind.blank:
                lines, spaced = lines + kind.lines, True
            else:
                begins = lines > 1 or (ended and (spaced or kind.spaced or lines > 0))
                number += begins
                ended = kind.ends or (ended and not begins and kind.closes)
                lines, spaced = kind.lines, False
            found.append(number)
        return found, Since(number, ended, lines, spaced)

    def _kind(self, token: int) -> _Kind:
        text = self._tokenizer.decode([token]).replace("\r", "")
        blank, lines = not text.strip(), text[len(text.rstrip()) :].count("\n")
        ends = text.rstrip(CLOSING).endswith(MARKS)
        made = self._kinds[token] = _Kind(blank, text[:1].isspace(), ends, not text.strip(CLOSING), lines)
        return made


_KNOWN: WeakKeyDictionary[Tokenizer, Sentences] = WeakKeyDictionary()
