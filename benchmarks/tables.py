"""Tables of docs/results.md and ADR 24, made of our own rows and written where a page has a place for them.

    python benchmarks/tables.py

A place begins with `<!-- keys -->`, say, and ends with `<!-- end of keys -->`; what stands between is made
anew. `make figures` makes it too and compares. Folders are those of `grids.py` in docs/results: `report-half`
of today's code, `defaults-MODEL` for what was run on the half `tune`, and `grids`, of earlier code, for the
rows that defaults were chosen on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from beside import MODEL
from paper.ours import keys, longbench
from paper.spent import spent
from paper.tried import tried
from paper.tuned import defaults

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = "docs/results.md", "docs/adr/0024-how-a-pot-spends-its-slots.md"
MADE: dict[str, Callable[[Path], Iterator[str]]] = {
    "keys": lambda results: keys(results / "report-half"),
    "longbench": lambda results: longbench(results / "report-half/longbench", results / "grids/longbench"),
    "slots": lambda results: spent(results, MODEL),
    "tried": lambda results: tried(results, MODEL),
    "defaults": lambda results: defaults(sorted(results.glob("defaults-*"))),
}


def filled(page: str, results: Path = RESULTS) -> str:
    """Return a page with every table made anew; one without places is returned as it is."""

    def made(place: re.Match[str]) -> str:
        lines = "\n".join(MADE[place[1]](results)).strip()
        return f"<!-- {place[1]} -->\n\n{lines}\n\n<!-- end of {place[1]} -->"

    return re.sub(rf"<!-- ({'|'.join(MADE)}) -->.*?<!-- end of \1 -->", made, page, flags=re.DOTALL)


def main() -> None:
    for path in (ROOT / name for name in PAGES):
        path.write_text(filled(path.read_text("utf-8")), "utf-8")
        print(path)


if __name__ == "__main__":
    main()
