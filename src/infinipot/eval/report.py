"""From runs to a folder of tables and pictures: `report.md`, `index.html`, CSV files and PNG pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from infinipot.errors import InputError
from infinipot.eval.page import facts, page
from infinipot.eval.pictures import Picture, pictures
from infinipot.eval.results import Section, load, sections
from infinipot.eval.tables import Table, tables

Part = tuple[Section, list[Table], list[Picture]]


def report(paths: Sequence[Path], out: Path, mix: bool = False) -> list[Path]:
    """Write the report of some runs; return its files, the page first."""
    runs, mixed = load(paths, mix)
    found = [section for section in sections(runs) if any(one.rows for one in section.series)]
    if not found:
        raise InputError("these runs have no rows yet: nothing to report")
    parts: list[Part] = [(section, tables(section), list(pictures(section))) for section in found]
    try:
        out.mkdir(parents=True, exist_ok=True)
        written = [_text(out / "index.html", page(runs, parts, mixed))]
        written.append(_text(out / "report.md", _markdown(parts, facts(runs), mixed)))
        for number, part in enumerate(parts):
            written += _files(out, part, f"-{number + 1}" if len(parts) > 1 else "")
    except OSError as error:
        raise InputError(f"cannot write to {out}: {(error.strerror or str(error)).lower()}") from error
    return written


def _files(out: Path, part: Part, number: str) -> list[Path]:
    section, found, drawn = part
    stem = f"{section.task}{number}"
    written = [_text(out / f"{stem}-{_slug(table.title)}.csv", table.csv()) for table in found if table.rows]
    for picture in drawn:
        path = out / f"{stem}-{picture.name}.png"
        path.write_bytes(picture.light)
        written.append(path)
    return written


def _markdown(parts: Sequence[Part], known: dict[str, str], mixed: Sequence[str]) -> str:
    lines = ["# Results", ""]
    if mixed:
        lines += [f"**Different runs are mixed here, as asked.** They differ in {'; '.join(mixed)}.", ""]
    lines += [f"- {name}: {text}" for name, text in known.items()]
    for section, found, _ in parts:
        lines += ["", f"## {section.title}", ""]
        lines += [f"- {note}" for note in [*section.notes, *section.bad]]
        lines += ["", *(table.markdown() for table in found)]
    lines.append("Scores are x 100; in brackets, 95% intervals.")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
