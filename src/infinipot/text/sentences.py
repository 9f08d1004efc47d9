"""Where sentences end, token by token: numbers by which a pot can keep whole sentences.

A sentence ends at its full stop, question or exclamation mark, with the quotes and brackets that close it, if
a space follows (after the marks of Chinese and Japanese none is needed); at an empty line; with a turn of a
chat. A single line's end ends none, since text of a fixed width has them everywhere, unless the sentence is
long already: tables, logs and code have no other ends. Knows a tokenizer's pieces of text, and no language.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from infinipot.text.tokenizer import Tokenizer

MARKS, WIDE_MARKS = tuple(".!?।॥۔؟։።"), tuple("。！？｡．")
CLOSING = "\"')]”’»」』）*_ \r\n"  # may follow a mark
OPENING = "「『（(【“‘《"  # of the next sentence, in one token with a mark of the last
LONG = 128  # tokens after which the next line's end ends a sentence; after twice as many anything does
MOST = 2**30  # a pot has 32 bits; numbers begin anew there, since only neighbours are compared
NARROW, WIDE = 1, 2  # marks that need a space after them, and that do not


class Since(NamedTuple):
    """Where a stream of tokens is: the sentence's number, and what came since its last word."""

    number: int = 0
    ended: int = 0  # by which kind of mark the last word ended a sentence
    lines: int = 0  # that ended since
    spaced: bool = False  # anything blank came since
    length: int = 0  # of the sentence so far


START = Since()


class _Kind(NamedTuple):
    """What a token does to sentences."""

    blank: bool
    spaced: bool  # begins with a space
    ends: int  # by which kind of mark
    closes: bool  # nothing but quotes and brackets
    lines: int  # that end in it


class Sentences:
    """Numbers the sentences of one tokenizer's tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        try:
            self._kinds = _KNOWN.setdefault(tokenizer, {})
        except TypeError:  # a tokenizer that cannot be a key: its tokens are looked at again
            self._kinds = {}
        self._before = tokenizer.encode("a")[-1:]  # some tokenizers drop the space of a first word
        self._cut = len(tokenizer.decode(self._before))

    def numbers(self, tokens: Sequence[int], since: Since) -> tuple[list[int], Since]:
        """Return the number of each token's sentence, and where the stream is after them."""
        number, ended, lines, spaced, length = since
        found = []
        for token in tokens:
            kind = self._kinds.get(token) or self._kind(token)
            if kind.blank and length < 2 * LONG:
                lines, spaced = lines + kind.lines, True
            else:
                apart = spaced or kind.spaced or lines > 0 or (ended == WIDE and not kind.closes)
                begins = lines > 1 or (ended > 0 and apart)
                begins = begins or length >= (LONG if lines else 2 * LONG)
                number, length = (number + begins) % MOST, 0 if begins else length
                ended = kind.ends or (ended if kind.closes and not begins else 0)
                lines, spaced = kind.lines, False
            length += 1
            found.append(number)
        return found, Since(number, ended, lines, spaced, length)

    def _kind(self, token: int) -> _Kind:
        control = token in self._tokenizer.control_ids  # of a template, around a turn: like an empty line
        text = "\n\n" if control else self._tokenizer.decode([*self._before, token])[self._cut :]
        blank, lines = not text.strip(), text[len(text.rstrip()) :].count("\n")
        inner = text.rstrip(CLOSING)
        wide = text.rstrip(OPENING + CLOSING).endswith(WIDE_MARKS)
        ends = NARROW if inner.endswith(MARKS) else WIDE if wide else 0
        made = self._kinds[token] = _Kind(blank, text[:1].isspace(), ends, not text.strip(CLOSING), lines)
        return made


_KNOWN: WeakKeyDictionary[Tokenizer, dict[int, _Kind]] = WeakKeyDictionary()
