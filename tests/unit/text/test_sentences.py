"""Where sentences end."""

from __future__ import annotations

import pytest

from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.sentences import START, Sentences


def parted(text: str, size: int = 10**6) -> list[str]:
    """The sentences of a text that comes in pieces."""
    tokenizer, since, found = ByteTokenizer(), START, dict[int, list[int]]()
    ids = tokenizer.encode(text)
    for at in range(0, len(ids), size):
        numbers, since = Sentences.of(tokenizer).numbers(ids[at : at + size], since)
        for number, token in zip(numbers, ids[at : at + size], strict=True):
            found.setdefault(number, []).append(token)
    return [tokenizer.decode(part) for part in found.values()]


@pytest.mark.parametrize("size", [1, 3, 10**6])
@pytest.mark.parametrize(
    "sentences",
    [
        ["One. ", "Two is longer! ", "Is it?\n", "It is."],
        ["Lines\nof a fixed\r\nwidth are one sentence. ", "So it goes on\n\n", "A heading\n \n", "Text"],
        ["Pi is 3.14 or so. ", "www.a.org is one word. "],
        ['He said "no." ', "(And 'so?') ", "[1.] ", '"Yes!" '],
        ["  An indent does not begin two. \n\n", "Nor do empty lines alone"],
        [""],
    ],
)
def test_sentences_end_where_a_reader_would_say(sentences: list[str], size: int) -> None:
    assert parted("".join(sentences), size) == [one for one in sentences if one]


def test_a_tokenizers_pieces_are_looked_at_once() -> None:
    tokenizer = ByteTokenizer()
    assert Sentences.of(tokenizer) is Sentences.of(tokenizer)
    assert Sentences.of(tokenizer) is not Sentences.of(ByteTokenizer())
