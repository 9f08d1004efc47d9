"""Rows that `grids.py --pack` brought back, put into docs/results: a folder a model and plan, rows packed.

    python benchmarks/put_away.py FILE.tar.xz ... --main qwen2.5-coder-1.5b
    python benchmarks/put_away.py --back OUT

The main model's grids are `grids/` (or `--folder`), those of others `grids-MODEL/`; what was run on the half
`tune` is `defaults-MODEL/`. A grid that is there already is replaced, the others of its folder stay.

`--back` is the way back: it puts all of them where `grids.py --out OUT` goes on with them. Rows that were
made with other versions of Python or torch stay where they are: a run's rows are of one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from infinipot.core.config import PotConfig
from infinipot.eval.folder import MANIFEST, ROWS, Row, read_manifest, read_rows
from infinipot.eval.manifest import Manifest, versions

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TUNE, DEFAULTS = "-tune", "defaults-"
MUTE = ("judge", "meaning")  # options that say how passages are found: where none are, they mean nothing


def place(name: str, main: str, folder: str = "grids") -> PurePosixPath | None:
    """Return where a file of the archive, MODEL/GRID/FILE, belongs below docs/results."""
    model, grid, file = PurePosixPath(name).parts
    if file not in (MANIFEST, ROWS):
        return None
    folder = folder if model == main else f"{folder}-{model}"
    if grid.endswith(TUNE):
        folder, grid = f"{DEFAULTS}{model}", grid.removesuffix(TUNE)
    return PurePosixPath(folder, grid, f"{file}.xz" if file == ROWS else file)


def put_away(archive: Path, results: Path, main: str, folder: str) -> Iterator[str]:
    """Write an archive's grids; yield a line for each."""
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            into, stream = place(member.name, main, folder), packed.extractfile(member)
            if into is None or stream is None:
                continue
            path, data = results / into, stream.read()
            path.parent.mkdir(parents=True, exist_ok=True)
            if into.name == MANIFEST:
                path.write_text(once(json.loads(data)), "utf-8")
                continue
            path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
            yield f"{into.parent}: {len(data.splitlines())} rows, {path.stat().st_size:,} bytes"


def once(manifest: Manifest) -> str:
    """Return a manifest's text with each session once: parts that were put together name theirs again."""
    sessions = {json.dumps(one): one for one in manifest["sessions"]}
    kept = sorted(sessions.values(), key=lambda one: str(one["started"]))
    return json.dumps({**manifest, "sessions": kept}, indent=1, ensure_ascii=False) + "\n"


def origin(folder: str, grid: str, main: str, of: str = "grids") -> PurePosixPath | None:
    """Return where rows of a folder below docs/results were gathered, MODEL/GRID; None for other files."""
    if folder.startswith(DEFAULTS):
        return PurePosixPath(folder.removeprefix(DEFAULTS), f"{grid}{TUNE}")
    model = main if folder == of else folder.removeprefix(f"{of}-")
    return PurePosixPath(model, grid) if folder in (of, f"{of}-{model}") else None


def taken_back(results: Path, out: Path, main: str, folder: str) -> Iterator[str]:
    """Put the rows back where they were gathered; yield a line for each grid."""
    for path in sorted(one.parent for one in results.glob(f"*/*/{MANIFEST}")):
        place = origin(path.parent.name, path.name, main, folder)
        if place is None:
            continue
        manifest, rows = read_manifest(path), read_rows(path)
        if manifest["versions"] != versions():
            yield f"{place}: left out, made with {manifest['versions']}, not with {versions()}"
            continue
        _write(out / place, _today(manifest), rows)
        yield f"{place}: {len(rows)} rows"


def _today(manifest: Manifest) -> Manifest:
    """Return a manifest whose cells say of what does nothing in them what today's say."""
    usual = {name: getattr(PotConfig(), name) for name in MUTE}
    cells = {
        name: cell if cell.get("recall") else {**cell, **usual} for name, cell in manifest["cells"].items()
    }
    return {**manifest, "cells": cells}


def _write(path: Path, manifest: Manifest, rows: Sequence[Row]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (path / ROWS).write_bytes("".join(lines).encode(errors="replace"))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archives", type=Path, nargs="*")
    parser.add_argument("--back", type=Path, metavar="OUT", help="take rows back to where grids.py gathers")
    parser.add_argument("--main", default="qwen2.5-coder-1.5b", help="model of the main tables")
    parser.add_argument("--folder", default="grids", help="name of the folder of its grids")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args(words)
    for archive in args.archives:
        for line in put_away(archive, args.results, args.main, args.folder):
            print(line)
    if args.back:
        for line in taken_back(args.results, args.back, args.main, args.folder):
            print(line)


if __name__ == "__main__":
    main()
