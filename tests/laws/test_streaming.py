"""Streaming loses nothing: in as out, piece by piece as whole, for every build of tokenizer."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infinipot.hf.tokenizer import HFTokenizer
from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.detokenize import Detokenizer
from infinipot.text.tokenizer import CHAT_ASK_BEFORE, Tokenizer
from small_tokenizers import BYTE_LEVEL, NAMES, TEXT, WITH_CHAT, build

CONTROL = (
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<think>",
        "</think>",
        "<s>",
        "</s>",
        "<unk>",
        "<bos>",
        "<eos>",
    ),
    *(
        "<start_of_turn>",
        "<end_of_turn>",
        "<|begin|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    ),
)
ODD = (
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "é",
    "e\u0301",
    "日本",
    "👩‍👩‍👧",
    "🙂",
    "\ufffd",
    "▁",
    "7",
    "'s",
    "...",
    "_",
    "ab",
)
runs = st.builds(lambda atom, count: atom * count, st.sampled_from(ODD), st.integers(1, 40))
words = st.sampled_from(" ".join(TEXT).split(" ")).map(lambda word: " " + word)
atoms = st.one_of(words, words, runs, st.sampled_from(CONTROL), st.text(max_size=5))
texts = st.lists(atoms, max_size=60).map("".join)
each = pytest.mark.parametrize("name", NAMES)


@cache
def tokenizer(name: str) -> HFTokenizer:
    # The smallest window in which windows still find an overlap to agree on, so as to stitch often.
    return HFTokenizer(build(name), window=64)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """The text cut at the given places, taken modulo its length."""
    marks = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(marks)]


@each
@example(text="." * 69, cuts=[])  # Unigram: all that counts is how many, not which
@given(text=texts, cuts=st.lists(st.integers(0, 10_000), max_size=30))
def test_a_stream_has_the_ids_of_the_whole(name: str, text: str, cuts: list[int]) -> None:
    streamed = list(tokenizer(name).encode_stream(pieces(text, cuts)))
    assert [token for part in streamed for token in part] == tokenizer(name).encode(text)
    assert all(streamed)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@given(text=texts)
def test_byte_level_ids_decode_to_the_text(name: str, text: str) -> None:
    assert tokenizer(name).decode(tokenizer(name).encode(text)) == text


@each
@given(text=texts)
def test_no_text_yields_a_control_token(name: str, text: str) -> None:
    ids = tokenizer(name).encode(text + "".join(CONTROL))
    tokens = set(build(name).convert_ids_to_tokens(ids))
    assert not tokens & set(CONTROL)


def detokenized(ours: Tokenizer, ids: list[int]) -> str:
    detokenizer = Detokenizer(ours)
    return "".join([detokenizer.push(token) for token in ids]) + detokenizer.flush()


@each
@given(text=texts)
def test_a_detokenizer_gives_what_decoding_all_gives(name: str, text: str) -> None:
    ids = tokenizer(name).encode(text)
    assert detokenized(tokenizer(name), ids) == tokenizer(name).decode(ids)


@each
@given(data=st.data())
def test_a_detokenizer_bears_any_tokens(name: str, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(build(name)) - 1), max_size=60))
    assert detokenized(tokenizer(name), ids) == tokenizer(name).decode(ids)


@given(ids=st.lists(st.one_of(st.integers(0, 259), st.integers(128, 255)), max_size=300))
def test_a_detokenizer_bears_any_bytes(ids: list[int]) -> None:
    assert detokenized(ByteTokenizer(), ids) == ByteTokenizer().decode(ids)


@pytest.mark.parametrize("name", [name for name in WITH_CHAT if name not in ("llama2", "unigram")])
@given(document=texts, question=texts, answer=texts, again=texts)
def test_a_chat_reads_as_its_template_renders_it(
    name: str, document: str, question: str, answer: str, again: str
) -> None:
    hf, ours = build(name), tokenizer(name)
    frame = ours.frame("chat")
    # Brackets, because templates strip; no "▁", because SentencePiece cannot tell it from a space.
    document, question, answer, again = (
        f"[{text.replace('▁', '')}]" for text in (document, question, answer, again)
    )
    first = [
        *frame.opening,
        *ours.encode(document),
        *frame.ask_before,
        *ours.encode(question),
        *frame.ask_after,
    ]
    messages = [{"role": "user", "content": document + CHAT_ASK_BEFORE + question}]
    assert ours.decode(first) == hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = [*ours.encode(answer), *frame.turn_before, *ours.encode(again), *frame.turn_after]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": again}]
    rendered = hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered.endswith(ours.decode(ids))
