"""Whatever happens to an archive, its pot is whole; a pot never has the archive of another text."""

import dataclasses
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import infinipot
import toy_pots as toy
from infinipot.core.config import ALL
from infinipot.errors import StoreError
from infinipot.recall.archive import Archive
from infinipot.store import LocalStore, PotStore, open_store

WHERE = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(infinipot.__file__).parents[1])])
ENV = {**os.environ, "PYTHONPATH": WHERE, "OMP_NUM_THREADS": "1"}
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENV}


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PotStore:
    return open_store(
        str(tmp_path / "pots") if request.param == "local" else f"memory://{uuid.uuid4().hex}/pots"
    )


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "pots")


def kept(store: PotStore) -> list[str]:
    """The files of a store but its locks, with digests left out."""
    return sorted(name for name in store.files() if name != ".locks")


def archive_file(store: LocalStore, value: int = 1, name: str = "book") -> Path:
    return store.folder / f"{name}.{toy.archive_of(value).digest[:16]}.archive"


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


# Keeping, moving, removing --------------------------------------------------------


def test_a_pot_and_its_archive_are_kept_replaced_and_removed_together(store: PotStore) -> None:
    first = toy.save_with_archive(store, 1)
    assert toy.version_with_archive(store) == 1
    assert kept(store) == [f"book.{first.archive[:16]}.archive", "book.pot"]
    second = toy.save_with_archive(store, 2)
    assert toy.version_with_archive(store) == 2
    assert kept(store) == [f"book.{second.archive[:16]}.archive", "book.pot"]
    store.save("book", toy.filled(3), second, replace=True)  # read without an archive
    assert kept(store) == ["book.pot"]
    assert store.archive("book", store.card("book")) is None
    toy.save_with_archive(store, 1)
    store.remove("book")
    assert kept(store) == []


def test_pots_whose_names_begin_alike_keep_their_archives(store: PotStore) -> None:
    names = ["book", "book.0123456789abcdef", "book.0123456789abcdef.archive", "abook", "book2"]
    for name in names:
        toy.save_with_archive(store, 1, name)
    toy.save_with_archive(store, 2, "book")
    assert [toy.version_with_archive(store, name) for name in names] == [2, 1, 1, 1, 1]
    store.remove("book")
    assert [toy.version_with_archive(store, name) for name in names[1:]] == [1, 1, 1, 1]


def test_tenants_have_archives_of_their_own(store: PotStore) -> None:
    toy.save_with_archive(store.space("one"), 1)
    toy.save_with_archive(store.space("two"), 2)
    assert kept(store.space("three")) == []
    store.space("one").remove("book")
    assert toy.version_with_archive(store.space("two")) == 2


@pytest.mark.parametrize("file", ["out.pot", "out.v1", "out.archive", "out"])
def test_export_and_import_carry_the_archive(store: PotStore, tmp_path: Path, file: str) -> None:
    toy.save_with_archive(store, 1)
    store.export("book", tmp_path / file)
    with pytest.raises(StoreError, match="already"):
        store.export("book", tmp_path / file)
    store.export("book", tmp_path / file, replace=True)
    store.bring(tmp_path / file, "copy")
    assert toy.version_with_archive(store, "copy") == 1
    archive = store.archive("copy", store.card("copy"))
    assert archive is not None
    assert [*archive.matching(["version"], 5)] == [1]  # the index came along


def changes(path: Path) -> Iterator[str]:
    """Change an exported archive in place, one way after the other; yield what must be said."""
    whole = path.read_bytes()
    for command, said in [
        ("UPDATE passages SET text = 'A lie.' WHERE id = 1", "was changed"),
        ("DELETE FROM sources", "no place"),
        ("UPDATE sources SET name = x'00'", "no place"),
        ("UPDATE passages SET start = 'far away' WHERE id = 1", "no place"),
        ("CREATE VIEW more AS SELECT 1", "unknown make"),
        ("PRAGMA user_version = 9", "newer"),
    ]:
        path.write_bytes(whole)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(command)
        connection.close()
        yield said
    path.write_bytes(whole[: len(whole) // 2])
    yield "damaged"
    path.write_bytes(b"")
    yield "no archive"


def test_an_archive_that_was_changed_is_not_imported_and_nothing_gets_the_name(
    store: PotStore, tmp_path: Path
) -> None:
    toy.save_with_archive(store, 1)
    store.export("book", tmp_path / "out.pot")
    before = kept(store)
    for said in changes(tmp_path / "out.archive"):
        with pytest.raises(StoreError, match=said) as caught:
            store.bring(tmp_path / "out.pot", "copy")
        assert "out.archive" in one_line(caught.value)
        with pytest.raises(StoreError, match=said):
            store.bring(tmp_path / "out.pot", "book", replace=True)
        assert kept(store) == before
    assert toy.version_with_archive(store) == 1


def test_a_damaged_pot_leaves_no_archive_behind(store: PotStore, tmp_path: Path) -> None:
    toy.save_with_archive(store, 1)
    toy.save_with_archive(store, 2, "other")
    store.export("other", tmp_path / "out.pot")
    data = (tmp_path / "out.pot").read_bytes()
    (tmp_path / "out.pot").write_bytes(data[:-1] + b"?")
    before = kept(store)
    for name, replace in (("copy", False), ("book", True)):
        with pytest.raises(StoreError, match="checksum"):
            store.bring(tmp_path / "out.pot", name, replace)
    left = set(kept(store)) - set(before)
    assert all(file.endswith(".archive") and store.names() == ["book", "other"] for file in left)
    assert not left or not isinstance(
        store, LocalStore
    )  # elsewhere a later save sweeps it: there are no locks
    assert toy.version_with_archive(store) == 1


def test_an_imported_pot_without_its_archive_works_and_says_so(store: PotStore, tmp_path: Path) -> None:
    toy.save_with_archive(store, 1)
    store.export("book", tmp_path / "out.pot")
    (tmp_path / "out.archive").unlink()
    card = store.bring(tmp_path / "out.pot", "copy")
    assert toy.version(store.load("copy")[0]) == 1
    with pytest.raises(StoreError, match="the archive of pot 'copy' is missing"):
        store.archive("copy", card)
    with pytest.raises(StoreError, match=r"is missing: .*again\.pot is the pot alone"):
        store.export("copy", tmp_path / "again.pot")
    store.bring(tmp_path / "again.pot", "third")
    assert toy.version(store.load("third")[0]) == 1


def test_pots_that_are_older_than_archives_still_load(store: PotStore, tmp_path: Path) -> None:
    old = dataclasses.replace(toy.card(), archive="", format=1)
    store.save("old", toy.filled(1), old)
    state, card = store.load("old")
    assert (toy.version(state), card.format, card.archive) == (1, 1, "")
    assert "archive" not in card.to_json()
    assert store.archive("old", card) is None
    store.export("old", tmp_path / "old.pot")
    assert not (tmp_path / "old.archive").exists()
    assert store.bring(tmp_path / "old.pot", "copy").format == 1
    toy.save_with_archive(store, 2, "old")  # read on by this version
    assert toy.version_with_archive(store, "old") == 2


# Damage in the store ---------------------------------------------------------------


def spoilt(path: Path, how: str, folder: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "another text":
        toy.archive_of(2).save(path)
    elif how == "shorter":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        (folder / "elsewhere").write_bytes(data)
        path.symlink_to(folder / "elsewhere")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("another text", "of another text"),
        ("shorter", "damaged"),
        ("empty", "no archive"),
        ("missing", "missing"),
        ("folder", "not a regular file"),
        ("link", "a link"),
    ],
)
def test_a_pot_whose_archive_is_spoilt_still_loads(
    local: LocalStore, tmp_path: Path, how: str, said: str
) -> None:
    toy.save_with_archive(local, 1)
    spoilt(archive_file(local), how, tmp_path)
    state, card = local.load("book")
    assert toy.version(state) == 1
    assert local.card("book") == card
    with pytest.raises(StoreError, match=said) as caught:
        local.archive("book", card)
    assert "archive of pot 'book'" in one_line(caught.value)
    if how not in ("folder", "link"):  # those are the user's to remove
        toy.save_with_archive(local, 1)
        assert toy.version_with_archive(local) == 1
    toy.save_with_archive(local, 2)
    assert toy.version_with_archive(local) == 2


@pytest.mark.parametrize("how", ["folder", "link"])
def test_what_lies_in_an_archives_place_does_not_cost_the_pot(
    local: LocalStore, tmp_path: Path, how: str
) -> None:
    toy.save_with_archive(local, 1)
    spoilt(archive_file(local), how, tmp_path)
    archive = toy.archive_of(1)
    card = toy.save_with_archive(local, 1, archive=archive)
    assert card.archive == ""
    assert "\n" not in archive.unkept
    assert archive_file(local).name in archive.unkept
    assert archive.digest  # the reader goes on recalling
    assert toy.version(local.load("book")[0]) == 1
    if how == "link":
        assert (tmp_path / "elsewhere").stat().st_size > 0


# Killed, no space -------------------------------------------------------------------


def test_killed_at_every_step_the_pot_has_its_own_archive(local: LocalStore) -> None:
    code = f"import toy_pots; toy_pots.save_and_die({str(local.folder)!r})"
    seen = []
    with subprocess.Popen([sys.executable, "-c", code], **PIPES) as nursery:  # type: ignore[call-overload]
        for step in range(1, 60):
            toy.save_with_archive(local, 1)
            assert len(kept(local)) == 2  # all that the last one left is swept
            nursery.stdin.write(f"{step}\n")
            nursery.stdin.flush()
            ended = nursery.stdout.readline() == "0\n"
            seen.append(toy.version_with_archive(local))
            if ended:
                break
    assert ended
    assert len(seen) >= 10
    assert seen == sorted(seen)  # the old one up to some step, the new one from there on
    assert set(seen) == {1, 2}


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_many_moments_the_pot_has_its_own_archive(local: LocalStore, kills: int) -> None:
    megabytes, chance, seen = 1.0, random.Random(7), []
    started = time.perf_counter()
    toy.save_with_archive(local, 1, megabytes=megabytes)
    alone = time.perf_counter() - started
    code = f"import toy_pots; toy_pots.save_again_and_again({str(local.folder)!r}, {megabytes}, True)"
    with subprocess.Popen([sys.executable, "-c", code], **PIPES) as nursery:  # type: ignore[call-overload]
        for _ in range(kills):
            nursery.stdin.write("go\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            time.sleep(chance.uniform(0, 6 * alone))
            os.kill(child, signal.SIGKILL)
            assert nursery.stdout.readline() == "gone\n"
            seen.append(toy.version_with_archive(local))
    assert set(seen) <= {1, 2}
    toy.save_with_archive(local, 2)
    assert kept(local) == [archive_file(local, 2).name, "book.pot"]


def test_what_a_killed_save_left_is_swept_by_the_next(local: LocalStore) -> None:
    toy.save_with_archive(local, 1)
    orphan = local.folder / f"book.{'ab' * 8}.archive"
    half = local.folder / f".book.{'cd' * 8}.archive.{'0' * 16}.tmp"
    orphan.write_bytes(b"of a save that was killed before its pot had its name")
    half.mkdir()
    (half / "x-journal").write_bytes(b"half")
    others = [
        local.folder / f"book2.{'ab' * 8}.archive",
        local.folder / f".book2.{'cd' * 8}.archive.{'0' * 16}.tmp",
    ]
    for other in others:
        other.write_bytes(b"of another pot")
    toy.save_with_archive(local, 1)
    assert not orphan.exists()
    assert not half.exists()
    assert all(other.exists() for other in others)
    assert toy.version_with_archive(local) == 1


def test_at_an_address_only_what_is_old_is_swept(tmp_path: Path) -> None:
    import fsspec

    from infinipot.store.remote import RemoteStore

    store = RemoteStore(fsspec.filesystem("file"), str(tmp_path))
    toy.save_with_archive(store, 1)
    young, old = (tmp_path / f"book.{digit * 16}.archive" for digit in "ab")
    young.write_bytes(b"of a writer at work")
    old.write_bytes(b"of one that was killed")
    os.utime(old, (time.time() - 4000, time.time() - 4000))
    second = toy.save_with_archive(store, 2)
    assert kept(store) == sorted([young.name, f"book.{second.archive[:16]}.archive", "book.pot"])


def test_two_writers_take_turns(local: LocalStore) -> None:
    toy.save_with_archive(local, 1)
    code = f"import toy_pots; toy_pots.save_again_and_again({str(local.folder)!r}, 0.5, True)"
    with subprocess.Popen([sys.executable, "-c", code], **PIPES) as nursery:  # type: ignore[call-overload]
        nursery.stdin.write("go\n")
        nursery.stdin.flush()
        child = int(nursery.stdout.readline())
        for turn in range(10):
            with local.lock("book"):
                assert toy.version_with_archive(local) in (1, 2)
                toy.save_with_archive(local, 1 + turn % 2)
                assert toy.version_with_archive(local) == 1 + turn % 2
        os.kill(child, signal.SIGKILL)
        assert nursery.stdout.readline() == "gone\n"
    assert toy.version_with_archive(local) in (1, 2)


def test_two_writers_at_an_address_leave_the_last_with_its_archive(monkeypatch) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}/pots")
    toy.save_with_archive(store, 1)
    from infinipot.store import file

    real = file.write

    def other_first(*given):
        monkeypatch.setattr(file, "write", real)
        toy.save_with_archive(store, 2)  # begins after our archive was written, ends before our pot is
        return real(*given)

    monkeypatch.setattr(file, "write", other_first)
    toy.save_with_archive(store, 3)
    assert toy.version_with_archive(store) == 3


def in_a_child(body: str, *words: str, **more: str) -> str:
    code = (
        "import resource, sys, toy_pots as toy\nfrom pathlib import Path\n"
        f"from infinipot.store import LocalStore\nstore = LocalStore(Path(sys.argv[1]))\n{body}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env={**ENV, **more}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, 2**18))\n"


def test_an_archive_that_does_not_fit_does_not_cost_the_pot(local: LocalStore) -> None:
    toy.save_with_archive(local, 1)
    said = in_a_child(
        f"archive = toy.archive_of(2, 2000)\n{LIMIT}"
        "card = toy.save_with_archive(store, 2, archive=archive)\nprint(repr(card.archive), archive.unkept)",
        str(local.folder),
    )
    assert said.startswith("'' cannot write the archive: ")
    assert said.count("\n") == 1
    assert toy.version(local.load("book")[0]) == 2
    assert local.archive("book", local.card("book")) is None
    assert kept(local) == ["book.pot"]


def test_a_pot_that_does_not_fit_leaves_the_old_one_with_its_archive(local: LocalStore) -> None:
    toy.save_with_archive(local, 1)
    said = in_a_child(
        f"from infinipot.errors import StoreError\narchive = toy.archive_of(2)\n{LIMIT}"
        "try:\n    toy.save_with_archive(store, 2, 'book', 4.0, archive)\n"
        "except StoreError as error:\n    print(error)",
        str(local.folder),
    )
    assert "file too large" in said
    assert said.count("\n") == 1
    assert toy.version_with_archive(local) == 1
    assert kept(local) == [archive_file(local).name, "book.pot"]


def test_reading_goes_on_where_the_archive_of_a_reader_finds_no_room(local: LocalStore) -> None:
    """SQLite spills to a temporary file what does not fit its cache."""
    said = in_a_child(
        f"{LIMIT}reader = toy.engine().reader(toy.RECIPE)\n"
        "reader.archive.add(('word%d ' * 1000 % tuple(range(1000)) + chr(10)) * 4000)\n"
        "archive = reader.archive\nprint(archive.problem)\nlast = archive.last\nreader.read(toy.TEXT * 4)\n"
        "print(archive.last == last, len(list(archive.texts())) == last)\n"
        "print(reader.tokens_read, repr(archive.digest))\n"
        "fork = reader.fork()\nfork.read('And on.')\nprint(len(reader.ask('Which word7?')) > 0)\n"
        "card = store.save('book', reader.state(), toy.card(archive=archive.digest), archive=archive)\n"
        "print(repr(card.archive), store.names())",
        str(local.folder),
    ).splitlines()
    assert said[0].startswith("the archive could not be written (")
    assert said[1:] == ["True True", "180 ''", "True", "'' ['book']"]


def test_a_full_disk_costs_neither_pot_nor_old_archive(small_disk: Path) -> None:
    store, large = LocalStore(small_disk / "pots"), toy.archive_of(2, 6000)
    toy.save_with_archive(store, 1)
    with pytest.raises(StoreError, match="no space left on device"):
        toy.save_with_archive(store, 2, megabytes=4.0)
    assert toy.version_with_archive(store) == 1
    card = toy.save_with_archive(store, 2, archive=large)
    assert card.archive == ""
    assert large.unkept == "cannot write the archive: database or disk is full"
    assert toy.version(store.load("book")[0]) == 2


def test_an_unsaved_transaction_leaves_a_shared_archive_usable() -> None:
    archive = Archive(most_bytes=100_000)
    archive.add("before " * 100)
    fork, last = archive.fork(), archive.last
    archive.add("word " * 100_000)
    assert archive.problem
    assert "".join(archive.texts()).startswith("before ")
    assert archive.last >= last
    fork.add("A zebra.")
    assert not fork.problem
    assert [*fork.matching(["zebra"], 5)] == [fork.last]


def test_signs_that_no_database_takes_end_the_archive_not_the_reading() -> None:
    archive = Archive()
    archive.add("a\0b " * 1000 + "zebra")
    assert "".join(archive.texts()) == "a\0b " * 1000 + "zebra"
    first, second = archive.passages([1, 2])
    assert first.end == second.start == len(first.text)
    assert list(archive.taking(["half a pair \ud800"])) == ["half a pair \ud800"]
    assert "could not be written" in archive.problem
    assert archive.matching(["zebra"], 5)


def test_an_exported_archive_may_be_moved_by_hand(store: PotStore, tmp_path: Path) -> None:
    """To a folder whose name SQLite could take for part of an address."""
    toy.save_with_archive(store, 1)
    odd = tmp_path / "50% of? it#"
    odd.mkdir()
    store.export("book", odd / "out.pot")
    shutil.copy(odd / "out.archive", odd / "other.archive")
    shutil.copy(odd / "out.pot", odd / "other.pot")
    store.bring(odd / "other.pot", "copy")
    assert toy.version_with_archive(store, "copy") == 1


def test_an_archive_with_a_gap_is_not_taken_for_the_whole_text() -> None:
    reader = toy.read()
    assert reader.archive is not None
    reader.archive.problem = "the archive could not be written (disk full)"
    assert reader.ask("Which?", recall=ALL) == reader.ask("Which?", recall=0)


def test_a_question_too_long_to_be_a_catalyst_is_asked_all_the_same() -> None:
    """Reading again with no room for a chunk beside it would never end."""
    reader = toy.read()
    assert isinstance(reader.ask("Which?", recall=ALL), str)
