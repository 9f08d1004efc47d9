"""From runs to a folder: `report.md`, CSV files, PNG pictures, and `index.html` with everything in it."""

import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from infinipot.common import html_page
from infinipot.common.atomic_files import failing_to
from infinipot.common.plots import Picture
from infinipot.errors import InputError
from infinipot.eval.leaderboard import forest, leaderboard
from infinipot.eval.plots import plots
from infinipot.eval.results import Run, Section, load, sections, stated
from infinipot.eval.tables import DIFFERENCES, Table, tables
from infinipot.models.catalog import file_format

Part = tuple[Section, list[Table], list[Picture]]


def report(paths: Sequence[Path], out: Path, mix: bool = False) -> list[Path]:
    """Write the report of some runs; return its files, the page first."""
    runs, mixed = load(paths, mix)
    found = [section for section in sections(runs) if any(one.rows for one in section.series)]
    if not found:
        raise InputError("these runs have no rows yet: nothing to report")
    parts: list[Part] = [(section, tables(section), list(plots(section))) for section in found]
    told = (parts, facts(runs), mixed)
    written = {"index.html": _page(*told).encode(), "report.md": _markdown(*told).encode()}
    pictures: dict[str, bytes] = {}
    for number, (section, made, drawn) in enumerate(parts, start=1):
        stem = f"{section.task}-{number}" if len(parts) > 1 else section.task
        written |= {f"{stem}-{html_page.slug(one.title)[:90]}.csv": one.csv().encode() for one in made}
        pictures |= {f"{stem}-{picture.name}.png": picture.light for picture in drawn}
    with failing_to(f"write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
        for name, data in (written | pictures).items():
            (out / name).write_bytes(data)
    return [out / name for name in (*written, *pictures)]


def facts(runs: Sequence[Run]) -> dict[str, str]:
    """What a reader must know of how the numbers came about."""
    manifests = [run.manifest for run in runs]
    sessions = [session for manifest in manifests for session in manifest["sessions"]]
    models = [manifest["model"] for manifest in manifests]
    starts = [session["started"] for session in sessions]
    examples = (f"{m['task']} {m['examples']['count']} ({stated(m['options'], '; ')})" for m in manifests)
    told: dict[str, Iterable[str]] = {
        "model": (f"{m['name']} ({m['weights']})" for m in models),
        "file": (m.get("file") or f"{file_format(m['name'])}; how it was held is not told" for m in models),
        "held": (m["held"] for m in models if m.get("held")),
        "computed": (f"{m['dtype']} on {m['device']}, {m['format']} prompts" for m in models),
        "hardware": (str(session["hardware"]) for session in sessions),
        "versions": (stated(m["versions"], ", ") for m in manifests),
        "commit": (str(session["commit"] or "not from a checkout") for session in sessions),
        "seed": (str(m["seed"]) for m in manifests),
        "run": [f"{min(starts)} to {max(starts)} (starts)"],
        "examples": (text.removesuffix(" ()") for text in examples),
    }
    lines = {name: "; ".join(dict.fromkeys(texts)) for name, texts in told.items()}
    return {name: line for name, line in lines.items() if line}


def _page(parts: Sequence[Part], known: dict[str, str], mixed: Sequence[str]) -> str:
    style = (files("infinipot.eval") / "report.css").read_text("utf-8")
    body = [f"<h1>InfiniPot: {html.escape(', '.join(section.title for section, _, _ in parts))}</h1>"]
    if mixed:
        told = f"Different runs are mixed here, as asked. They differ in {'; '.join(mixed)}."
        body.append(f"<p class=warn>{html.escape(told)}</p>")
    body.append(f"<details><summary>What was run, and on what</summary>\n{html_page.facts(known)}</details>")
    for number, (section, made, drawn) in enumerate(parts, start=1):
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body.append(f"<p class=warn>{'<br>'.join(map(html.escape, section.notes))}</p>")
        body.append(leaderboard(section, f"question-{number}"))
        body += [one.html() for one in drawn]
        body += [forest(one) if one.columns == DIFFERENCES else one.html() for one in made]
        if section.bad:
            rows = "".join(f"<li>{html.escape(text)}</li>" for text in section.bad)
            body.append(f"<h3>Rows that are no examples</h3><ul class=note>{rows}</ul>")
    how = "Scores are x 100. Intervals are 95%: for right or wrong Wilson's, of differences Newcombe's; else"
    how += " a bootstrap."
    return html_page.page("InfiniPot report", style, [*body, f"<footer>{how}</footer>"])


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
