"""Reading files, stitching windows and giving out text, without any real tokenizer."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from collections.abc import Iterator
from encodings.aliases import aliases
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import InputError
from infinipot.reading.answer import AnswerText
from infinipot.testing.tokenizer import END, ByteTokenizer
from infinipot.text.detokenize import Detokenizer
from infinipot.text.documents import Finder
from infinipot.text.files import blocks_of, check_regular, decoded, read_text, title
from infinipot.text.tokenizer import CHAT_ASK_BEFORE, PLAIN, Frame, Tokenizer
from infinipot.text.windows import Encoded, encode_windows


def read(content: bytes, tmp_path: Path) -> list[str]:
    path = tmp_path / "some.txt"
    path.write_bytes(content)
    return list(read_text(path))


def test_nothing_is_altered_but_the_bom(tmp_path: Path) -> None:
    text = "a\r\nb\rc\n\n é\ufeff👩‍👩‍👧\u2028 x\t" * 20_000
    blocks = read(b"\xef\xbb\xbf" + text.encode(), tmp_path)
    assert "".join(blocks) == text
    assert max(map(len, blocks)) <= 65_536
    assert list(read_text(str(tmp_path / "some.txt"))) == blocks


def test_a_stream_reads_as_a_file_does() -> None:
    stream = io.BytesIO("日本\r\n".encode() * 50_000)
    assert "".join(decoded(blocks_of(stream), "standard input")) == "日本\r\n" * 50_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "some.txt has no text in it"),
        (b"\xef\xbb\xbf", "some.txt has no text in it"),
        (b" \r\n\t" * 40_000, "some.txt has no text in it"),
        (b"a" * 70_000 + b"\0b", "some.txt is binary, not text: byte 70000 is NUL"),
        (b"caf\xe9 noir", r"some.txt is not UTF-8 \(byte 3\): .*`iconv -f latin1 -t utf-8`"),
        (b"a" * 65_535 + b"\xe6\x97", r"some.txt is not UTF-8 \(byte 65535\)"),
        (b"a" * 65_535 + b"\xe6\x97x", r"some.txt is not UTF-8 \(byte 65535\)"),
        ("text".encode("utf-16"), "some.txt is UTF-16, .*`iconv -f utf-16 -t utf-8`"),
    ],
)
def test_what_is_not_text_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(content, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "charset", ["idna", "utf\0-8", "punycode", "rot13", "utf-7", "unicode_escape", "x" * 999]
)
def test_what_is_no_charset_of_texts_is_taken_for_utf_8(charset: str) -> None:
    assert list(decoded([b"caf\xc3\xa9 \\ud800 +2AA-"], "page", charset)) == ["café \\ud800 +2AA-"]


def test_any_charset_that_python_knows_gives_text() -> None:
    data = bytes(range(1, 256)) + b"\\ud800 \\x +2AA- xn--a..b ~{ \x1b$B"
    for charset in sorted({*aliases.values(), "idna", "punycode", "unicode_escape"}):
        with contextlib.suppress(InputError):  # UTF-8, strictly
            "".join(decoded([data, data], "page", charset)).encode()


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    for check in (check_regular, lambda path: list(read_text(path))):
        with pytest.raises(InputError, match="missing: there is no such file"):
            check(tmp_path / "missing")
    with pytest.raises(InputError, match="it is a directory"):
        list(read_text(tmp_path))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("~no-such-user/x", "cannot read ~no-such-user/x: there is no such file"),
        ("a\0b", "a b is no name of a file: give a path"),
        ("a\ud800b", "a b is no name of a file: give a path"),
    ],
)
def test_what_is_no_name_of_a_file_is_refused(name: str, says: str) -> None:
    assert title(name) == name
    with pytest.raises(InputError, match=f"^{says}$"):
        Finder().find([name])


def test_what_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("x")

    def denied(*_: object) -> None:  # not chmod: the superuser may read all
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InputError, match="permission denied"):
        list(read_text(path))


def test_checking_does_not_eat_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="read only once"):
        check_regular(tmp_path / "pipe")


def push_all(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def test_a_character_is_given_out_when_it_is_whole() -> None:
    assert push_all(ByteTokenizer(), ByteTokenizer().encode("é!日")) == ["", "é", "!", "", "", "日", ""]


def test_broken_characters_are_given_out_once_and_never_changed() -> None:
    assert push_all(ByteTokenizer(), [0xE6, 0x97, 0x41, 0xE6]) == ["", "", "\ufffdA", "", "\ufffd"]
    assert "".join(push_all(ByteTokenizer(), [0x80] * 500)) == "\ufffd" * 500
    assert "".join(push_all(ByteTokenizer(), ByteTokenizer().encode("\ufffd" * 200))) == "\ufffd" * 200


def test_a_flushed_detokenizer_starts_anew() -> None:
    detokenizer = Detokenizer(ByteTokenizer())
    assert [detokenizer.push(0xC3), detokenizer.flush(), detokenizer.push(0xA9)] == ["", "\ufffd", ""]


class Words(ByteTokenizer):
    """Ids are words with a space before; the first word's space is dropped, as SentencePiece does."""

    words = ("", "a", "pot", "is", "<0xC3>", "<0xA9>")
    byte_fallback_ids = frozenset({4, 5})

    def __init__(self) -> None:
        self.longest = 0

    def decode(self, ids: object) -> str:
        assert isinstance(ids, list)
        self.longest = max(self.longest, len(ids))
        text = "".join(" " + self.words[i] if i < 4 else "\0" + self.words[i] for i in ids)
        text = text.replace("\0<0xC3>\0<0xA9>", "é")
        return re.sub("\0<0x..>", "\ufffd", text).removeprefix(" ")


@pytest.mark.parametrize(
    "ids", [[1, 2, 3], [0, 0, 1, 0, 2], [4, 5, 1], [1, 4, 5, 4, 2], [1, 5, 4, 5], [0] * 99 + [1]]
)
def test_the_first_space_is_dropped_only_once(ids: list[int]) -> None:
    assert "".join(push_all(Words(), ids)) == Words().decode(ids)


def test_a_token_costs_the_same_late_in_an_answer() -> None:
    words = Words()
    push_all(words, [1, 2, 3, 4, 5] * 500)
    assert words.longest <= 4
    push_all(words, [4, 5] * 500)
    assert words.longest <= 66


def word_ids(text: str) -> Encoded:
    """An encoder that needs no context: words and the gaps between them."""
    found = list(re.finditer(r"\w+|\W", text))
    return [len(m.group()) for m in found], [m.span() for m in found]


def thousands(text: str) -> Encoded:
    """An encoder that needs all that follows: digits in threes, counted from the right."""
    found = list(re.finditer(r"\d{1,3}(?=(?:\d{3})*(?!\d))|\D", text))
    return [int("0" + re.sub(r"\D", "", m.group())) for m in found], [m.span() for m in found]


def neighbours(text: str) -> Encoded:
    """An encoder whose every id depends on what stands sixteen tokens before and after."""
    lengths, spans = word_ids(text)
    padded = [0] * 16 + lengths + [0] * 16
    return [100 * a + b for a, b in zip(padded, padded[32:], strict=False)], spans


@pytest.mark.parametrize("encode", [word_ids, thousands, neighbours])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a bc " * 500,
        "".join(f"{'x' * (k * k % 7)} " for k in range(900)),
        "1234567 " * 100 + "98" * 700 + "a b c " * 100,
    ],
)
@pytest.mark.parametrize("at_words", [False, True])
def test_windows_give_the_ids_of_the_whole(encode: object, text: str, at_words: bool) -> None:
    assert callable(encode)
    streamed = list(encode_windows(encode, iter(text), 64, at_words=at_words))
    assert [i for part in streamed for i in part] == encode(text)[0]


def test_memory_is_bounded_whatever_the_length() -> None:
    sizes: list[int] = []

    def encode(text: str) -> Encoded:
        sizes.append(len(text))
        return word_ids(text)

    def pieces() -> Iterator[str]:
        yield from repeat("a piece of some text, and more. ", 30_000)

    parts = list(encode_windows(encode, pieces(), 4096))
    assert max(sizes) < 4096 * 1.1  # a window and its overlap
    assert sum(sizes) < 30_000 * 32 * 1.1  # and little of it twice
    assert max(map(len, parts)) < 4096


def test_byte_tokenizer_frames_are_plain_to_see() -> None:
    tokenizer: Tokenizer = ByteTokenizer()
    assert tokenizer.frame("chat") == Frame(
        (256, 258), tuple(CHAT_ASK_BEFORE.encode()), (257, 259), (257, 258), (257, 259)
    )
    assert tokenizer.frame("plain").opening == (256,)
    assert tokenizer.decode(tokenizer.frame("plain").ask_before) == PLAIN[0]
    assert tokenizer.stop_ids == {END}
    assert [*tokenizer.encode_stream(["a", "", "é"])] == [[97], [195, 169]]
    assert tokenizer.decode([256, 97, 195, 169, 257]) == "aé"


@given(st.text("abx", max_size=30), st.lists(st.text("abx", min_size=1, max_size=4), max_size=3))
def test_text_ends_before_the_first_stop_and_nothing_of_it_is_shown(text: str, stops: list[str]) -> None:
    until = AnswerText(ByteTokenizer(), stops)
    shown = []
    for token in text.encode():
        shown.append(until.push(token))
        if until.stopped:
            break
    shown.append(until.flush())
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text
    if found:  # the stop that is whole first; of several at once, the longest
        end = min(found)[0]
        expected = text[: min(at for e, at in found if e == end)]
    assert "".join(shown) == expected
    assert until.stopped == bool(found)


def test_roles_become_questions_and_answers() -> None:
    frame = ByteTokenizer().frame("chat")
    parts = ByteTokenizer().dialogue(["system", "user", "assistant", "user", "user"], "chat")
    middle = frame.ask_before
    assert parts == [frame.opening, middle, frame.ask_after, frame.turn_before, middle, frame.turn_after]
