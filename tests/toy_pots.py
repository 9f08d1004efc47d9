"""Pots for tests of the store: a toy engine that has read something, or tensors of any size."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from infinipot.core.state import State
from infinipot.engine import Engine
from infinipot.reading.reader import Reader
from infinipot.recall.archive import Archive
from infinipot.recipes.recipe import Recipe
from infinipot.store import Card, LocalStore, PotStore
from infinipot.store.match import card_of
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "The quick brown fox jumps over the lazy dog. "
RECIPE = replace(Recipe.named(capacity=64, tail="distil"), catalyst="a b")  # so that there are anchors
DIGEST = "c" * 64
BAD_NAMES = [
    "", ".", "..", "../x", "a/../b", "/etc/passwd", "a/b", "a\\b", "..\\x", "C:x", "C:\\x", "\\\\host\\share",
    "~", "~root", "a\0b", "\0", "a\nb", "a b", " a", "a ", "a\t", "%2e%2e%2fx", "%2e", "a%00",
    "x" * 65, "x" * 10_000,
    ".hidden", "-rf", "_x", "a..b", "a.", "a..", "․․", "a．b", "a。b", "‥", "…", "é", "аbc",
    "a\u202eb", "a\ufeff",
    "con", "CON", "nul", "Nul.txt", "aux.pot", "com1", "LPT9.x", "prn", "a*", "a?", "a:b", "a|b", "<a>",
    '"a"', "$(x)",
    "`x`", "a;b", "a&b", "tenants/x", ".locks", "\ud800",
]  # fmt: skip


def engine(seed: int = 0, **options: Any) -> Engine:
    model: Any = ToyModel(seed=seed, **options)
    tokenizer: Any = ByteTokenizer()
    return Engine("toy", "plain", model, tokenizer)


def read(text: str = TEXT * 4, recipe: Recipe = RECIPE, on: Engine | None = None) -> Reader:
    reader = (on or engine()).reader(recipe)
    reader.read(text)
    return reader


@cache
def _card() -> Card:
    return card_of(engine(), RECIPE, read(), "A text", DIGEST, 180)


def card(**changes: Any) -> Card:
    """The card of what `read` has read."""
    return replace(_card(), **changes)


def filled(value: int, megabytes: float = 0.01) -> State:
    """A state whose every number is `value`, so that a mixture of two is noticed."""
    rows = max(1, int(megabytes * 2**20 / 4 / 64 / 4))
    tensors = {f"pot.{layer:03d}.keys": torch.full((1, 2, rows, 32), float(value)) for layer in range(4)}
    return State({**tensors, "trace.ids": torch.full((5,), value)}, {"version": value, "pot": {"cycles": 3}})


def version(state: State) -> int:
    """The one value of a whole `filled` state."""
    values = {float(tensor.flatten()[k]) for tensor in state.tensors.values() for k in (0, -1)}
    assert values == {float(state.numbers["version"])}
    assert all(bool((tensor == tensor.flatten()[0]).all()) for tensor in state.tensors.values())
    return int(state.numbers["version"])


def same(a: State, b: State) -> bool:
    """Say whether two states are the same, bit by bit."""
    tensors = a.tensors.keys() == b.tensors.keys() and all(
        a.tensors[name].dtype == b.tensors[name].dtype and torch.equal(a.tensors[name], b.tensors[name])
        for name in a.tensors
    )
    return tensors and dict(a.numbers) == dict(b.numbers)


def archive_of(value: int, paragraphs: int = 100) -> Archive:
    """The archive of the text whose pot is `filled` with this value."""
    archive = Archive()
    archive.add(f"This is version {value}.\n\n" + f"{TEXT * 10}\n\n" * paragraphs, "book.txt")
    return archive


def save_with_archive(
    store: PotStore, value: int, name: str = "book", megabytes: float = 0.01, archive: Archive | None = None
) -> Card:
    """Keep a pot and its archive, over what has the name."""
    archive = archive or archive_of(value)
    return store.save(name, filled(value, megabytes), card(archive=archive.digest), True, archive)


def version_with_archive(store: PotStore, name: str = "book") -> int:
    """The one value of a whole pot that has its own archive."""
    state, told = store.load(name)
    archive = store.archive(name, told)
    assert archive is not None
    assert archive.digest == told.archive
    assert next(archive.texts()).startswith(f"This is version {version(state)}.")
    return version(state)


def save_and_die(folder: str) -> None:
    """For a process of its own: for every line of input, a child that saves version 2 over what is there.

    The child kills itself at the step of that number; a line of output says 0 where it came to its end.
    """
    torch.set_num_threads(1)
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _die_at(int(line))
            save_with_archive(LocalStore(Path(folder)), 2)
            os._exit(0)
        sys.stdout.write(f"{os.waitpid(child, 0)[1]}\n")
        sys.stdout.flush()


def _die_at(number: int) -> None:
    """Kill this process at its so-many-th step that changes a folder or brings something to the disk."""
    left = [number]

    def counted(real: Any) -> Any:
        def step(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)

        return step

    os.fsync = counted(os.fsync)
    for name in ("mkdir", "replace", "unlink", "chmod"):
        setattr(Path, name, counted(getattr(Path, name)))


def save_again_and_again(folder: str, megabytes: float, archives: bool = False) -> None:
    """For a process of its own: a child for every line of input, its id as a line of output.

    Each saves one version after the other over the same pot until it is killed. Forked, because to
    import torch takes longer than many saves.
    """
    torch.set_num_threads(1)
    store, told = LocalStore(Path(folder)), card()
    states = {value: filled(value, megabytes) for value in (1, 2)}
    for _ in sys.stdin:
        child = os.fork()
        kept = {value: archive_of(value) for value in (1, 2)} if child == 0 and archives else {}
        while child == 0:
            for value in (1, 2):
                if archives:
                    save_with_archive(store, value, "book", megabytes, kept[value])
                else:
                    store.save("book", states[value], told, replace=True)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        os.waitpid(child, 0)
        sys.stdout.write("gone\n")
        sys.stdout.flush()


def append_many(folder: str, times: int, pause: float) -> None:
    """For one of several processes: take the pot's number one further, holding the pot while at it."""
    torch.set_num_threads(1)
    store = LocalStore(Path(folder))
    for _ in range(times):
        with store.lock("book", wait_s=60):
            state, told = store.load("book")
            time.sleep(pause)
            store.save("book", filled(version(state) + 1), told, replace=True)
