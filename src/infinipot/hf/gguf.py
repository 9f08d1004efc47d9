"""GGUF files: what one says of itself, and a transformers model and tokenizer made from it.

What a file says is written to a folder once (`describe`): reading its vocabulary takes seconds, and
transformers leaves out the BOS a file asks for and most tokens that end a turn. The weights stay in the file,
which is mapped into memory. This module does not know where a file came from.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from filelock import FileLock

from infinipot.common.atomic_files import failing_to
from infinipot.common.extras import needed_for
from infinipot.errors import ModelError, foreign
from infinipot.hf.packed import load as packing
from infinipot.hf.packed.gguf_file import Weights, indexed
from infinipot.hf.packed.gguf_index import Index, places
from infinipot.hf.packed.load import Fill
from infinipot.hf.quick_tokenizer import tokenizer_in
from infinipot.hf.quiet import quiet
from infinipot.models import cache
from infinipot.models.download import discard
from infinipot.models.fingerprint import sampled

# Tokens that end a turn or a text, whichever the file calls its EOS (llama.cpp stops at each of these too).
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>")
_READING = threading.RLock()  # held while readers of one file are one
_WANTED = {
    "architecture": "general.architecture",
    "eos": "tokenizer.ggml.eos_token_id",
    "add_bos": "tokenizer.ggml.add_bos_token",
    "vocabulary": "tokenizer.ggml.model",
    "splitter": "tokenizer.ggml.pre",
}


@dataclass(frozen=True)
class Header:
    """The parts of a GGUF header that loading needs."""

    architecture: str
    add_bos: bool
    eos: int | None
    index: Index


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
        index = Index(told["architecture"], tuple(places(reader)))
        index = replace(index, header=index.header_of(path))
        return Header(told["architecture"], bool(told.get("add_bos", bos)), told.get("eos"), index)


def pull(alias: str) -> cache.Pull:
    """Fetch a model of the catalogue and describe it unless it is installed already, yielding progress."""
    return cache.pull(alias, describe)


@contextmanager
def _read_once() -> Iterator[None]:
    """Let transformers, which reads a header for each thing it wants, get the first reader of a file."""
    with needed_for("a GGUF file", "models"):
        import gguf
    with _READING:
        made, known = gguf.GGUFReader, dict[Path, Any]()

        def reader(path: Path | str) -> Any:
            real = Path(path).resolve()
            if real not in known:
                known[real] = made(path)
            return known[real]

        gguf.GGUFReader = reader  # a class by its call alone
        try:
            yield
        finally:
            gguf.GGUFReader = made


def describe(gguf: Path, folder: Path, alias: str) -> None:
    """Save a GGUF file's tokenizer, config and index."""
    with _read_once():
        _describe(gguf, folder, alias)


def _describe(gguf: Path, folder: Path, alias: str) -> None:
    header = read_header(gguf)
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    remedy = f"is {header.architecture} supported?"
    # Alone in a folder: transformers would take the tokenizer's files that lie beside it for the GGUF's own.
    with TemporaryDirectory() as alone, foreign(f"cannot read {alias}", remedy, but=OSError), quiet():
        (Path(alone) / gguf.name).symlink_to(gguf.resolve())
        source = {"pretrained_model_name_or_path": alone, "gguf_file": gguf.name}
        with needed_for("a GGUF file", "models"):
            import accelerate  # noqa: F401  skeletons are made by it
        config = AutoConfig.from_pretrained(**source)
        tokenizer = AutoTokenizer.from_pretrained(**source)
        if header.add_bos and not adds_bos(tokenizer):
            # transformers drops this flag, and Gemma for one babbles without its BOS. The setter rebuilds
            # the post-processor, which is saved with the tokenizer; the flag itself is not.
            tokenizer.add_bos_token = True
        settings = GenerationConfig.from_model_config(config).to_diff_dict()
        settings.pop("_from_model_config", None)  # else saving takes the one end that the config has
        settings["eos_token_id"] = _ends(tokenizer, header.eos)
        for part in (config, tokenizer, GenerationConfig(**settings)):
            part.save_pretrained(folder)
        known = indexed(packing.skeleton(config, torch.float32), header.index)
    known.check(gguf)
    known.save(folder)


def described(gguf: Path) -> Path:
    """Return the folder that describes a GGUF file; made now where the file was not seen before."""
    if _describes(gguf.parent, gguf):
        return gguf.parent
    status = gguf.stat()
    known = f"{gguf.resolve()} {status.st_size} {status.st_mtime_ns} {cache.STORE_VERSION}"
    folder = cache.root() / "described" / hashlib.sha256(known.encode()).hexdigest()[:16]
    if not _describes(folder, gguf):
        remedy = f"free some space or set INFINIPOT_HOME to a folder you can write (now {cache.root()})"
        with failing_to(f"describe {gguf.name}", remedy, kind=ModelError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                _describe_anew(gguf, folder)
    return folder


def _describes(folder: Path, gguf: Path) -> bool:
    """Say whether a folder has a description, and of this file: another one may lie beside it."""
    if not (folder / Index.FILE).is_file():
        return False
    index = Index.load(folder)
    return index.header == index.header_of(gguf)


def _describe_anew(gguf: Path, folder: Path) -> None:
    """Put a description of a file in its place; the caller holds its lock."""
    if _describes(folder, gguf):  # another process made it while this one waited
        return
    discard(new := folder.with_suffix(".new"))
    new.mkdir()
    try:
        describe(gguf, new, str(gguf))
        discard(folder)
        new.replace(folder)
    finally:
        discard(new)


def load_gguf(
    path: Path, dtype: torch.dtype, rounded: int | None = None, fill: Fill | None = None
) -> tuple[Any, Any, str]:
    """Return model, tokenizer and what the weights are known by.

    rounded  None unpacks all weights to `dtype`; otherwise weights stay in their blocks, and those
             that are floats in the file are rounded to this format (0: they stay floats).
    fill     puts the weights into their places on another device than the CPU.
    """
    from transformers import AutoConfig, GenerationConfig

    folder = described(path)
    index = Index.load(folder)
    with foreign(f"cannot load {path}", "is the file complete?"), quiet():
        config = AutoConfig.from_pretrained(folder)
        model = packing.skeleton(config, dtype)
        names = list(model.state_dict())
        weights = Weights.of(model, path, index, rounded or 0)
        fill(model, weights) if fill else packing.fill(model, weights, dtype, packed=rounded is not None)
        model.generation_config = GenerationConfig.from_pretrained(folder)
        tokenizer = tokenizer_in(folder)
        known = sampled(weights.samples(names))
    return model, tokenizer, known


def adds_bos(tokenizer: Any) -> bool:
    """Whether encoding puts a BOS in front; the tokenizer's own flag is wrong after a reload."""
    first = tokenizer("a").input_ids[:1]
    return tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]


def _ends(tokenizer: Any, eos: int | None) -> list[int]:
    # The EOS comes from the file: transformers 5.17 takes a wrong one for some tokenizers.
    special = tokenizer.get_added_vocab()
    found = {special[token] for token in END_TOKENS if token in special}
    return sorted(found if eos is None else found | {eos})
