"""Which weights gave these results: one hash per model, cheap and the same on every machine.

A model of the catalogue has the hash of the file it was made from, a model in one file that file's own;
any other is known by the names and shapes of its tensors and evenly spaced values of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infinipot.api import Engine
from infinipot.hf import catalog
from infinipot.hf.sample import sampled


def fingerprint(engine: Engine) -> str:
    """Return how a model is recognised: `file:` or `sample:` and a SHA-256."""
    if release := catalog.get(engine.name):
        return f"file:{release.sha256}"
    if file := _only_file(Path(engine.name).expanduser()):
        with file.open("rb") as stream:
            return f"file:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    return f"sample:{engine.sample or sampled(_tensors(engine.model))}"


def _only_file(path: Path) -> Path | None:
    if path.is_file():
        return path
    files = [*path.glob("*.safetensors")] if path.is_dir() else []
    return files[0] if len(files) == 1 else None


def _tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """A transformers model knows its weights; any other is searched for tensors."""
    if isinstance(inner := getattr(model, "model", None), torch.nn.Module):
        yield from inner.state_dict().items()
    else:
        yield from _found("", vars(model))


def _found(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _found(f"{name}.{key}", part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _found(f"{name}.{index}", part)
