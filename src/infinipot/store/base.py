"""What every store of pots can do, whatever it lies on, and which names a pot, or a tenant, may have."""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot.common import atomic_files
from infinipot.common.suggest import hint
from infinipot.errors import InputError, StoreError
from infinipot.store import file
from infinipot.store.card import Card

if TYPE_CHECKING:
    from infinipot.core.state import State

SUFFIX = ".pot"
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
    def opened(self, name: str, head: bool = False) -> AbstractContextManager[Path]:
        """Give a pot as a file on this machine; `head` says that its tensors need not be there."""

    @abstractmethod
    def written(self, name: str) -> AbstractContextManager[Path]:
        """Give a path to write a pot to; the pot gets its name when the block ends well, else it is gone."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Delete a pot that is there."""

    def save(self, name: str, state: "State", card: Card, replace: bool = False) -> Card:
        """Keep a state under a name; return its card as it was written."""
        with self.lock(name):
            self.refuse(name, replace)
            with self.written(name) as path:
                return file.write(path, state, card)

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
            remedy = "append to it, replace it, or choose another name"
            raise StoreError(f"there is a pot '{alike[0]}' already", remedy=remedy)

    def require(self, name: str) -> None:
        """Refuse a name that no pot has."""
        if check(name) not in (names := self.names()):
            raise StoreError(f"there is no pot '{name}' in {self.where}", remedy=hint(name, names))


def _copied(source: Path, to: Path, what: str) -> Card:
    """Copy a pot and check the copy: what gets a name is what was checked, byte for byte."""
    file.head(source, what)  # something else is refused before gigabytes of it are copied
    shutil.copyfile(source, to)
    return file.check(to, what)
