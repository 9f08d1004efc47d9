"""Small tokenizers of every common build, trained on the spot: no downloads."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer
from transformers import PreTrainedTokenizerFast

TEXT = (
    """The pot holds what the reader has read; when the pot is full it is distilled, and reading goes on.
  Il n'est pas certain que tout soit incertain. Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.\r
日本語の文章には空白がない。だから長い。 Съешь же ещё этих мягких французских булок. 👩‍👩‍👧 🙂🙂
def read(self, tokens):\n    while tokens:\n        tokens = self.take(tokens[:128])  # 1234567890 2024\n\n
<user> she said: "it's <b>bold</b>, they'll see, don't they?" -- 'tis so... start end turn of im in the text
""".splitlines(keepends=True)
    * 3
)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a pot.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
TURNS = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
INST = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token }}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }} {{ eos_token }}{% endif %}{% endfor %}"
)


def _trained(tokenizer: Tokenizer, size: int = 700) -> tuple[dict[str, int], list[Any]]:
    alphabet = pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in str(tokenizer.pre_tokenizer) else []
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _byte_level(split: Any, trim: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    _trained(tokenizer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    return tokenizer


def _regex(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _sentencepiece(prefix: bool, extra: tuple[str, ...] = ()) -> Tokenizer:
    """BPE over the whole text as one word, spaces as ▁, unknown characters as bytes."""
    draft = Tokenizer(BPE())
    draft.pre_tokenizer = pre_tokenizers.Metaspace()
    vocab, merges = _trained(draft)
    names = ["<unk>", "<s>", "</s>", *extra, *(f"<0x{b:02X}>" for b in range(256)), *vocab]
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(chain)
    return tokenizer


def _unigram() -> Tokenizer:
    """Control tokens as ordinary entries, which only the guard keeps out of texts."""
    draft = Tokenizer(Unigram())
    draft.pre_tokenizer = pre_tokenizers.Metaspace()
    draft.train_from_iterator(TEXT, UnigramTrainer(vocab_size=400, show_progress=False))
    pieces = [tuple(piece) for piece in json.loads(draft.to_str())["model"]["vocab"]]
    control = [(name, 0.0) for name in ("<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")]
    raw = [(f"<0x{b:02X}>", -20.0) for b in range(256)]
    known = {name for name, _ in control + raw}
    tokenizer = Tokenizer(
        Unigram(control + raw + [p for p in pieces if p[0] not in known], unk_id=0, byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]
    )
    return tokenizer


def _begin(tokenizer: Tokenizer, name: str) -> None:
    tokenizer.add_special_tokens([AddedToken(name, special=True)])
    add = processors.TemplateProcessing(f"{name} $A", special_tokens=[(name, tokenizer.token_to_id(name))])
    before = tokenizer.post_processor
    tokenizer.post_processor = processors.Sequence([before, add]) if before else add


def _wrap(tokenizer: Tokenizer, template: str | None, special: list[str], **names: str) -> Any:
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **names)


@cache
def build(name: str) -> Any:
    """Return the named tokenizer; it is shared, so do not change it."""
    chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    if name == "gpt2":
        return _wrap(_byte_level(_regex(GPT2), trim=True), None, chatml[:1], eos_token="<|endoftext|>")
    if name == "digits":
        split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _regex(GPT2)])
        return _wrap(_byte_level(split), CHATML.replace("<think>\n\n</think>\n", ""), chatml)
    if name == "qwen":
        tokenizer = _byte_level(_regex(QWEN))
        tokenizer.add_tokens(["<think>", "</think>"])  # not special: split_special_tokens keeps them
        return _wrap(tokenizer, CHATML, chatml, eos_token="<|endoftext|>")
    if name == "llama3":
        tokenizer = _byte_level(_regex(LLAMA3), trim=True)
        _begin(tokenizer, "<|begin|>")
        special = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"]
        return _wrap(tokenizer, HEADERS, special, bos_token="<|begin|>", eos_token="<|end_of_text|>")
    if name == "llama2":
        tokenizer = _sentencepiece(prefix=True)
        _begin(tokenizer, "<s>")
        return _wrap(
            tokenizer, INST, ["<unk>", "<s>", "</s>"], bos_token="<s>", eos_token="</s>", unk_token="<unk>"
        )
    turns = ["<start_of_turn>", "<end_of_turn>"]
    if name == "gemma":
        tokenizer = _sentencepiece(prefix=False, extra=("<bos>", "<eos>", *turns, "\n"))
        tokenizer.add_tokens(["\n", "\n\n"])  # added, in the template, and yet ordinary text
        special = ["<unk>", "<bos>", "<eos>", *turns]
        return _wrap(tokenizer, TURNS, special, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    assert name == "unigram"
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return _wrap(_unigram(), TURNS, ["<unk>", "<bos>", "<eos>"], **names)


BYTE_LEVEL = ("gpt2", "digits", "qwen", "llama3")
NAMES = (*BYTE_LEVEL, "llama2", "gemma", "unigram")
WITH_CHAT = tuple(name for name in NAMES if name != "gpt2")
