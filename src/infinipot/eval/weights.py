"""Which weights gave these results: one hash per model, cheap and the same on every machine.

A model of the catalogue has the hash of the file it was made from, a model in one file that file's own;
any other is known by the names and shapes of its tensors and evenly spaced values of each.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from infinipot.engine import Engine
from infinipot.models import catalog
from infinipot.models.fingerprint import tensors
from infinipot.models.sample import sampled


def fingerprint(engine: Engine) -> str:
    """Return how a model is recognised: `file:` or `sample:` and a SHA-256."""
    if release := catalog.get(engine.name):
        return f"file:{release.sha256}"
    if file := _only_file(Path(engine.name).expanduser()):
        with file.open("rb") as stream:
            return f"file:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    return f"sample:{engine.sample or sampled(tensors(engine.model))}"


def _only_file(path: Path) -> Path | None:
    if path.is_file():
        return path
    files = [*path.glob("*.safetensors")] if path.is_dir() else []
    return files[0] if len(files) == 1 else None
