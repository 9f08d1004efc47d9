"""From a name to a model that is ready to read: find it, check that it fits, load it.

A name is an alias of the catalogue, a folder, a GGUF file or a hub id, tried in that order. Code that
comes with a model is never run. Does not know what a pot is.
"""

import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from infinipot.common.out_of_memory import out_of_memory
from infinipot.common.suggest import find
from infinipot.errors import ConfigError, ModelError, foreign
from infinipot.hf.cuda.load import filler
from infinipot.hf.gguf import adds_bos, described, load_gguf, pull
from infinipot.hf.packed.choice import IN_FULL, Choice, choose_weights, choose_what_fits
from infinipot.hf.packed.gguf_index import Index
from infinipot.hf.packed.hub import load_rounded
from infinipot.hf.quiet import quiet
from infinipot.models import cache, catalog, memory
from infinipot.models.cache import Pull
from infinipot.models.catalog import ALIASES, DEFAULT_MODEL
from infinipot.models.download import Progress
from infinipot.text.tokenizer import Format

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # a user's own word counts
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class Loaded:
    """A model in eval mode without gradients, and what a prompt for it needs."""

    model: Any  # transformers' own, and its tokenizer
    tokenizer: Any
    format: Format
    add_bos: bool  # a text must begin with `tokenizer.bos_token_id`, as it does unless told otherwise
    sample: str = ""  # what the weights are known by, where they were not all unpacked
    choice: Choice = IN_FULL  # how the weights are held, and why


def load(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    on_pull: Callable[[Pull], None] | None = None,
    weights: str = "full",
) -> Loaded:
    """Load a model by alias, folder, GGUF file or hub id; an alias that is missing is pulled first."""
    place, release = choose_device(device), catalog.get(name)
    source = _resolve(name)
    choose_weights(weights, place, choose_dtype(dtype, place), None)  # refused before a long download
    if release and not cache.card(name):
        (on_pull or deque[Progress](maxlen=0).extend)(pull(name))
    if source is not None and (source / cache.GGUF).is_file():  # a folder that was pulled by name
        source /= cache.GGUF
    with foreign(f"{name} has a damaged config or weight file", "download it again"):
        family, count, index = _measured(name, source)
        kind = choose_dtype(dtype, place, family)
        choice = choose_weights(weights, place, kind, index)
        if weights == "auto" and place.type == "cuda":
            choice = choose_what_fits(place, kind, index, count, memory.available(str(place)))
        needed = choice.bytes(count, kind.itemsize, index)
        how = choice.how or str(kind).removeprefix("torch.")
        # Before the machine begins to swap: weights pass through the host's memory on their way to a device.
        for on in ("cpu", str(place)) if place.type == "cuda" else ("cpu",):
            memory.require(name, needed, memory.available(on), _advice(name, kind), how=f" in {how}")
    try:
        model, tokenizer, sample = read_model(name, source, kind, choice, place)
        model = model.to(place)
    except Exception as error:  # out of memory has no common type; all else goes on
        if out_of_memory(error):
            raise ModelError(f"{name} does not fit into memory", remedy=_advice(name, kind)) from error
        raise
    model.eval().requires_grad_(False)
    if choice.packed and place.type == "cpu":  # what passes is then a large part of all
        memory.give_back()
    known: Format = "chat" if tokenizer.chat_template else "plain"
    form = release.format if release else known
    return Loaded(model, tokenizer, form, adds_bos(tokenizer), sample, choice)


def choose_device(device: str) -> torch.device:
    """Return the device of that name; `auto` takes CUDA, then MPS, then the CPU."""
    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there = ["cuda", *(f"cuda:{n}" for n in range(torch.cuda.device_count())), *there]
        if sys.platform == "linux" and not any(name in os.environ for name in ALLOCATOR):
            os.environ[ALLOCATOR[0]] = "expandable_segments:True"  # torch reads it at its first allocation
    if device == "auto":
        return torch.device(there[0])
    if device in there:
        return torch.device(device)
    remedy = f"use one of auto, {', '.join(there)}"
    raise ConfigError(f"device '{device}' is not there", field="device", remedy=remedy)


def choose_dtype(dtype: str, device: torch.device, family: str = "") -> torch.dtype:
    """Return the dtype of that name; `auto` takes what the device computes fastest and the family stands."""
    if dtype != "auto":
        return find("dtype", dtype, DTYPES, field="dtype")
    if device.type == "cpu":
        return torch.float32  # bfloat16 is two to three times slower there
    # Older cards only emulate bfloat16, slowly.
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    # Gemma's activations exceed float16 and turn into NaN.
    return torch.float32 if family.startswith("gemma") else torch.float16


def _resolve(name: str) -> Path | None:
    """Return the folder or GGUF file a name stands for; None means the hub."""
    if catalog.get(name):
        return cache.path(name)
    path = Path(name).expanduser()
    if (path / "config.json").is_file():
        return path
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        remedy = f"give the file itself: {files[0]}" if files else "is it a folder saved by transformers?"
        raise ModelError(f"folder {path} has no config.json", remedy=remedy)
    if path.is_file():
        if path.suffix == ".gguf":
            return path
        raise ModelError(f"{name} is not a model", remedy="give a .gguf file or a folder with a config.json")
    if name.startswith((".", "/", "~")) or path.suffix == ".gguf":
        raise ModelError(f"there is no file or folder {name}", field="model")
    if not _HUB_ID.fullmatch(name):
        raise catalog.unknown(name, "; or give a hub id such as org/name, a folder, or a .gguf file")
    return None


def _measured(name: str, source: Path | None) -> tuple[str, Callable[[float], int], Index | None]:
    """The kind of model, empty when only loading can tell, its bytes at so many a value, a GGUF's index."""
    if source is None:
        return "", lambda itemsize: _hub_bytes(name, itemsize), None
    if source.is_file():
        index = Index.load(described(source))
        return index.architecture, lambda itemsize: int(index.parameters * itemsize), index
    with foreign(f"cannot read {source / 'config.json'}"):
        config = json.loads((source / "config.json").read_text("utf-8"))
    return str(config.get("model_type", "")), lambda itemsize: memory.folder_bytes(source, itemsize), None


def _hub_bytes(name: str, itemsize: float) -> int:
    """Ask the local copy, else the hub, which fails at once where transformers would retry for a minute."""
    import huggingface_hub

    cached = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str):
        return memory.folder_bytes(Path(cached).parent, itemsize)
    remedy = f"check the name and the connection, or use one of {', '.join(ALIASES)}"
    with foreign(f"cannot find {name} on the model hub", remedy):
        weights = huggingface_hub.model_info(name, timeout=10).safetensors
    # Without safetensors the size is not known before the download; loading will tell.
    return int(weights.total * itemsize) if weights else 0


def _advice(name: str, dtype: torch.dtype) -> str:
    ways = ["`dtype` bfloat16"] if dtype == torch.float32 else []
    ways += [f"a smaller model such as {DEFAULT_MODEL}"] if name != DEFAULT_MODEL else []
    return "try " + ", ".join([*ways, "or a machine with more memory"]) if ways else "use a larger machine"


def read_model(
    name: str, source: Path | None, dtype: torch.dtype, choice: Choice, device: torch.device
) -> tuple[Any, Any, str]:
    """Return model, tokenizer and fingerprint of a folder, a GGUF file, or of the hub without a source."""
    fill = filler(choice.on_card, device, dtype) if choice.on_card else None
    if source is not None and source.is_file():
        return load_gguf(source, dtype, choice.rounded, fill)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = str(source or name)
    remedy = "check the name and the connection" if source is None else "is the folder complete?"
    with foreign(f"cannot load {name}", remedy), quiet():
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        if fill or choice.rounded:
            kind = dtype if fill else torch.float32
            model, known = load_rounded(where, choice.rounded or 0, kind, fill)
            return model, tokenizer, known
        model = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, trust_remote_code=False)
    return model, tokenizer, ""
