"""Rows that `grids.py --pack` brought back, put into docs/results: a folder a model and plan, rows packed.

    python benchmarks/put_away.py FILE.tar.xz ... --main qwen2.5-coder-1.5b

The main model's grids are `grids/` (or `--folder`), those of others `grids-MODEL/`; what was run on the half
`tune` is `defaults-MODEL/`. A grid that is there already is replaced, the others of its folder stay.
"""

from __future__ import annotations

import argparse
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from infinipot.eval.folder import MANIFEST, ROWS

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TUNE = "-tune"


def place(name: str, main: str, folder: str = "grids") -> PurePosixPath | None:
    """Return where a file of the archive, MODEL/GRID/FILE, belongs below docs/results."""
    model, grid, file = PurePosixPath(name).parts
    if file not in (MANIFEST, ROWS):
        return None
    folder = folder if model == main else f"{folder}-{model}"
    if grid.endswith(TUNE):
        folder, grid = f"defaults-{model}", grid.removesuffix(TUNE)
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
                path.write_bytes(data)
                continue
            path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
            yield f"{into.parent}: {len(data.splitlines())} rows, {path.stat().st_size:,} bytes"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--main", default="qwen2.5-coder-1.5b", help="model of the main tables")
    parser.add_argument("--folder", default="grids", help="name of the folder of its grids")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args(words)
    for archive in args.archives:
        for line in put_away(archive, args.results, args.main, args.folder):
            print(line)


if __name__ == "__main__":
    main()
