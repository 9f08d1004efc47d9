"""Rows that `recall_plan.py --pack` brought back, put into docs/results/recall, a file a kind of step.

    python benchmarks/recall_kept.py FILE.tar.xz
    python benchmarks/recall_kept.py --back OUT

`ways.jsonl.xz`, `judging.jsonl.xz` and `asked.jsonl.xz` have the rows of all texts, each with its text's
name; the whole text read again is a run's folder. `--back` is the way back: it puts them where
`recall_plan.py --out OUT` goes on with them. Texts that are in OUT already stay as they are.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from infinipot.eval.folder import MANIFEST, ROWS
from recall_plan import AGAIN, KINDS

RECALL = Path(__file__).parents[1] / "docs" / "results" / "recall"


def put_away(archive: Path, folder: Path) -> Iterator[str]:
    """Write what an archive has; yield a line for each file."""
    with tarfile.open(archive) as packed:
        files = {PurePosixPath(one.name): one for one in packed.getmembers() if one.isfile()}
        read = {path.parts[1:]: packed.extractfile(files[path]) for path in sorted(files)}
        data = {parts: stream.read() for parts, stream in read.items() if stream is not None}
    for kind in KINDS:
        if rows := b"".join(data[at] for at in data if at[0] == kind):
            yield _packed(folder / f"{kind}.jsonl.xz", rows)
    if (AGAIN, ROWS) in data:
        (folder / AGAIN).mkdir(parents=True, exist_ok=True)
        (folder / AGAIN / MANIFEST).write_bytes(data[AGAIN, MANIFEST])
        yield _packed(folder / AGAIN / f"{ROWS}.xz", data[AGAIN, ROWS])


def _packed(path: Path, data: bytes) -> str:
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    return f"{path.name}: {len(data.splitlines())} rows, {path.stat().st_size:,} bytes"


def put_back(folder: Path, out: Path) -> Iterator[str]:
    """Write the texts of a folder that a run's own does not have; yield a line for each."""
    for kind in (one for one in KINDS if (folder / f"{one}.jsonl.xz").exists()):
        texts = dict[Path, list[str]]()
        for line in lzma.decompress((folder / f"{kind}.jsonl.xz").read_bytes()).decode().splitlines():
            texts.setdefault(out / kind / f"{json.loads(line)['text']}.jsonl", []).append(line)
        for path, lines in texts.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join((*lines, "")), "utf-8")
                yield f"{path.stem}: {len(lines)} rows"
    if (folder / AGAIN).is_dir() and not (out / AGAIN).is_dir():
        (out / AGAIN).mkdir(parents=True)
        (out / AGAIN / MANIFEST).write_bytes((folder / AGAIN / MANIFEST).read_bytes())
        (out / AGAIN / ROWS).write_bytes(lzma.decompress((folder / AGAIN / f"{ROWS}.xz").read_bytes()))
        yield AGAIN


def main() -> None:
    """Put rows away, or back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", help="a file that the plan has packed")
    parser.add_argument("--back", type=Path, metavar="OUT", help="the plan's folder")
    args = parser.parse_args()
    if bool(args.archive) == bool(args.back):
        parser.error("give a file to put away, or --back OUT")
    for line in put_back(RECALL, args.back) if args.back else put_away(args.archive, RECALL):
        print(line)


if __name__ == "__main__":
    main()
