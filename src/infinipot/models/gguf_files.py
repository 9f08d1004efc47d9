"""GGUF files: their header, and a transformers model and tokenizer made from them.

transformers unpacks the weights; this module repairs what it leaves out (the
BOS a file asks for, every token that ends a turn) and turns its many ways of
failing into one line. It does not know where a file came from or where a
converted copy goes.
"""

from __future__ import annotations

import math
import mmap
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from typing import Any

from infinipot.errors import ModelError

# Tokens that end a turn or a text, whichever the file calls its EOS (llama.cpp stops at each of these too).
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>")
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself; `sizes` are the element counts of its tensors."""

    architecture: str
    add_bos: bool
    eos: int | None
    sizes: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(self.sizes)

    @property
    def converting_bytes(self) -> int:
        """Peak memory of unpacking to float16: the model, and the largest tensor in float32 three times."""
        return 2 * self.parameters + 12 * max(self.sizes, default=0)


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, layout: str) -> Any:
        (value,) = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return value

    def text(self) -> str:
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        """One metadata value; the contents of arrays are skipped."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.take(_SCALARS[kind])
        element, count = self.take("I"), self.take("Q")
        if element in _SCALARS:
            self.at += count * struct.calcsize("<" + _SCALARS[element])
        else:
            for _ in range(count):
                length = self.take("Q")
                self.at += length
        return None


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file; a file that is no GGUF or is cut short is a ModelError."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data)
    except (OSError, ValueError, KeyError, IndexError, struct.error, OverflowError) as error:
        raise ModelError(f"{path} is not a whole GGUF file ({error}): download it again") from error


def _parse(data: mmap.mmap) -> Header:
    if data[:4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    cursor = _Cursor(data)
    cursor.at = 4
    version, tensors, values = cursor.take("I"), cursor.take("Q"), cursor.take("Q")
    if version not in (2, 3):
        raise ValueError(f"version {version} is not supported")
    meta = {cursor.text(): cursor.value(cursor.take("I")) for _ in range(values)}
    sizes, end = [], 0
    for _ in range(tensors):
        cursor.text()
        count = math.prod(cursor.take("Q") for _ in range(cursor.take("I")))
        kind, offset = cursor.take("I"), cursor.take("Q")
        sizes.append(count)
        end = max(end, offset + _stored_bytes(kind, count))
    align = meta.get("general.alignment", 32)
    if -(-cursor.at // align) * align + end > len(data):
        raise ValueError("it is cut short")
    eos = meta.get("tokenizer.ggml.eos_token_id")
    return Header(meta["general.architecture"], _wants_bos(meta), eos, tuple(sizes))


def _stored_bytes(kind: int, count: int) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, width = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    return int(count // block * width)


def _wants_bos(meta: dict[str, Any]) -> bool:
    """What the file says, else llama.cpp's default for its kind of vocabulary."""
    default = meta.get("tokenizer.ggml.model") == "llama" or meta.get("tokenizer.ggml.pre") == "llama-bpe"
    return bool(meta.get("tokenizer.ggml.add_bos_token", default))


def load_gguf(path: Path, dtype: Any) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GGUF file with its weights unpacked to `dtype`."""
    header = read_header(path)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                **source, quantization_config=GgufConfig(dequantize=True), dtype=dtype
            )
            tokenizer = AutoTokenizer.from_pretrained(**source)
    except Exception as error:  # foreign code and files: anything can fail
        raise ModelError(
            f"cannot read {path} ({one_line(error)}): is {header.architecture} supported?"
        ) from error
    if header.add_bos and not adds_bos(tokenizer):
        # transformers drops this flag, and Gemma for one babbles without its BOS. The setter rebuilds
        # the post-processor, which is saved with the tokenizer; the flag itself is not.
        tokenizer.add_bos_token = True
    _set_ends(model, tokenizer, header.eos)
    return model, tokenizer


def adds_bos(tokenizer: Any) -> bool:
    """Whether encoding puts a BOS in front; the tokenizer's own flag is wrong after a reload."""
    first = tokenizer("a").input_ids[:1]
    return tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]


def _set_ends(model: Any, tokenizer: Any, eos: int | None) -> None:
    # The EOS comes from the file: transformers 5.17 takes a wrong one for some tokenizers.
    special = tokenizer.get_added_vocab()
    ends = {special[token] for token in END_TOKENS if token in special}
    if eos is not None:
        ends.add(eos)
    model.generation_config.eos_token_id = sorted(ends)
    # Else it counts as derived from the model's config, which knows one of them only.
    model.generation_config._from_model_config = False


def one_line(error: BaseException) -> str:
    """The first line of an error, for a message that must stay one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and warnings from the user for a while; errors still come through."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    bars, level, hub_level = (
        logging.is_progress_bar_enabled(),
        logging.get_verbosity(),
        hub_logging.get_verbosity(),
    )
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)
    try:
        with _no_gguf_bar(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _no_gguf_bar() -> Iterator[None]:
    """Silence the one bar that comes from a tqdm of its own, past transformers' switch."""
    from transformers import modeling_gguf_pytorch_utils as module

    original = getattr(module, "tqdm", None)
    if original is None:
        yield
        return
    module.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        module.tqdm = original
