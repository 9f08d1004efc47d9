"""Pulled models on disk: fetched and described once, then folders that are ready to load.

    root/models/<alias>/         the GGUF file and what it says of itself; `infinipot.json` says of what
    root/models/.<alias>.*       being written, or being removed; swept by the next pull
    root/partial/<alias>/        what `fetch` has so far
    root/locks/<alias>.lock      held by the process that pulls or removes

A folder gets its name only when everything in it is on the disk. Does not know how a file is described or
run: the caller of `pull` gives the function.
"""

import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from infinipot.common import atomic_files
from infinipot.common.suggest import hint
from infinipot.errors import ModelError
from infinipot.models import catalog
from infinipot.models.catalog import Release
from infinipot.models.download import Progress, discard, fetch

Pull = Generator[Progress, None, None]
Describer = Callable[[Path, Path, str], None]  # GGUF file, new folder, alias
STORE_VERSION = 2
CARD = "infinipot.json"
GGUF = "model.gguf"
POLL_S = 0.5


@dataclass(frozen=True)
class Card:
    """What an installed model was made from; one of another version or source is made again."""

    alias: str
    source_sha256: str
    store_version: int


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
        told = json.loads((path(alias) / CARD).read_text("utf-8"))
        found = Card(*(told[one.name] for one in fields(Card)))  # older cards tell more
    except (OSError, ValueError, TypeError, KeyError):
        return None
    current = (found.source_sha256, found.store_version) == (release.sha256, STORE_VERSION)
    return found if current else None


def installed() -> tuple[Installed, ...]:
    """Return the models that are ready to load, in the catalogue's order."""
    found = ((release.alias, card(release.alias)) for release in catalog.RELEASES)
    return tuple(Installed(known, path(alias), _size(path(alias))) for alias, known in found if known)


def pull(alias: str, describe: Describer) -> Pull:
    """Fetch and describe a model unless it is installed already, yielding progress."""
    release = catalog.find(alias)
    if card(alias):
        return
    with _writing(alias), _lock(alias) as lock:
        while not _acquired(lock):
            yield Progress("waiting", 0, 0)
        if card(alias):  # another process did the work while we waited
            return
        for purpose in ("new", "old"):  # what a killed process left; the lock says that none is at work
            discard(_temporary(alias, purpose))
        partial = root() / "partial" / alias
        gguf = yield from fetch(release, partial)
        yield Progress("preparing", 0, 0)
        _put(release, gguf, describe)
        discard(partial)


def remove(alias: str) -> int:
    """Delete a pulled model and anything fetched for it, and return the bytes freed."""
    with _writing(alias), _lock(alias) as lock:
        if not _acquired(lock):
            raise ModelError(f"{alias} is being pulled by another process", remedy="stop that first")
        partial, target = root() / "partial" / alias, path(alias)
        if not target.exists() and not partial.exists():
            there = [model.card.alias for model in installed()]
            raise ModelError(f"{alias} is not installed", remedy=hint(alias, there))
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
    with suppress(Timeout):
        lock.acquire(timeout=POLL_S)
    return lock.is_locked


def _writing(alias: str) -> AbstractContextManager[None]:
    """Turn a full disk or a folder we may not write into one line."""
    remedy = f"free some space or set INFINIPOT_HOME to a folder you can write (now {root()})"
    return atomic_files.failing_to(f"store {alias}", remedy, kind=ModelError)


def _temporary(alias: str, purpose: str) -> Path:
    return root() / "models" / f".{alias}.{purpose}"


def _retire(folder: Path) -> None:
    """Delete a model folder so that it never looks complete while half of it is gone."""
    discard(old := _temporary(folder.name, "old"))
    if folder.exists():
        folder.replace(old)
        shutil.rmtree(old)


def _put(release: Release, gguf: Path, describe: Describer) -> None:
    """Describe a GGUF file in a new folder, add the file and put both in their place in one step."""
    new = _temporary(release.alias, "new")
    new.mkdir(parents=True)
    try:
        describe(gguf, new, release.alias)
        made = Card(release.alias, release.sha256, STORE_VERSION)
        (new / CARD).write_text(json.dumps(asdict(made), indent=2) + "\n", "utf-8")
        gguf.replace(new / GGUF)
        for file in (*new.iterdir(), new):
            atomic_files.sync(file)
        _retire(path(release.alias))
        new.replace(path(release.alias))
        atomic_files.sync(new.parent)
    finally:
        discard(new)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
