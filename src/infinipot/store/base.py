"""What every store of pots can do, whatever it lies on, and which names a pot, or a tenant, may have."""

import dataclasses
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot.common import atomic_files
from infinipot.common.suggest import hint
from infinipot.errors import InputError, StoreError
from infinipot.store import file
from infinipot.store.card import Card

if TYPE_CHECKING:
    from infinipot.core.state import State
    from infinipot.recall.archive import Archive

SUFFIX, ARCHIVE = ".pot", ".archive"
_ARCHIVES = r"\.?{name}(\.[0-9a-f]{{16}}\.archive)(\.[0-9a-f]{{16}}\.tmp)?"  # of a pot, whole or not
WAIT_S = 10.0  # how long to wait for another writer of a pot
LONGEST = 64  # characters of a name; only what is allowed is listed, so that no name can leave its folder
_ALLOWED = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # files on Windows


def check(name: str) -> str:
    """Return the name, or say what a name may look like."""
    if not isinstance(name, str) or not _ALLOWED.fullmatch(name) or ".." in name or name.endswith("."):
        text = ascii(name)
        said = text if len(text) <= LONGEST + 2 else f"{text[:LONGEST]}..."
        few = f"use up to {LONGEST} of A-Z a-z 0-9 . _ -, a letter or digit first"
        raise InputError(f"{said} is no name for a pot", remedy=f"{few}, no dot last, no two dots together")
    if _DEVICE.fullmatch(name):
        raise InputError(f"'{name}' is the name of a device on Windows", remedy="choose another name")
    return name


class PotStore(ABC):
    """Pots by name. Methods that meet a bad name raise InputError, a bad pot or place StoreError."""

    where: str  # for people

    @abstractmethod
    def lock(self, name: str, wait_s: float = WAIT_S) -> AbstractContextManager[None]:
        """Hold a pot's name against other writers; a thread may hold it more than once."""

    @abstractmethod
    def space(self, tenant: str) -> "PotStore":
        """Return the store of one tenant, which sees no other's pots."""

    @abstractmethod
    def files(self) -> Iterable[str]:
        """Return the names of the files in this place."""

    @abstractmethod
    def opened(self, name: str, suffix: str = SUFFIX, head: bool = False) -> AbstractContextManager[Path]:
        """Give a pot's file on this machine; `head` says that its tensors need not be there."""

    @abstractmethod
    def written(self, name: str, suffix: str = SUFFIX) -> AbstractContextManager[Path]:
        """Give a path to write a pot to; the pot gets its name when the block ends well, else it is gone."""

    @abstractmethod
    def _remove(self, name: str, suffix: str = SUFFIX) -> None:
        """Delete a file of a pot that is there."""

    @abstractmethod
    def _is_left(self, file: str) -> bool:
        """Say whether no other writer can be at work on a file; the caller holds the pot's lock."""

    @abstractmethod
    def _sweep(self, name: str, suffix: str) -> None:
        """Remove what a killed writer of a file left aside."""

    def save(
        self, name: str, state: "State", card: Card, replace: bool = False, archive: "Archive | None" = None
    ) -> Card:
        """Keep a state under a name, and its archive beside it; return its card as it was written.

        The archive has a name of its own content and is written first: a pot never meets another's archive.
        Where the archive cannot be written, its `unkept` says why, and the pot is kept without one.
        """
        with self.lock(name), self._sweeping_archives(name):
            self.refuse(name, replace)
            if archive is None:
                card = dataclasses.replace(card, archive="")
            elif card.archive:
                try:
                    self._keep(name, archive, card)
                except StoreError as error:
                    card, archive.unkept = dataclasses.replace(card, archive=""), error.problem
            with self.written(name) as path:
                return file.write(path, state, card)

    def archive(self, name: str, card: Card, most_bytes: int | None = None) -> "Archive | None":
        """Return a pot's archive; None where it was read without one, StoreError where that is not whole.

        On disk neither the archive nor what is added to it takes more than `most_bytes`.
        """
        from infinipot.recall.archive import Archive

        what = f"the archive of pot '{name}'"
        if not card.archive:
            return None
        if name + (suffix := _suffix(card)) not in self.files():
            raise StoreError(f"{what} is missing")
        with self.opened(name, suffix) as path:
            return Archive.load(path, card.archive, what, most_bytes=most_bytes)

    def _keep(self, name: str, archive: "Archive", card: Card) -> None:
        with self.written(name, _suffix(card)) as path:
            archive.save(path)

    @contextmanager
    def _sweeping_archives(self, name: str) -> Iterator[None]:
        """After the block, remove the archives of this name that the pot does not have, or no longer."""
        before = ""
        with suppress(StoreError):  # a damaged pot may be replaced, or removed
            before = self._archive_of(name)
        try:
            yield
        finally:
            with suppress(StoreError):  # the next save sweeps again
                self._sweep_archives(name, self._archive_of(name), before)

    def _sweep_archives(self, name: str, kept: str, before: str) -> None:
        """Remove the archive of before, and what killed writers left."""
        known = re.compile(_ARCHIVES.format(name=re.escape(name)))
        for suffix, aside in (match.groups() for match in map(known.fullmatch, self.files()) if match):
            if aside:
                self._sweep(name, suffix)
            elif suffix != kept and (suffix == before or self._is_left(name + suffix)):
                self._remove(name, suffix)

    def _archive_of(self, name: str) -> str:
        """Return how the name of a pot's archive goes on; empty where there is none."""
        card = self.card(name) if name in self.names() else None
        return _suffix(card) if card and card.archive else ""

    def load(self, name: str) -> "tuple[State, Card]":
        """Return a pot's state and card, checked to the last byte."""
        with self.opened(check(name)) as path:
            return file.read(path, f"pot '{name}'")

    def card(self, name: str) -> Card:
        """Return a pot's card; its tensors are not looked at."""
        with self.opened(check(name), head=True) as path:
            return file.head(path, f"pot '{name}'").card

    def names(self) -> list[str]:
        """Names of all pots, sorted."""
        found = []
        for file_name in self.files():
            with suppress(InputError):  # of something else
                found += [check(file_name.removesuffix(SUFFIX))] if file_name.endswith(SUFFIX) else []
        return sorted(found)

    def cards(self) -> dict[str, Card]:
        """Cards of all pots whose card can be read, by name."""
        found = {}
        for name in self.names():
            with suppress(StoreError):  # damaged, or removed since: asking for it by name says which
                found[name] = self.card(name)
        return found

    def remove(self, name: str) -> None:
        """Delete a pot."""
        with self.lock(name), self._sweeping_archives(name):
            self.require(name)
            self._remove(name)

    def export(self, name: str, path: Path, replace: bool = False) -> Card:
        """Write a pot, checked on the way, to a file of the user's, and its archive beside that."""
        for taken in (path, beside := _beside(path)):
            if not replace and os.path.lexists(taken):
                raise StoreError(f"{taken} is there already", remedy="choose another name, or replace it")
        with self.opened(check(name)) as source, atomic_files.aside(path) as half:
            card = _copied(source, half, f"pot '{name}'")
        try:
            archive = self.archive(name, card)
        except StoreError as error:
            raise StoreError(f"{error}: {path} is the pot alone") from error
        if archive is not None:
            with atomic_files.aside(beside) as half:
                archive.save(half)
        return card

    def bring(self, path: Path, name: str, replace: bool = False) -> Card:
        """Take in a file that `export` wrote; it gets its name only when all of it was checked.

        An archive beside the file comes with it; the index of a stranger's archive is made anew.
        """
        from infinipot.recall.archive import Archive

        with self.lock(name), self._sweeping_archives(name):
            source = atomic_files.regular(path, f"'{path}'", follow=True)
            self.refuse(name, replace)
            card, beside = file.head(source, f"'{path}'").card, _beside(path)
            if card.archive and beside.exists():
                found = atomic_files.regular(beside, f"'{beside}'", follow=True)
                self._keep(name, Archive.load(found, card.archive, f"'{beside}'", stranger=True), card)
            with self.written(name) as half:
                return _copied(source, half, f"'{path}'")

    def refuse(self, name: str, replace: bool = False) -> None:
        """Refuse a name that is taken, unless what has it is to be replaced."""
        check(name)
        alike = [known for known in self.names() if known.lower() == name.lower()]  # one file on some disks
        if alike and not (replace and name in alike):
            remedy = "append to it, replace it, or choose another name"
            raise StoreError(f"there is a pot '{alike[0]}' already", remedy=remedy)

    def require(self, name: str) -> None:
        """Refuse a name that no pot has."""
        if check(name) not in (names := self.names()):
            raise StoreError(f"there is no pot '{name}' in {self.where}", remedy=hint(name, names))


def _suffix(card: Card) -> str:
    """How the name of a pot's archive goes on: two archives of one pot never have the same name."""
    return f".{card.archive[:16]}{ARCHIVE}"


def _beside(path: Path) -> Path:
    """Where the archive of an exported pot lies."""
    return path.with_suffix(ARCHIVE) if path.suffix == SUFFIX else path.with_name(path.name + ARCHIVE)


def _copied(source: Path, to: Path, what: str) -> Card:
    """Copy a pot and check the copy: what gets a name is what was checked, byte for byte."""
    file.head(source, what)  # something else is refused before gigabytes of it are copied
    shutil.copyfile(source, to)
    return file.check(to, what)
