"""GGUF files: what one says of itself, and a transformers model and tokenizer made from it.

transformers unpacks the weights; this module repairs what it leaves out (the BOS a file asks for, every token
that ends a turn) and turns its many ways of failing into one line. It does not know where a file came from.
"""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from typing import Any

from infinipot.common.extras import needed_for
from infinipot.errors import foreign
from infinipot.models import cache, memory

# Tokens that end a turn or a text, whichever the file calls its EOS (llama.cpp stops at each of these too).
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>")
_WANTED = {
    "architecture": "general.architecture",
    "eos": "tokenizer.ggml.eos_token_id",
    "add_bos": "tokenizer.ggml.add_bos_token",
    "vocabulary": "tokenizer.ggml.model",
    "splitter": "tokenizer.ggml.pre",
}


@dataclass(frozen=True)
class Header:
    """The parts of a GGUF header that loading needs; `sizes` are the element counts of its tensors."""

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


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file; a file that is no GGUF or is cut short is a ModelError."""
    with needed_for("a GGUF file", "models"):
        from gguf import GGUFReader
    with foreign(f"{path} is not a whole GGUF file", "download it again"):
        reader = GGUFReader(path)  # maps the file into memory, and finds a tensor that is cut off
        fields = {name: reader.get_field(key) for name, key in _WANTED.items()}
        told: dict[str, Any] = {name: field.contents() for name, field in fields.items() if field}
        # What the file says, else llama.cpp's default for its kind of vocabulary.
        bos = told.get("vocabulary") == "llama" or told.get("splitter") == "llama-bpe"
        sizes = tuple(int(tensor.n_elements) for tensor in reader.tensors)
        return Header(told["architecture"], bool(told.get("add_bos", bos)), told.get("eos"), sizes)


def pull(alias: str) -> cache.Pull:
    """Fetch a model of the catalogue and convert it unless it is installed already, yielding progress."""
    return cache.pull(alias, convert)


def convert(gguf: Path, folder: Path, alias: str) -> bool:
    """Save a GGUF file's model and tokenizer as float16; return whether its texts begin with BOS."""
    import torch

    advice = "close other programs, or pull on a machine with more memory and copy the folder"
    memory.require(f"converting {alias}", read_header(gguf).converting_bytes, memory.available(), advice)
    model, tokenizer = load_gguf(gguf, torch.float16)  # its error, 2^-11, is far below that of 4-bit weights
    with foreign(f"cannot convert {alias}", "please report this", but=OSError), quiet():
        # One file however large the model: nothing here is loaded in parts.
        model.save_pretrained(folder, max_shard_size="1TB")
        tokenizer.save_pretrained(folder)
    with_bos = adds_bos(tokenizer)
    del model
    gc.collect()
    return with_bos


def load_gguf(path: Path, dtype: Any) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GGUF file with its weights unpacked to `dtype`."""
    header = read_header(path)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with foreign(f"cannot read {path}", f"is {header.architecture} supported?"):
        with needed_for("a GGUF file", "models"):
            import accelerate  # noqa: F401  transformers loads through it
        with quiet():
            unpacked = GgufConfig(dequantize=True)
            model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=unpacked, dtype=dtype)
            tokenizer = AutoTokenizer.from_pretrained(**source)
    if header.add_bos and not adds_bos(tokenizer):
        # transformers drops this flag, and Gemma for one babbles without its BOS. The setter rebuilds
        # the post-processor, which is saved with the tokenizer; the flag itself is not.
        tokenizer.add_bos_token = True
    settings = model.generation_config.to_diff_dict()
    settings.pop("_from_model_config", None)  # else saving takes the one end that the model's config has
    settings["eos_token_id"] = _ends(tokenizer, header.eos)
    model.generation_config = GenerationConfig(**settings)
    return model, tokenizer


def adds_bos(tokenizer: Any) -> bool:
    """Whether encoding puts a BOS in front; the tokenizer's own flag is wrong after a reload."""
    first = tokenizer("a").input_ids[:1]
    return tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]


def _ends(tokenizer: Any, eos: int | None) -> list[int]:
    # The EOS comes from the file: transformers 5.17 takes a wrong one for some tokenizers.
    special = tokenizer.get_added_vocab()
    found = {special[token] for token in END_TOKENS if token in special}
    return sorted(found if eos is None else found | {eos})


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and warnings from the user for a while; errors still come through."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers import modeling_gguf_pytorch_utils as unpacking
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    hub_level, own_bar = hub_logging.get_verbosity(), getattr(unpacking, "tqdm", None)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)
    if own_bar is not None:  # past transformers' switch
        unpacking.tqdm = lambda items, **_: items
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if own_bar is not None:
            unpacking.tqdm = own_bar
        logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()
