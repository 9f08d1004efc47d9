"""Pulled models on disk: fetched and described once, then folders that are ready to load.

    root/models/<alias>/         all that loading needs; `infinipot.json` says what it was made from
    root/models/.<alias>.*       being written, or being removed; swept by the next pull
    root/partial/<alias>/        what `fetch` has so far
    root/locks/<alias>.lock      held by the process that pulls or removes

A folder gets its name only when everything in it is on the disk. Does not know what a model's folder has in
it: the caller of `pull` gives the function that fills it.
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
Filler = Callable[[Path, Path, str], None]  # the file that was fetched, new folder, alias
STORE_VERSION = 2
CARD = "infinipot.json"
GGUF = catalog.GGUF
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
    every = (*catalog.RELEASES, catalog.SENTENCES)
    found = ((release.alias, card(release.alias)) for release in every)
    return tuple(Installed(known, path(alias), _size(path(alias))) for alias, known in found if known)


def pull(alias: str, fill: Filler) -> Pull:
    """Fetch a model and make its folder unless it is installed already, yielding progress."""
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
        file = yield from fetch(release, partial)
        yield Progress("preparing", 0, 0)
        _put(release, file, fill)
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


def _put(release: Release, file: Path, fill: Filler) -> None:
    """Fill a new folder from a file and put it in its place in one step."""
    new = _temporary(release.alias, "new")
    new.mkdir(parents=True)
    try:
        fill(file, new, release.alias)
        made = Card(release.alias, release.sha256, STORE_VERSION)
        (new / CARD).write_text(json.dumps(asdict(made), indent=2) + "\n", "utf-8")
        if file.name == GGUF:  # is loaded as it is; an archive was unpacked
            file.replace(new / GGUF)
        for written in (*new.iterdir(), new):
            atomic_files.sync(written)
        _retire(path(release.alias))
        new.replace(path(release.alias))
        atomic_files.sync(new.parent)
    finally:
        discard(new)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
