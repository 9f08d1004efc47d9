"""From runs to a folder of tables and plots: `report.md`, `index.html`, CSV files and PNG pictures.

The page is one file with everything in it, without scripts, light or dark as the reader likes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from infinipot.common import page
from infinipot.common.atomic_files import reason
from infinipot.common.plots import Picture
from infinipot.errors import InputError
from infinipot.eval.plots import plots
from infinipot.eval.results import Run, Section, load, sections, stated
from infinipot.eval.tables import Table, tables

Part = tuple[Section, list[Table], list[Picture]]


def report(paths: Sequence[Path], out: Path, mix: bool = False) -> list[Path]:
    """Write the report of some runs; return its files, the page first."""
    runs, mixed = load(paths, mix)
    found = [section for section in sections(runs) if any(one.rows for one in section.series)]
    if not found:
        raise InputError("these runs have no rows yet: nothing to report")
    parts: list[Part] = [(section, tables(section), list(plots(section))) for section in found]
    known = facts(runs)
    written = {"index.html": _page(parts, known, mixed).encode()}
    written["report.md"] = _markdown(parts, known, mixed).encode()
    pictures: dict[str, bytes] = {}
    for number, (section, made, drawn) in enumerate(parts, start=1):
        stem = f"{section.task}-{number}" if len(parts) > 1 else section.task
        written |= {f"{stem}-{_slug(table.title)}.csv": table.csv().encode() for table in made}
        pictures |= {f"{stem}-{picture.name}.png": picture.light for picture in drawn}
    written |= pictures
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in written.items():
            (out / name).write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {reason(error)}") from error
    return [out / name for name in written]


def facts(runs: Sequence[Run]) -> dict[str, str]:
    """What a reader must know of how the numbers came about."""
    manifests = [run.manifest for run in runs]
    sessions = [session for manifest in manifests for session in manifest["sessions"]]
    models = [manifest["model"] for manifest in manifests]
    starts = [session["started"] for session in sessions]
    return {
        "model": _each(f"{m['name']} ({m['weights']})" for m in models),
        "computed": _each(f"{m['dtype']} on {m['device']}, {m['format']} prompts" for m in models),
        "hardware": _each(str(session["hardware"]) for session in sessions),
        "versions": _each(stated(m["versions"], ", ") for m in manifests),
        "commit": _each(str(session["commit"] or "not from a checkout") for session in sessions),
        "seed": _each(str(m["seed"]) for m in manifests),
        "run": f"{min(starts)} to {max(starts)} (starts)",
        "examples": _each(
            f"{m['task']} {m['examples']['count']} ({stated(m['options'], '; ')})".removesuffix(" ()")
            for m in manifests
        ),
    }


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _page(parts: Sequence[Part], known: dict[str, str], mixed: Sequence[str]) -> str:
    style = (files("infinipot.eval") / "report.css").read_text("utf-8")
    body = [f"<h1>InfiniPot: {html.escape(', '.join(section.title for section, _, _ in parts))}</h1>"]
    if mixed:
        told = f"Different runs are mixed here, as asked. They differ in {'; '.join(mixed)}."
        body.append(f"<p class=warn>{html.escape(told)}</p>")
    body.append(page.facts(known))
    for section, made, drawn in parts:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body += [f"<p class=warn>{html.escape(note)}</p>" for note in section.notes]
        body += [*(table.html() for table in made[:1]), *(picture.html() for picture in drawn)]
        body += [table.html() for table in made[1:]]
        if section.bad:
            rows = "".join(f"<li>{html.escape(text)}</li>" for text in section.bad)
            body.append(f"<h3>Rows that are no examples</h3><ul class=note>{rows}</ul>")
    how = "Scores are x 100. Intervals are 95%: Wilson's for right or wrong, else a bootstrap."
    return page.page("InfiniPot report", style, [*body, f"<footer>{how}</footer>"])


def _markdown(parts: Sequence[Part], known: dict[str, str], mixed: Sequence[str]) -> str:
    lines = ["# Results", ""]
    if mixed:
        lines += [f"**Different runs are mixed here, as asked.** They differ in {'; '.join(mixed)}.", ""]
    lines += [f"- {name}: {text}" for name, text in known.items()]
    for section, made, _ in parts:
        lines += ["", f"## {section.title}", ""]
        lines += [f"- {note}" for note in [*section.notes, *section.bad]]
        lines += ["", *(table.markdown() for table in made)]
    lines.append("Scores are x 100; in brackets, 95% intervals.")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
