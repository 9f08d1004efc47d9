"""Whatever happens while a pot is saved, the old one is whole: killed, no space, no right to write."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import toy_pots as toy
from infinipot.errors import StoreError
from infinipot.store import LocalStore

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
MEGABYTES = 4.0


@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_many_moments_the_pot_is_always_whole(tmp_path: Path, kills: int) -> None:
    store = LocalStore(tmp_path)
    store.save("book", toy.filled(1, MEGABYTES), toy.card())
    alone = _seconds(store)
    chance, left, seen = random.Random(7), 0, []
    code = f"import toy_pots; toy_pots.save_again_and_again({str(tmp_path)!r}, {MEGABYTES})"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENV}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as nursery:
        for _ in range(kills):
            nursery.stdin.write("go\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            time.sleep(chance.uniform(0, 6 * alone))
            os.kill(child, signal.SIGKILL)
            assert nursery.stdout.readline() == "gone\n"
            left += bool(list(tmp_path.glob(".*.tmp")))
            seen.append(toy.version(store.load("book")[0]))
    assert set(seen) <= {1, 2}
    if kills >= 50:  # so many meet every moment: before, in the middle of and after writing
        assert set(seen) == {1, 2}
        assert left >= kills // 10
    store.save("book", toy.filled(2), toy.card(), replace=True)  # no lock is left, and all is swept
    assert not list(tmp_path.glob(".*.tmp"))


def _seconds(store: LocalStore) -> float:
    start = time.perf_counter()
    store.save("book", toy.filled(2, MEGABYTES), toy.card(), replace=True)
    return time.perf_counter() - start


def saved_by_a_child(body: str, *words: str) -> str:
    """Run code that may limit itself; return what it said."""
    code = (
        "import sys, toy_pots as toy\nfrom pathlib import Path\nfrom infinipot.errors import StoreError\n"
        f"from infinipot.store import LocalStore\nstore = LocalStore(Path(sys.argv[1]))\n{body}\n"
        "try:\n    store.save('book', toy.filled(2, 4.0), toy.card(), replace=True)\n"
        "except StoreError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=ENV, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_space_leaves_the_old_pot_and_one_line(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.save("book", toy.filled(1), toy.card())
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))"
    said = saved_by_a_child(limit, str(tmp_path))
    assert said.startswith("cannot write ")
    assert "file too large" in said
    assert said.count("\n") == 1
    assert toy.version(store.load("book")[0]) == 1
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_leaves_the_old_pot_and_one_line(small_disk: Path) -> None:
    store = LocalStore(small_disk / "pots")
    store.save("book", toy.filled(1), toy.card())
    with pytest.raises(StoreError, match="no space left on device") as caught:
        store.save("book", toy.filled(2, 4.0), toy.card(), replace=True)
    assert "\n" not in str(caught.value)
    assert toy.version(store.load("book")[0]) == 1
    assert not list(store.folder.glob(".*.tmp"))


NOBODY = "import os\nif os.geteuid() == 0: os.setgid(65534), os.setuid(65534)"  # root may write anywhere


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_nobody_may_write_gives_one_line(mode: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        store = LocalStore(Path(place) / "pots")
        store.save("book", toy.filled(1), toy.card())
        (store.folder / ".locks").chmod(mode)
        store.folder.chmod(mode)
        try:
            said = saved_by_a_child(NOBODY, str(store.folder))
        finally:
            store.folder.chmod(0o700)
        assert said.startswith("cannot ")
        assert "permission denied" in said
        assert said.count("\n") == 1
        assert toy.version(store.load("book")[0]) == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_leaves_the_old_pot(tmp_path: Path, monkeypatch, step: str) -> None:
    store = LocalStore(tmp_path)
    store.save("book", toy.filled(1), toy.card())

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(*((os, "fsync", fail) if step == "fsync" else (Path, "replace", fail)))
    with pytest.raises(StoreError, match="input/output error"):
        store.save("book", toy.filled(2), toy.card(), replace=True)
    monkeypatch.undo()
    assert toy.version(store.load("book")[0]) == 1
    assert not list(tmp_path.glob(".*.tmp"))
