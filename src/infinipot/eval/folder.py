"""A run's folder, written by one process at a time: `manifest.json`; `rows.jsonl`, one an example and cell.

A row is on the disk before the next one starts. Whatever ends the process leaves at most half a line
behind, which the next run drops; so no row is there twice and none is lost.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from infinipot.common.atomic_files import aside, reason, sync
from infinipot.errors import ConfigError, InputError
from infinipot.eval.manifest import FORMAT, Manifest, differences
from infinipot.eval.tasks.jsonl import DAMAGED, PACKED, open_file

MANIFEST, ROWS, LOCK = "manifest.json", "rows.jsonl", ".lock"
Row = dict[str, Any]


class Folder:
    """An open run folder, held by this process."""

    def __init__(self, path: Path, rows: list[Row], stream: BinaryIO) -> None:
        self.path, self.rows, self._stream = path, rows, stream

    def append(self, row: Row) -> None:
        """Put a row on the disk."""
        self._stream.write(json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.rows.append(row)

    def done(self) -> set[tuple[str, str]]:
        """Return the keys of the rows that are there: cell and example, or file and line of a bad one."""
        return {key(row) for row in self.rows}


def key(row: Row) -> tuple[str, str]:
    """Return what makes a row the only one of its kind."""
    if row["kind"] == "bad":
        return f"bad {row['file']}", str(row["line"])
    return row["cell"], row["example"]


@contextmanager
def opened(path: Path, manifest: Manifest) -> Iterator[Folder]:
    """Open a run's folder to write to it: new, to be resumed, or to get further cells."""
    lock = FileLock(path / LOCK)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        problem = f"another process is writing to {path}"
        raise ConfigError(problem, field="out", remedy="wait for its end, or use another `out`") from None
    except OSError as error:
        raise InputError(f"cannot make {path}: {reason(error)}") from error
    try:
        _agree(path, manifest)
        rows = _mended(path / ROWS)
        with (path / ROWS).open("ab") as stream:
            yield Folder(path, rows, stream)
    finally:
        lock.release()


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a run's folder."""
    try:
        found = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} holds no run: there is no {MANIFEST} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path / MANIFEST}: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path / MANIFEST} is of another version of this program: run it again")
    cells = {_renamed(name): cell for name, cell in found.get("cells", {}).items()}
    for cell in cells.values():
        if "fit" in cell:  # of a run before there was `tail`
            settle, fit = cell.pop("settle"), cell.pop("fit")
            cell["tail"] = "fill" if fit else "distil" if settle else "raw"
    return {**found, "cells": cells}


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a run's folder, packed (.xz, .gz) or not; half a line at its end is not one."""
    found = _packed(path) or path / ROWS
    if not found.exists():
        return []
    try:
        with open_file(found) as stream:
            return list(_rows(stream.read(), found))
    except DAMAGED as error:
        raise InputError(f"cannot read {found}: {error}") from error


def _packed(path: Path) -> Path | None:
    """Return the packed rows of a run that was put away, if they are all there is."""
    files = (path / f"{ROWS}{suffix}" for suffix in PACKED if suffix)
    return None if (path / ROWS).exists() else next((file for file in files if file.exists()), None)


def _rows(data: bytes, path: Path) -> Iterator[Row]:
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            key(row)
            if row["kind"] == "example":
                row["cell"] = _renamed(row["cell"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} line {number} is no row: {error}") from None
        yield row


def _renamed(cell: str) -> str:
    """Return a cell's name in today's words: what becomes of a text's end is one setting, `tail`."""
    return cell.replace(" no-settle no-fit", " tail=raw").replace(" no-fit", " tail=distil")


def _mended(path: Path) -> list[Row]:
    """Cut off what is behind the last complete line; return the rows before it."""
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
        sync(path)
    return list(_rows(data[:whole], path))


def _agree(path: Path, manifest: Manifest) -> None:
    """Write the manifest, joined with the one that is there if both are of one run."""
    if packed := _packed(path):
        raise ConfigError(f"the rows of {path} are packed: unpack {packed.name} to go on")
    if (path / MANIFEST).exists():
        old = read_manifest(path)
        if found := differences(old, manifest):
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            problem = f"{path} holds another run; different there and here: {', '.join(found[:3])}{more}"
            raise ConfigError(problem, field="out", remedy="use another `out`")
        sessions = [*old["sessions"], *manifest["sessions"]]
        manifest = {**old, "cells": {**old["cells"], **manifest["cells"]}, "sessions": sessions}
    elif (path / ROWS).exists():
        raise ConfigError(f"{path} has rows and no {MANIFEST}", field="out", remedy="use another `out`")
    with aside(path / MANIFEST) as half:
        half.write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", "utf-8", newline="\n")
    (path / MANIFEST).chmod(0o644)  # as rows are: others may report the run
