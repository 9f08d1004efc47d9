"""Every figure that the documentation prints, computed again from the raw files in `docs/results`.

    python benchmarks/figures.py            # make figures
    python benchmarks/figures.py --write    # puts the right number in place of each wrong one

The modules of `claims/` say what README.md, docs/*.md and docs/adr print: a phrase of the page, and for each
number in it an expression over raw files. A number that is not what the expression gives is told as
file:line with both. So is a phrase that the page no longer has, and a number that looks measured
(`claims/page.py`) but that no phrase has and `claims/exceptions.toml` does not excuse.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import beside
import claims
import tables
from claims.page import NUMBER, Page

ROOT = Path(__file__).parents[1]
EXCEPTIONS = Path(__file__).parent / "claims" / "exceptions.toml"


MADE = {"docs/paper.md": beside.page}  # pages that a script makes as a whole


class Checker:
    """Compares what is claimed with what the pages print; `problems` has a line for each difference."""

    def __init__(self, root: Path = ROOT) -> None:
        paths = [
            root / "README.md",
            *sorted((root / "docs").glob("*.md")),
            *sorted(root.glob("docs/adr/*.md")),
        ]
        self.pages = {name: Page(path, name) for path in paths for name in [str(path.relative_to(root))]}
        self.problems: list[str] = []
        self.checked = 0
        self.wrong: list[tuple[str, int, int, str]] = []  # page, place and end of a number, and the right one
        self._known: set[tuple[str, int]] = set()  # page and place of each number that was checked or excused

    def says(self, name: str, phrase: str, *values: Any, holds: bool = True) -> None:
        """Check a phrase of a page with its numbers; `holds` is whether what its words say is so."""
        page = self.pages[name]
        places = page.places(phrase, values)
        if not places:
            self.problems.append(f"{name}: nowhere says: {phrase!r} with {values}")
        for place in places:
            for one in place:
                self.checked += 1
                self._known.add((name, one.at))
                if not one.agrees:
                    self.wrong.append((name, one.at, one.end, one.right[0]))
                    where, right = f"{name}:{page.line(one.at)}", " or ".join(one.right)
                    self.problems.append(f"{where}: printed {one.text}, recomputed {right}: {phrase!r}")
        if not holds:
            self.problems.append(f"{name}: the raw files do not say so: {phrase!r}")

    def excuse(self, name: str, phrase: str) -> None:
        """Leave out the numbers of a phrase, or of a whole page where there is none."""
        page = self.pages[name]
        places = page.spans(phrase) if phrase else [(0, len(page.text))]
        if not places:
            self.problems.append(f"{EXCEPTIONS.name}: {name} no longer says {phrase!r}")
        for start, end in places:
            self._known |= {(name, at) for at in range(start, end)}

    def made(self, name: str, right: str) -> None:
        """Check a page that a script makes, line by line."""
        self.excuse(name, "")
        told, lines = self.pages[name].text.splitlines(), right.splitlines()
        self.checked += len(re.findall(NUMBER, right))
        for number, (there, line) in enumerate(zip_longest(told, lines, fillvalue=""), start=1):
            if there != line:
                self.problems.append(f"{name}:{number}: printed {there!r}, made {line!r}")

    def filled(self, name: str) -> None:
        """Check a page whose tables a script makes, line by line."""
        told = self.pages[name].text
        for there, line in zip(told.splitlines(), tables.filled(told).splitlines(), strict=False):
            self.checked += len(re.findall(NUMBER, line)) if line.startswith("| ") else 0
            if there != line:
                self.problems.append(f"{name}: printed {there!r}, made {line!r}")
                return  # what follows may only have moved

    def uncovered(self) -> list[str]:
        """Return a line for each number that looks measured and that nothing accounts for."""
        found = []
        for name, page in self.pages.items():
            for at, text in page.figures():
                if (name, at) not in self._known:
                    line = page.line(at)
                    told = page.text.splitlines()[line - 1].strip()
                    found.append(f"{name}:{line}: {text} has no raw file behind it: {told[:100]}")
        return found


def check(root: Path = ROOT) -> Checker:
    """Check every claim and every exception."""
    checker = Checker(root)
    for module in iter_modules(claims.__path__, "claims."):
        if claimed := getattr(import_module(module.name), "claimed", None):
            claimed(checker.says)
    for name, make in MADE.items():
        checker.made(name, make())
    for name in tables.PAGES:
        checker.filled(name)
    for one in tomllib.loads(EXCEPTIONS.read_text("utf-8"))["exception"]:
        for phrase in one.get("phrases", [""]):
            checker.excuse(one["page"], phrase)
    return checker


def mend(checker: Checker, root: Path = ROOT) -> None:
    """Put the right number in place of each wrong one, in pages that people write."""
    texts = {name: page.text for name, page in checker.pages.items()}
    wrong = {one[:3]: one for one in checker.wrong}  # each once, whatever phrases say of it
    for name, at, end, right in sorted(wrong.values(), reverse=True):  # from the end
        text = texts[name]
        texts[name] = text[:at] + "+" * (text[at] == "+" and right[0] != "-") + right + text[end:]
    for name, text in texts.items():
        (root / name).write_text(text, "utf-8")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="mend the numbers; words are yours to mend")
    write = parser.parse_args(words).write
    checker = check()
    if write:
        mend(checker)
    problems = [*checker.problems, *checker.uncovered()]
    for line in problems:
        print(line)
    print(f"{checker.checked} figures recomputed, {len(problems)} problems", file=sys.stderr)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
