from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from infinipot.hf.quick_tokenizer import SETTINGS, same, tokenizer_in

COPY = f"quick-{transformers.__version__}"
TEXT = "Cafe\u0301 <|im_end|> at 12"


def letters() -> dict[str, int]:
    pieces = [chr(number) for number in (*range(33, 127), *range(161, 173), *range(174, 324))]
    return {piece: number for number, piece in enumerate([*pieces, "at", "<|endoftext|>", "<|im_end|>"])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Qwen2Tokenizer(vocab=letters(), merges=[("a", "t")], eos_token="<|im_end|>")  # type: ignore[no-untyped-call]
    made.chat_template = "{{ messages[0].content }}"
    made.save_pretrained(tmp_path)
    return tmp_path


def ids(tokenizer: Any) -> list[int]:
    return list(tokenizer(TEXT).input_ids)


def test_second_start_reads_a_copy_that_is_the_same_in_every_respect(folder: Path) -> None:
    plain = AutoTokenizer.from_pretrained(folder)
    first, second = tokenizer_in(folder), tokenizer_in(folder)
    assert (type(first), type(second)) == (Qwen2Tokenizer, PreTrainedTokenizerFast)
    assert same(first, plain)
    assert same(second, plain)
    assert ids(first) == ids(second) == ids(plain)
    assert second.chat_template == plain.chat_template
    assert second.decode(ids(second)) == plain.decode(ids(plain))


def test_tokenizer_that_does_something_of_its_own_is_not_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Qwen2Tokenizer, "decode", lambda *_, **__: "", raising=False)
    for _ in range(2):
        assert type(tokenizer_in(folder)) is Qwen2Tokenizer
    assert json.loads((folder / COPY / SETTINGS).read_text("utf-8")) == {}


def test_other_special_tokens_or_texts_are_not_the_same(folder: Path) -> None:
    plain, other = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert same(plain, other)
    other.eos_token = "<|endoftext|>"
    assert not same(plain, other)
    other = AutoTokenizer.from_pretrained(folder)
    other.backend_tokenizer.normalizer = None
    assert not same(plain, other)


def test_folder_that_cannot_be_written_has_its_own_tokenizer(folder: Path) -> None:
    (folder / COPY).write_text("in the way", "utf-8")
    assert type(tokenizer_in(folder)) is type(tokenizer_in(folder)) is Qwen2Tokenizer
