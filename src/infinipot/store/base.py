"""What every store of pots can do, whatever it lies on: written once, over four steps of a place's own.

A pot gets its name only when all of it is written and, if it came from outside, checked.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from infinipot.common import atomic_files
from infinipot.errors import InputError, StoreError
from infinipot.store import header
from infinipot.store.card import Card
from infinipot.store.names import check

if TYPE_CHECKING:
    from infinipot.core.state import State

SUFFIX = ".pot"
WAIT_S = 10.0  # how long to wait for whoever holds a pot


class PotStore(ABC):
    """Pots by name. Methods that meet a bad name raise InputError, a bad pot or place StoreError."""

    where: str  # for people

    # What a place must do ---------------------------------------------------------

    @abstractmethod
    def lock(self, name: str, wait_s: float = WAIT_S) -> AbstractContextManager[None]:
        """Hold a pot's name against other writers; a thread may hold it more than once."""

    @abstractmethod
    def space(self, tenant: str) -> PotStore:
        """Return the store of one tenant, which sees no other's pots."""

    @abstractmethod
    def _found(self) -> Iterable[str]:
        """File names in this place."""

    @abstractmethod
    def _reading(self, name: str) -> AbstractContextManager[tuple[BinaryIO, int]]:
        """Open a pot; give its bytes, and how many there are."""

    @abstractmethod
    def _writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Take a new pot's bytes; they get the name when the block ends well, else they are gone."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Delete a pot that is there."""

    # What follows from it ---------------------------------------------------------

    def save(self, name: str, state: State, card: Card, replace: bool = False) -> Card:
        """Keep a state under a name; return its card as it was written."""
        from infinipot.store import file  # torch: a list of pots does without

        with self.lock(name):
            self.refuse(name, replace)
            with self._writing(name) as stream:
                return file.write(stream, state, card)

    def load(self, name: str) -> tuple[State, Card]:
        """Return a pot's state and card, checked to the last byte."""
        from infinipot.store import file

        with self._reading(check(name)) as (stream, size):
            return file.read(stream, size, f"pot '{name}'")

    def card(self, name: str) -> Card:
        """Return a pot's card; its tensors are not looked at."""
        with self._reading(check(name)) as (stream, size):
            return header.read(stream, size, f"pot '{name}'").card

    def names(self) -> list[str]:
        """Names of all pots, sorted."""
        return sorted(
            file.removesuffix(SUFFIX) for file in self._found() if file.endswith(SUFFIX) and _named(file)
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
            raise StoreError(f"{path} is there already: choose another name, or replace it")
        with self._reading(check(name)) as (stream, size), atomic_files.writing(path) as out:
            return _copied(stream, size, out, f"pot '{name}'")

    def bring(self, path: Path, name: str, replace: bool = False) -> Card:
        """Take in a file that `export` wrote; it gets its name only when all of it was checked."""
        with self.lock(name), atomic_files.reading(path, f"'{path}'", follow=True) as (stream, size):
            self.refuse(name, replace)
            with self._writing(name) as out:
                return _copied(stream, size, out, f"'{path}'")

    def refuse(self, name: str, replace: bool = False) -> None:
        """Refuse a name that is taken, unless what has it is to be replaced."""
        check(name)
        alike = [known for known in self.names() if known.lower() == name.lower()]  # one file on some disks
        if alike and not (replace and name in alike):
            raise StoreError(
                f"there is a pot '{alike[0]}' already: append to it, replace it, or choose another name"
            )

    def require(self, name: str) -> None:
        """Refuse a name that no pot has."""
        if check(name) not in (names := self.names()):
            known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise StoreError(f"there is no pot '{name}' in {self.where} (there: {known or 'none'})")


def _named(file: str) -> bool:
    """Say whether a file's name is a pot's."""
    try:
        return bool(check(file.removesuffix(SUFFIX)))
    except InputError:
        return False


def _copied(stream: BinaryIO, size: int, out: BinaryIO, what: str) -> Card:
    """Check a pot while it is copied: what is written is what was checked, byte for byte."""
    from infinipot.store import file

    return file.check(atomic_files.Tee(stream, out), size, what)  # type: ignore[arg-type]  # reads like one
