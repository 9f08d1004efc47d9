"""Temporary folders: gone with their request, and those of a killed process with the next server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infinipot.server.http import temporary
from infinipot.server.http.temporary import remove_orphans, temporary_folder

KILLED = """
import os, sys
from pathlib import Path
from infinipot.server.http.temporary import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "upload").write_text("a secret")
    os.kill(os.getpid(), 9)
"""


def _killed(parent: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(parent)]).returncode == -9
    assert [path.read_text() for path in parent.glob("*/upload")] == ["a secret"]


def test_a_folder_is_gone_with_its_use(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        (folder / "x").write_text("x")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    _killed(tmp_path)
    remove_orphans(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_uses_stays(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        (folder / "upload").write_text("x")
        remove_orphans(tmp_path)
        assert (folder / "upload").read_text() == "x"
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tmp_path / "infinipot-mine"  # a name that is near ours
    others.mkdir()
    (tmp_path / "infinipot-upload-plain").mkdir()  # without a lock nobody knows whose it is
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "infinipot-upload-a").symlink_to(precious)  # a trap: the lock is real, the folder a link
    (spool / "infinipot-upload-a.lock").touch()
    (spool / "infinipot-upload-b").mkdir()
    (spool / "infinipot-upload-b.lock").symlink_to(precious / "file")
    remove_orphans(tmp_path)
    remove_orphans(spool)
    assert (precious / "file").read_text() == "x"
    assert others.is_dir()
    assert (tmp_path / "infinipot-upload-plain").is_dir()
    assert len(list(spool.iterdir())) == 4
    _killed(tmp_path)
    me = os.getuid()
    monkeypatch.setattr(temporary.os, "getuid", lambda: me + 1)  # another user's
    remove_orphans(tmp_path)
    assert len(list(tmp_path.glob("*/upload"))) == 1
