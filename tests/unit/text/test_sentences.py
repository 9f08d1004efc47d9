"""Where sentences end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from infinipot.testing.tokenizer import ASSISTANT, BEGIN, END, USER, ByteTokenizer
from infinipot.text.sentences import LONG, MOST, START, Sentences


def parted(text: str, size: int = 10**6, tokenizer: ByteTokenizer | None = None) -> list[str]:
    """The sentences of a text that comes in pieces."""
    tokenizer, since, found = tokenizer or ByteTokenizer(), START, dict[int, list[int]]()
    ids, sentences = tokenizer.encode(text), Sentences(tokenizer)
    for at in range(0, len(ids), size):
        numbers, since = sentences.numbers(ids[at : at + size], since)
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


class Letters(ByteTokenizer):
    """One token a letter."""

    def encode(self, text: str, control: bool = False) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    "sentences",
    [
        ["वह आया। ", "वह गया।"],
        ["وہ آیا۔ ", "کیا وہ گیا؟ ", "ہاں۔"],
        ["Նա եկավ։ ", "Նա գնաց։"],
        ["እሱ መጣ። ", "ሄደ።"],
    ],
)
def test_full_stops_of_other_scripts(sentences: list[str]) -> None:
    assert parted("".join(sentences), tokenizer=Letters()) == sentences


def test_marks_of_chinese_need_no_space() -> None:
    text = "他来了。「谁？」她问！没有了"
    assert parted(text, tokenizer=Letters()) == ["他来了。", "「谁？」", "她问！", "没有了"]


class Pieces(ByteTokenizer):
    """Tokens of several letters."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = ["a", *words]

    def encode(self, text: str, control: bool = False) -> list[int]:
        return [self.words.index(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[i] for i in ids)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("他来了", "。「", "谁", "？」", "她问"), [0, 0, 1, 1, 2]),
        (("「他来了", "。」「", "谁", "？』）（", "她问"), [0, 0, 1, 1, 2]),
        (("他来了", "。(", "谁", "？」\n【", "她问"), [0, 0, 1, 1, 2]),
        (("他来了", "」「", "谁"), [0, 0, 0]),
        (("He left", ".", " (", "Then", " she came", ".)", " So", " be it"), [0, 0, 1, 1, 1, 1, 2, 2]),
        (("Call f", ".(", "x", ") twice"), [0, 0, 0, 0]),
    ],
)
def test_marks_and_the_quotes_that_follow_them_in_one_token(words: list[str], numbers: list[int]) -> None:
    found, _ = Sentences(Pieces(*words)).numbers(range(1, len(words) + 1), START)
    assert found == numbers


def test_a_turn_of_a_chat_ends_a_sentence_also_where_control_tokens_are_shown_as_text() -> None:
    class Shown(ByteTokenizer):
        """As those of transformers."""

        def decode(self, ids: Sequence[int]) -> str:
            return "".join(super(Shown, self).decode([i]) if i < BEGIN else "<|control|>" for i in ids)

    turns = [USER, *b"Who is it?", END, ASSISTANT, *b"Marlow", END, USER, *b"Thanks."]
    for tokenizer in (ByteTokenizer(), Shown()):
        found = Sentences(tokenizer).numbers(turns, START)[0]
        ends = [at for at in range(1, len(turns)) if found[at] != found[at - 1]]
        assert ends == [1, 13, 21]


def test_a_tokenizer_that_drops_the_space_of_a_first_word() -> None:
    class Dropping(ByteTokenizer):
        """A token of several letters, as SentencePiece has them: its space is lost where it comes first."""

        words = ("a", "One", ".", " Two", " three")

        def encode(self, text: str, control: bool = False) -> list[int]:
            return [self.words.index(text)]

        def decode(self, ids: Sequence[int]) -> str:
            return "".join(self.words[i] for i in ids).lstrip()

    assert Sentences(Dropping()).numbers([1, 2, 3, 4], START)[0] == [0, 0, 1, 1]


def test_what_has_no_sentences_is_parted_by_its_lines() -> None:
    rows = [f"{n},{n * n},some words of a table\n" for n in range(200)]
    found = parted("".join(rows))
    assert all(LONG <= len(part) <= 2 * LONG for part in found[:-1])
    assert all(part.endswith("\n") for part in found)
    assert {len(part) for part in parted("x" * 1000)[:-1]} == {2 * LONG}


@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
def test_what_is_blank_ends_a_sentence_too_once_that_is_long(blank: str) -> None:
    found = parted(f"The key is 42.{blank * 1000}And so on.")
    assert [len(part) for part in found[:3]] == [2 * LONG] * 3
    assert found[-1].strip() == "And so on."


def test_numbers_begin_anew_before_they_are_too_large_for_a_kept_pot() -> None:
    numbers, since = Sentences(ByteTokenizer()).numbers(list(b"A. B. C"), START._replace(number=MOST - 2))
    assert sorted({*numbers}) == [0, MOST - 2, MOST - 1]
    assert since.number == 0


def test_a_tokenizer_that_cannot_be_a_key() -> None:
    class Unhashable(ByteTokenizer):
        __hash__ = None  # type: ignore[assignment]

    assert Sentences(Unhashable()).numbers(list(b"A. B"), START)[1].number == 1
