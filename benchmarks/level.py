"""Rows of a cell that was run later than others: where nothing was dropped, it has an earlier cell's rows.

    python benchmarks/level.py docs/results/report-half/longbench "CELL" "LIKE"

`grids.py` does once what two cells do alike. A cell that is run later, by other code, does it again, and
differs by rounding: that is no difference of recipes. So where nothing was distilled in either cell, CELL has
the row of LIKE, and names it as `same_as`. The rows it had go to `again.jsonl.xz` beside them.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path

from infinipot.eval.folder import ROWS, Row, read_rows

AGAIN = "again.jsonl.xz"


def leveled(rows: Sequence[Row], cell: str, like: str) -> tuple[list[Row], list[Row]]:
    """Return the rows as they are to be, and those that they take the place of."""
    same = {row["example"]: row for row in rows if _whole(row, like)}
    found, before = [], []
    for row in rows:
        if _whole(row, cell) and row["example"] in same and "same_as" not in row:
            before.append(row)
            other = same[row["example"]]
            row = {**other, "cell": cell, "same_as": other.get("same_as", like)}
        found.append(row)
    return found, before


def _whole(row: Row, cell: str) -> bool:
    """Say whether a row is of a cell, and nothing was dropped."""
    return row.get("cell") == cell and row["score"] is not None and row["cycles"] == 0


def replaced(folder: Path) -> list[Row]:
    """Return the rows that were replaced before, of other cells."""
    path = folder / AGAIN
    return [json.loads(line) for line in lzma.open(path, "rt")] if path.exists() else []


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, packed."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(lzma.compress("".join(lines).encode(errors="replace"), preset=9 | lzma.PRESET_EXTREME))


def main(words: Sequence[str]) -> None:
    """Level one cell of a run's folder."""
    folder, cell, like = Path(words[0]), *words[1:]
    rows, before = leveled(read_rows(folder), cell, like)
    after = {row["example"]: row for row in rows if row.get("cell") == cell}
    others = [row for row in before if row["prediction"] != after[row["example"]]["prediction"]]
    if before:
        if (folder / ROWS).exists():
            raise SystemExit(f"{folder / ROWS} is read before what this would write: pack it with `xz` first")
        write(folder / f"{ROWS}.xz", rows)
        write(folder / AGAIN, [*replaced(folder), *before])
    print(f"{cell}: {len(before)} rows, of which {len(others)} were answered otherwise, are those of {like}")


if __name__ == "__main__":
    main(sys.argv[1:])
