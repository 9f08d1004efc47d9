"""Temporary folders, each beside a lock that its process holds, which tells what a killed server left."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger("infinipot.server")
PREFIX, LOCK = "infinipot-upload-", ".lock"


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Give a folder of one's own, which is gone at the end, or at the start of the next server."""
    with _locked(parent) as lock:
        folder = lock.with_suffix("")
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(parent: Path) -> Iterator[Path]:
    """Hold a lock with a new name, and remove its file at the end."""
    while True:
        handle, name = tempfile.mkstemp(LOCK, PREFIX, parent)
        os.close(handle)
        path, lock = Path(name), _lock(Path(name))
        with suppress(Timeout):  # a server that starts looks at the new lock: take another
            lock.acquire()
            if path.exists():
                break
            lock.release()
    try:
        yield path
    finally:
        lock.release()
        path.unlink(missing_ok=True)


def remove_orphans(parent: Path) -> None:
    """Remove folders of dead processes from `parent`: ours by name and owner, and by a lock that is free."""
    for path in parent.glob(f"{PREFIX}*{LOCK}"):
        folder = path.with_suffix("")
        if not _is_ours(path, folder):
            continue
        with suppress(Timeout, OSError):  # held: its process lives
            with _lock(path):
                if folder.exists():
                    shutil.rmtree(folder)
                    log.info("removed %s, which a server that was killed had left", folder.name)
            path.unlink(missing_ok=True)


def _lock(path: Path) -> FileLock:
    return FileLock(path, timeout=0, thread_local=False)


def _is_ours(path: Path, folder: Path) -> bool:
    """Say whether a lock and its folder are no links, and of the user this process runs as."""
    owner = os.getuid() if hasattr(os, "getuid") else None
    if path.is_symlink() or folder.is_symlink():
        return False
    with suppress(OSError):
        owners = {one.stat().st_uid for one in (path, folder) if one.exists()}
        return owner is None or owners == {owner}
    return False
