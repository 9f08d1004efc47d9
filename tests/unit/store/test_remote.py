"""Pots at fsspec addresses: the same store, without locks."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import fsspec
import pytest

import toy_pots as toy
from infinipot.errors import InputError, StoreError
from infinipot.store import open_store
from infinipot.store.remote import RemoteStore


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path: Path) -> RemoteStore:
    """In memory, and on a disk through fsspec (an address of that kind gets a LocalStore)."""
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/pots")
    return RemoteStore(fsspec.filesystem("file"), str(tmp_path / "pots"))


def files(store: RemoteStore) -> list[str]:
    return sorted(store.files())


def test_keep_list_load_replace_export_import_remove(store: RemoteStore, tmp_path: Path) -> None:
    assert isinstance(store, RemoteStore)
    assert store.names() == []
    store.save("book", toy.filled(1), toy.card())
    with pytest.raises(StoreError, match="already"):
        store.save("book", toy.filled(2), toy.card())
    kept = store.save("book", toy.filled(2, 20), toy.card(), replace=True)
    state, card = store.load("book")
    assert toy.version(state) == 2
    assert card == kept == store.card("book") == store.cards()["book"]
    store.export("book", tmp_path / "out.pot")
    store.bring(tmp_path / "out.pot", "copy")
    assert store.names() == ["book", "copy"]
    data = (tmp_path / "out.pot").read_bytes()
    (tmp_path / "out.pot").write_bytes(data[:-1] + b"?")
    with pytest.raises(StoreError, match="checksum"):
        store.bring(tmp_path / "out.pot", "copy", replace=True)
    assert toy.version(store.load("copy")[0]) == 2
    store.remove("copy")
    with pytest.raises(StoreError, match="no pot 'copy'"):
        store.load("copy")
    assert files(store) == ["book.pot"]
    with store.lock("book"):
        pass


def test_names_and_tenants(store: RemoteStore) -> None:
    for name in ("../x", "a/b", "", "..", "a\0"):
        for act in (store.load, store.remove, store.space):
            with pytest.raises(InputError):
                act(name)
    store.space("one").save("book", toy.filled(1), toy.card())
    assert store.names() == store.space("two").names() == []
    assert store.space("one").names() == ["book"]


def test_a_save_that_fails_leaves_the_old_pot(store: RemoteStore, monkeypatch) -> None:
    store.save("book", toy.filled(1), toy.card())
    from infinipot.store import file

    real = file.write

    def half(path, state, card):
        path.write_bytes(b"half a pot")
        raise ConnectionError("the line went\ndead")

    monkeypatch.setattr(file, "write", half)
    with pytest.raises(StoreError, match="the line went dead"):
        store.save("book", toy.filled(2), toy.card(), replace=True)
    monkeypatch.setattr(file, "write", real)
    assert files(store) == ["book.pot"]
    assert toy.version(store.load("book")[0]) == 1


def test_only_what_was_left_long_ago_is_swept(tmp_path: Path) -> None:
    store = RemoteStore(fsspec.filesystem("file"), str(tmp_path))
    new, old, other = (f".book.pot.{end}.tmp" for end in ("a" * 16, "b" * 16, "x.pot." + "c" * 16))
    for age, name in ((0, new), (7200, old), (7200, other)):
        left = tmp_path / name
        left.write_bytes(b"half")
        os.utime(left, (time.time() - age,) * 2)
    store.save("book", toy.filled(1), toy.card())
    assert files(store) == [new, other, "book.pot"]  # the last is of a pot named 'book.pot.x'


@pytest.mark.parametrize(
    ("address", "says"),
    [("nosuch://x/y", "nosuch"), ("s3://bucket/pots", "s3fs"), ("gs://bucket/pots", "gcsfs")],
)
def test_an_unknown_address_says_what_is_missing(address: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        open_store(address)
    assert "\n" not in str(caught.value)
