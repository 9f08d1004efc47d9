"""Pulled models on disk: fetched and converted once, then plain model folders.

    root/models/<alias>/         the converted model; `infinipot.json` says of what
    root/models/.<alias>.*       being written, or being removed; swept by the next pull
    root/partial/<alias>/        what `fetch` has so far
    root/locks/<alias>.lock      held by whoever pulls or removes

A folder gets its name only when everything in it is on the disk. Does not
know how a model is run; transformers is imported only to convert.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from infinipot import __version__
from infinipot.errors import InfiniPotError, ModelError
from infinipot.models import catalog, memory
from infinipot.models.catalog import Format, Release
from infinipot.models.download import Progress, discard, fetch

STORE_VERSION = 1
CARD = "infinipot.json"
_POLL_S = 0.5


@dataclass(frozen=True)
class Card:
    """What a converted model was made from; one of another version or source is made again."""

    alias: str
    source_sha256: str
    store_version: int
    dtype: str
    add_bos: bool
    format: Format
    converter: dict[str, str]


@dataclass(frozen=True)
class Installed:
    """A model that is ready to load."""

    card: Card
    path: Path
    size: int


def root() -> Path:
    """Return the cache folder: INFINIPOT_HOME, else the user's cache."""
    home = os.environ.get("INFINIPOT_HOME")
    return Path(home).expanduser() if home else user_cache_path("infinipot")


def path(alias: str) -> Path:
    """Return the folder of a pulled model, whether it is there yet or not."""
    return root() / "models" / catalog.find(alias).alias


def card(alias: str) -> Card | None:
    """Return what is known of an installed model, or None when it must be pulled."""
    release = catalog.find(alias)
    try:
        found = Card(**json.loads((path(alias) / CARD).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    current = (found.source_sha256, found.store_version) == (release.sha256, STORE_VERSION)
    return found if current else None


def installed() -> tuple[Installed, ...]:
    """Return the models that are ready to load, in the catalogue's order."""
    found = ((release.alias, card(release.alias)) for release in catalog.RELEASES)
    return tuple(Installed(known, path(alias), _size(path(alias))) for alias, known in found if known)


def pull(alias: str) -> Generator[Progress, None, None]:
    """Fetch and convert a model unless it is installed already, yielding progress."""
    release = catalog.find(alias)
    if card(alias):
        return
    with _readable_errors(alias), _lock(alias) as lock:
        while not _acquired(lock):
            yield Progress("waiting", 0, 0)
        if card(alias):  # another process did the work while we waited
            return
        _sweep(alias)
        partial = root() / "partial" / alias
        gguf = yield from fetch(release, partial)
        yield Progress("converting", 0, 0)
        _convert(release, gguf)
        discard(partial)


def remove(alias: str) -> int:
    """Delete a pulled model and anything fetched for it, and return the bytes freed."""
    with _readable_errors(alias), _lock(alias) as lock:
        if not _acquired(lock):
            raise ModelError(f"{alias} is being pulled by another process: stop that first")
        partial, target = root() / "partial" / alias, path(alias)
        if not target.exists() and not partial.exists():
            there = ", ".join(model.card.alias for model in installed()) or "none"
            raise ModelError(f"{alias} is not installed (installed: {there})")
        freed = _size(target) + _size(partial)
        _retire(target)
        discard(partial)
        return freed


@contextmanager
def _lock(alias: str) -> Iterator[FileLock]:
    file = root() / "locks" / f"{catalog.find(alias).alias}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    # A generator may be closed by another thread than the one that ran it.
    lock = FileLock(file, thread_local=False)
    try:
        yield lock
    finally:
        lock.release()


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=_POLL_S)
    except Timeout:
        return False
    return True


@contextmanager
def _readable_errors(alias: str) -> Iterator[None]:
    """Turn a full disk or a folder we may not write into one line."""
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise ModelError(
            f"cannot store {alias}: {error.strerror or error}{where}; free some space or set INFINIPOT_HOME "
            f"to a folder you can write (now {root()})"
        ) from error


def _temporary(alias: str, purpose: str) -> Path:
    return root() / "models" / f".{alias}.{purpose}"


def _sweep(alias: str) -> None:
    """Remove what a killed process left; the lock says that nobody is at work on it."""
    for purpose in ("new", "old"):
        shutil.rmtree(_temporary(alias, purpose), ignore_errors=True)


def _retire(folder: Path) -> None:
    """Delete a model folder so that it never looks complete while half of it is gone."""
    old = _temporary(folder.name, "old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.replace(old)
        shutil.rmtree(old)


def _convert(release: Release, gguf: Path) -> None:
    """Unpack a GGUF file into a model folder and put that in its place in one step."""
    new = _temporary(release.alias, "new")
    new.mkdir(parents=True)
    try:
        add_bos = _write_model(gguf, new, release.alias)
        converter = {"infinipot": __version__, **{name: version(name) for name in ("transformers", "gguf")}}
        made = Card(
            release.alias, release.sha256, STORE_VERSION, "float16", add_bos, release.format, converter
        )
        (new / CARD).write_text(json.dumps(asdict(made), indent=2) + "\n", "utf-8")
        _sync(new)
        _retire(path(release.alias))
        new.replace(path(release.alias))
        _sync_folder(new.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write_model(gguf: Path, folder: Path, alias: str) -> bool:
    """Save model and tokenizer as float16: its error of 2^-11 is far below that of 4-bit weights."""
    import torch

    from infinipot.models.gguf_files import adds_bos, load_gguf, one_line, quiet, read_header

    advice = "close other programs, or pull on a machine with more memory and copy the folder"
    memory.require(f"converting {alias}", read_header(gguf).converting_bytes, memory.available(), advice)
    model, tokenizer = load_gguf(gguf, torch.float16)
    try:
        with quiet():
            # One file however large the model: nothing here is loaded in parts.
            model.save_pretrained(folder, max_shard_size="1TB")
            tokenizer.save_pretrained(folder)
    except (InfiniPotError, OSError):
        raise
    except Exception as error:  # foreign code and files: anything can fail
        raise ModelError(f"cannot convert {alias} ({one_line(error)}): please report this") from error
    with_bos = adds_bos(tokenizer)
    del model
    gc.collect()
    return with_bos


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _sync(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
