"""Pots in a folder: named, listed, locked, and never anywhere else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import toy_pots as toy
from infinipot.errors import InputError, StoreError
from infinipot.store import LocalStore, open_store

BODY = "import toy_pots; toy_pots.{call}"
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "pots")


def keep(store: LocalStore, name: str = "book", value: int = 1, **options) -> None:
    store.save(name, toy.filled(value), toy.card(), **options)


def test_keep_list_load_replace_remove(store: LocalStore) -> None:
    assert store.names() == []
    keep(store, "b")
    keep(store, "a")
    assert store.names() == ["a", "b"] == list(store.cards())
    with pytest.raises(StoreError, match="already"):
        keep(store, "a", 2)
    with pytest.raises(StoreError, match="there is a pot 'a' already"):  # one file where case does not count
        keep(store, "A", 2)
    assert toy.version(store.load("a")[0]) == 1
    keep(store, "a", 2, replace=True)
    state, card = store.load("a")
    assert toy.version(state) == 2
    assert card == store.card("a") == store.cards()["a"]
    store.remove("a")
    assert store.names() == ["b"]
    for act in (store.load, store.card, store.remove):
        with pytest.raises(StoreError, match=r"no pot 'a' in .*: use one of b"):
            act("a")
    assert sorted(path.name for path in store.folder.iterdir()) == [".locks", "b.pot"]


def test_only_the_owner_may_look(store: LocalStore) -> None:
    keep(store)
    keep(space := store.space("t1"))
    for folder in (store.folder, space.folder, space.folder.parent, store.folder / ".locks"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((store.folder / "book.pot").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", toy.BAD_NAMES, ids=ascii)
def test_no_name_leaves_the_store(store: LocalStore, name: str, tmp_path: Path) -> None:
    keep(store)
    before = sorted(tmp_path.rglob("*"))
    for act in (
        lambda: store.load(name),
        lambda: store.card(name),
        lambda: store.remove(name),
        lambda: keep(store, name),
        lambda: store.export(name, tmp_path / "out"),
        lambda: store.bring(store.folder / "book.pot", name),
        lambda: store.lock(name).__enter__(),
        lambda: store.space(name),
    ):
        with pytest.raises(InputError):
            act()
    assert sorted(tmp_path.rglob("*")) == before


def test_tenants_do_not_see_each_other(store: LocalStore) -> None:
    one, two = store.space("one"), store.space("two")
    keep(one, value=1)
    keep(two, value=2)
    assert store.names() == []
    assert [toy.version(each.load("book")[0]) for each in (one, two)] == [1, 2]
    two.remove("book")
    assert one.names() == ["book"]
    with pytest.raises(StoreError):
        two.load("book")
    assert one.space("two").names() == []  # a tenant's space of another is that other's, not one inside


def test_export_and_import_check_everything(store: LocalStore, tmp_path: Path) -> None:
    keep(store, value=3)
    out = tmp_path / "out.pot"
    assert store.export("book", out) == store.card("book")
    assert out.read_bytes() == (store.folder / "book.pot").read_bytes()
    with pytest.raises(StoreError, match="there already"):
        store.export("book", out)
    store.export("book", out, replace=True)
    store.bring(out, "copy")
    assert toy.same(store.load("copy")[0], toy.filled(3))
    with pytest.raises(StoreError, match="already"):
        store.bring(out, "copy")
    data = bytearray(out.read_bytes())
    data[-1] ^= 1
    out.write_bytes(data)
    with pytest.raises(StoreError, match="checksum"):
        store.bring(out, "copy", replace=True)
    with pytest.raises(StoreError, match="checksum"):
        store.bring(out, "other")
    assert store.names() == ["book", "copy"]
    assert toy.version(store.load("copy")[0]) == 3
    for bad in (tmp_path / "nowhere", tmp_path, Path("/dev/zero")):
        with pytest.raises(StoreError):
            store.bring(bad, "other")
    (store.folder / "book.pot").write_bytes(data)
    with pytest.raises(StoreError, match="checksum"):
        store.export("book", tmp_path / "broken")
    assert not list(tmp_path.glob("broken*"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_pipe_in_the_store_is_not_waited_for(store: LocalStore) -> None:
    keep(store)
    os.mkfifo(store.folder / "pipe.pot")
    with pytest.raises(StoreError, match="not a regular file"):
        store.load("pipe")
    assert list(store.cards()) == ["book"]


@pytest.mark.parametrize("target", ["file", "folder", "nothing", "inside"])
def test_links_in_the_store_are_refused(store: LocalStore, tmp_path: Path, target: str) -> None:
    keep(store)
    secret = tmp_path / "secret"
    secret.mkdir() if target == "folder" else target == "file" and store.export("book", secret)
    (store.folder / "link.pot").symlink_to("book.pot" if target == "inside" else secret)
    before = secret.read_bytes() if target == "file" else b""
    for act in (
        lambda: store.load("link"),
        lambda: store.card("link"),
        lambda: store.export("link", tmp_path / "out"),
        lambda: store.remove("link"),
        lambda: keep(store, "link", 2, replace=True),
        lambda: store.bring(store.folder / "book.pot", "link", replace=True),
    ):
        with pytest.raises(StoreError, match="link"):
            act()
    assert (store.folder / "link.pot").is_symlink()
    assert "link" not in store.cards()
    assert toy.version(store.load("book")[0]) == 1
    assert target != "file" or secret.read_bytes() == before
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("place", ["tenants", "tenants/one", ".locks", ".locks/book.lock"])
def test_links_on_the_way_are_refused(store: LocalStore, tmp_path: Path, place: str) -> None:
    keep(store)
    outside = tmp_path / "outside"
    outside.mkdir()
    link = store.folder / place
    if link.exists():
        link.rename(tmp_path / "away")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(StoreError, match="link"):
        keep(store.space("one") if "tenants" in place else store, value=2, replace=True)
    if "tenants" in place:
        with pytest.raises(StoreError, match="link"):
            store.space("one").names()
    assert not list(outside.iterdir())


def test_the_store_itself_may_be_behind_a_link(store: LocalStore, tmp_path: Path) -> None:
    keep(store)
    (tmp_path / "link").symlink_to(store.folder)
    assert LocalStore(tmp_path / "link").names() == ["book"]


def test_a_damaged_pot_hides_no_other(store: LocalStore) -> None:
    keep(store)
    (store.folder / "bad.pot").write_bytes(b"nothing")
    (store.folder / "folder.pot").mkdir()
    (store.folder / "not a name.pot").write_bytes(b"")
    (store.folder / "notes.txt").write_bytes(b"")
    assert store.names() == ["bad", "book", "folder"]
    assert list(store.cards()) == ["book"]


def test_what_a_killed_process_left_is_swept(store: LocalStore) -> None:
    keep(store)
    for name in ("book", "other"):
        (store.folder / f".{name}.pot.0123456789abcdef.tmp").write_bytes(b"half")
    keep(store, value=2, replace=True)
    assert [path.name for path in store.folder.glob(".*.tmp")] == [".other.pot.0123456789abcdef.tmp"]


def test_a_pot_being_written_survives_the_save_of_one_whose_name_it_begins_with(store: LocalStore) -> None:
    keep(store)
    with store.written("book.pot.2") as path:
        path.write_bytes(b"an hour's reading")
        keep(store, value=2, replace=True)
    assert (store.folder / "book.pot.2.pot").read_bytes() == b"an hour's reading"


def test_a_pot_in_use_is_waited_for_and_then_refused(store: LocalStore) -> None:
    seen = []

    def other() -> None:
        try:
            with store.lock("book", wait_s=0.2):
                seen.append("held")
        except StoreError as error:
            seen.append(str(error))

    with store.lock("book"), store.lock("book"):  # twice by one thread
        keep(store)
        with store.lock("another", wait_s=0):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    assert "being written by someone else" in seen[0]
    other()
    assert seen[1] == "held"


def test_processes_that_append_at_once_lose_nothing(store: LocalStore) -> None:
    keep(store, value=0)
    code = BODY.format(call=f"append_many({str(store.folder)!r}, 5, 0.02)")
    processes = [subprocess.Popen([sys.executable, "-c", code], env=ENV) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert toy.version(store.load("book")[0]) == 10


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINIPOT_HOME", str(tmp_path))
    assert open_store().where == str(tmp_path / "pots")
    assert open_store(str(tmp_path / "x")).where == str(tmp_path / "x")
    for url in (f"file://{tmp_path}/x", f"local://{tmp_path}/x"):
        found = open_store(url)
        assert isinstance(found, LocalStore)
        assert found.where == str(tmp_path / "x")
    monkeypatch.delenv("INFINIPOT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert open_store().where == str(tmp_path / "data" / "infinipot" / "pots")
    for bad in ("", " "):
        with pytest.raises(StoreError, match="empty"):
            open_store(bad)
