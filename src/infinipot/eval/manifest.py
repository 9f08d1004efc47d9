"""What a run was: everything that must be the same for its rows to belong together; when and where it ran."""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import infinipot
from infinipot.eval.tasks.task import Example

FORMAT = 1
PACKAGES = ("infinipot", "torch", "transformers")
IDENTITY = ("format", "task", "options", "seed", "model", "examples", "versions")
"""Parts in which two runs must agree to be one; the model's name is not among them, its weights are."""
LATER = ("model file", "model held")  # earlier manifests do not tell these: no difference by itself
EARLIER = {"units": "slots"}  # what cells had that do not tell it
Manifest = dict[str, Any]


def made(cells: Mapping[str, Any], hardware: str, **identity: Any) -> Manifest:
    """Return the manifest of a run that starts now; `identity` is task, options, seed, model and examples."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    session = {"started": started, "hardware": hardware, "commit": commit()}
    return {"format": FORMAT, **identity, "versions": versions(), "cells": cells, "sessions": [session]}


def versions() -> dict[str, str]:
    """Return the versions that rows of one run are made with."""
    return {**{name: version(name) for name in PACKAGES}, "python": platform.python_version()}


def differences(old: Manifest, new: Manifest, cells: bool = True) -> list[str]:
    """Say, each in a few words, in what two manifests differ; cells that only one has are no difference."""
    parts = [_flat({name: manifest.get(name) for name in IDENTITY}) for manifest in (old, new)]
    if cells:
        common = [name for name in new["cells"] if name in old.get("cells", {})]
        for flat, manifest in zip(parts, (old, new), strict=True):
            flat |= _flat({f"cell {name!r}": EARLIER | manifest["cells"][name] for name in common})
    mine, yours = parts
    told = (n for n in (mine | yours) if not n.endswith(LATER) or (n in mine and n in yours))
    names = (n for n in told if n != "model name" and mine.get(n) != yours.get(n))
    return [f"{n} ({_brief(mine.get(n))} and {_brief(yours.get(n))})" for n in names]


def of_examples(examples: Iterable[Example]) -> dict[str, Any]:
    """Return what identifies the examples themselves, wherever their files lie."""
    digest, count = hashlib.sha256(), 0
    for count, example in enumerate(examples, start=1):  # noqa: B007  counted to the end
        for part in (example.id, example.text, example.question, *example.answers, str(example.new_tokens)):
            data = part.encode(errors="surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    return {"count": count, "sha256": digest.hexdigest()}


def hardware(device: str = "cpu") -> str:
    """Name the processor or the card."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {cores} cores"


def commit() -> str | None:
    """Return the project's commit, with a + where files were changed since; None outside a checkout."""
    root, git = Path(infinipot.__file__).parents[2], shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    ask = [git, "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    parts = (_flat(part, f"{name} {key}".strip()) for key, part in value.items())
    return {key: part for found in parts for key, part in found.items()}


def _brief(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if value is None:
        return "nothing"
    kind, _, rest = text.rpartition(":")
    if len(rest) == 64 and set(rest) <= set("0123456789abcdef"):  # a hash is known by its beginning
        return f"{kind}:{rest[:8]}".lstrip(":")
    return text if len(text) <= 40 else f"{text[:37]}..."
