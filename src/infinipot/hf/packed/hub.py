"""A model of float weights, from a folder or the hub, rounded to few bits while it is loaded, one by one."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from infinipot.errors import ModelError
from infinipot.hf.packed import load as packing
from infinipot.hf.packed.blocks import Blocks, fitting, packed
from infinipot.hf.packed.load import Fill
from infinipot.models.fingerprint import sampled


@dataclass(frozen=True)
class Files:
    """Weights in safetensors files; a source for `load.fill`."""

    opened: dict[str, Any]  # the file of each name
    kind: int  # 0: nothing is rounded here

    def has(self, name: str) -> bool:
        """Say whether there is such a weight."""
        return name in self.opened

    def values(self, name: str) -> Tensor:
        """Return a weight as it is."""
        found: Tensor = self.opened[name].get_tensor(name)
        return found

    def blocks(self, name: str) -> Blocks | None:
        """Return a weight rounded, where its width allows."""
        if not self.kind:
            return None
        found = self.values(name)
        kind = fitting(self.kind, found.shape[1]) if found.ndim == 2 else None
        return packed(found, kind) if kind else None

    def samples(self, model: Any, plain: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield what a fingerprint is taken of, for the plain model's weights: all are known by the files."""
        embedding = model.get_input_embeddings()
        tied = next(f"{name}.weight" for name, module in model.named_modules() if module is embedding)
        for name, weight in plain.items():
            found = name if self.has(name) else tied if weight.is_meta else ""
            yield name, self.values(found) if found else weight  # a buffer that no file has


def load_rounded(where: str, kind: int, dtype: torch.dtype, fill: Fill | None = None) -> tuple[Any, str]:
    """Return the model of a folder or a hub id, its matrices in a packed format, and what it is known by.

    `fill` puts the weights into their places on another device than the CPU.
    """
    from transformers import AutoConfig, GenerationConfig

    folder = Path(where) if Path(where).is_dir() else _fetched(where)
    model = packing.skeleton(AutoConfig.from_pretrained(folder), dtype)
    plain = model.state_dict()
    with ExitStack() as stack:
        files = Files(_opened(folder, stack), kind)
        fill(model, files) if fill else packing.fill(model, files, dtype, packed=True)
        known = sampled(files.samples(model, plain))
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model, known


def _fetched(name: str) -> Path:
    import huggingface_hub

    wanted = ["*.json", "*.safetensors"]
    return Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))


def _opened(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """Open the files that an index names, or all; the name of each weight and its file."""
    index = folder / "model.safetensors.index.json"
    names = {path.name for path in folder.glob("*.safetensors")}
    if index.is_file():
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    if not names:
        raise ModelError("its weights are not in safetensors files", remedy="use `weights` full")
    files = [stack.enter_context(safe_open(folder / name, "pt")) for name in sorted(names)]
    return {name: file for file in files for name in file.keys()}  # noqa: SIM118  no mapping
