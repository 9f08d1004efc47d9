"""What every store of pots can do, whatever it lies on: written once, over a few steps of a place's own.

A pot gets its name only when all of it is written and, if it came from outside, checked.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot.common import atomic_files
from infinipot.common.suggest import hint
from infinipot.errors import InputError, StoreError
from infinipot.store import file
from infinipot.store.card import Card
from infinipot.store.names import check

if TYPE_CHECKING:
    from infinipot.core.state import State

SUFFIX = ".pot"
WAIT_S = 10.0  # how long to wait for another writer of a pot


class PotStore(ABC):
    """Pots by name. Methods that meet a bad name raise InputError, a bad pot or place StoreError.

    A place gives its own way of the abstract methods; all the others follow from these.
    """

    where: str  # for people

    @abstractmethod
    def lock(self, name: str, wait_s: float = WAIT_S) -> AbstractContextManager[None]:
        """Hold a pot's name against other writers; a thread may hold it more than once."""

    @abstractmethod
    def space(self, tenant: str) -> PotStore:
        """Return the store of one tenant, which sees no other's pots."""

    @abstractmethod
    def files(self) -> Iterable[str]:
        """Return the names of the files in this place."""

    @abstractmethod
    def opened(self, name: str, head: bool = False) -> AbstractContextManager[Path]:
        """Give a pot as a file on this machine; `head` says that its tensors need not be there."""

    @abstractmethod
    def written(self, name: str) -> AbstractContextManager[Path]:
        """Give a path to write a pot to; the pot gets its name when the block ends well, else it is gone."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Delete a pot that is there."""

    def save(self, name: str, state: State, card: Card, replace: bool = False) -> Card:
        """Keep a state under a name; return its card as it was written."""
        with self.lock(name):
            self.refuse(name, replace)
            with self.written(name) as path:
                return file.write(path, state, card)

    def load(self, name: str) -> tuple[State, Card]:
        """Return a pot's state and card, checked to the last byte."""
        with self.opened(check(name)) as path:
            return file.read(path, f"pot '{name}'")

    def card(self, name: str) -> Card:
        """Return a pot's card; its tensors are not looked at."""
        with self.opened(check(name), head=True) as path:
            return file.head(path, f"pot '{name}'").card

    def names(self) -> list[str]:
        """Names of all pots, sorted."""
        return sorted(
            found.removesuffix(SUFFIX) for found in self.files() if found.endswith(SUFFIX) and _named(found)
        )

    def cards(self) -> dict[str, Card]:
        """Cards of all pots whose card can be read, by name."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.card(name)
            except StoreError:
                continue  # damaged, or removed since: asking for it by name says which
        return found

    def remove(self, name: str) -> None:
        """Delete a pot."""
        with self.lock(name):
            self.require(name)
            self._remove(name)

    def export(self, name: str, path: Path, replace: bool = False) -> Card:
        """Write a pot, checked on the way, to a file of the user's."""
        if not replace and os.path.lexists(path):
            raise StoreError(f"{path} is there already", remedy="choose another name, or replace it")
        with self.opened(check(name)) as source, atomic_files.aside(path) as half:
            return _copied(source, half, f"pot '{name}'")

    def bring(self, path: Path, name: str, replace: bool = False) -> Card:
        """Take in a file that `export` wrote; it gets its name only when all of it was checked."""
        with self.lock(name):
            source = atomic_files.regular(path, f"'{path}'", follow=True)
            self.refuse(name, replace)
            with self.written(name) as half:
                return _copied(source, half, f"'{path}'")

    def refuse(self, name: str, replace: bool = False) -> None:
        """Refuse a name that is taken, unless what has it is to be replaced."""
        check(name)
        alike = [known for known in self.names() if known.lower() == name.lower()]  # one file on some disks
        if alike and not (replace and name in alike):
            raise StoreError(
                f"there is a pot '{alike[0]}' already",
                remedy="append to it, replace it, or choose another name",
            )

    def require(self, name: str) -> None:
        """Refuse a name that no pot has."""
        if check(name) not in (names := self.names()):
            raise StoreError(f"there is no pot '{name}' in {self.where}", remedy=hint(name, names))


def _named(name: str) -> bool:
    """Say whether a file's name is a pot's."""
    try:
        return bool(check(name.removesuffix(SUFFIX)))
    except InputError:
        return False


def _copied(source: Path, to: Path, what: str) -> Card:
    """Copy a pot and check the copy: what gets a name is what was checked, byte for byte."""
    file.head(source, what)  # something else is refused before gigabytes of it are copied
    shutil.copyfile(source, to)
    return file.check(to, what)
