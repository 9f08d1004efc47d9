"""One HTML page with everything in it: no scripts, no addresses, light or dark as the reader likes."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

from infinipot.eval.manifest import Manifest
from infinipot.eval.pictures import Picture
from infinipot.eval.results import Run, Section
from infinipot.eval.tables import Table

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --dim: #656d76; --page: #ffffff; --line: #d8dee4;
  --band: #f6f8fa; --warn: #fff8c5; }
@media (prefers-color-scheme: dark) { :root { --ink: #d7dce2; --dim: #8b949e; --page: #0d1117;
  --line: #30363d; --band: #161b22; --warn: #3b2f0b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 70rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
th.n, td.n { text-align: right; }
summary h3 { display: inline-block; margin: 0; } details { margin: 1.6rem 0; }
tbody tr:nth-child(even) { background: var(--band); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .87rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.note, footer, figcaption { color: var(--dim); font-size: .85rem; }
.warn { background: var(--warn); padding: .6rem .9rem; border-radius: 6px; }
figure { margin: 1.6rem 0; } img { max-width: 100%; height: auto; }
"""


def page(
    runs: Sequence[Run],
    parts: Sequence[tuple[Section, Sequence[Table], Sequence[Picture]]],
    mixed: Sequence[str],
) -> str:
    """Return the page."""
    body = [f"<h1>InfiniPot: {_e(', '.join(section.title for section, _, _ in parts))}</h1>"]
    if mixed:
        told = f"Different runs are mixed here, as asked. They differ in {'; '.join(mixed)}."
        body.append(f"<p class=warn>{_e(told)}</p>")
    body += [_facts(runs), *(_section(*part) for part in parts)]
    body.append(
        "<footer>Scores are x 100. Intervals are 95%: Wilson's for right or wrong, else a bootstrap.</footer>"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>InfiniPot report</title>\n<style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def facts(runs: Sequence[Run]) -> dict[str, str]:
    """What a reader must know of how the numbers came about."""
    manifests = [run.manifest for run in runs]
    sessions = [session for manifest in manifests for session in manifest["sessions"]]
    return {
        "model": _each(f"{m['model']['name']} ({m['model']['weights']})" for m in manifests),
        "computed": _each(
            f"{m['model']['dtype']} on {m['model']['device']}, {m['model']['format']} prompts"
            for m in manifests
        ),
        "hardware": _each(str(session["hardware"]) for session in sessions),
        "versions": _each(", ".join(f"{n} {v}" for n, v in m["versions"].items()) for m in manifests),
        "commit": _each(str(session["commit"] or "not from a checkout") for session in sessions),
        "seed": _each(str(m["seed"]) for m in manifests),
        "run": f"{min(s['started'] for s in sessions)} to {max(s['started'] for s in sessions)} (starts)",
        "examples": _each(f"{m['task']} {m['examples']['count']}{_options(m)}" for m in manifests),
    }


def _options(manifest: Manifest) -> str:
    told = {name: value for name, value in manifest["options"].items() if value not in (None, [])}
    words = (f"{name} {','.join(map(str, v)) if isinstance(v, list) else v}" for name, v in told.items())
    return f" ({'; '.join(words)})" if told else ""


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _facts(runs: Sequence[Run]) -> str:
    rows = "".join(f"<dt>{_e(name)}</dt><dd>{_e(text)}</dd>\n" for name, text in facts(runs).items())
    return f"<dl>{rows}</dl>"


def _section(section: Section, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    parts = [f"<h2>{_e(section.title)}</h2>"]
    parts += [f"<p class=warn>{_e(note)}</p>" for note in section.notes]
    parts += [table.html() for table in tables[:1]]
    parts += [_figure(picture) for picture in pictures]
    parts += [table.html() for table in tables[1:]]
    if section.bad:
        rows = "".join(f"<li>{_e(text)}</li>" for text in section.bad)
        parts.append(f"<h3>Rows that are no examples</h3><ul class=note>{rows}</ul>")
    return "\n".join(parts)


def _figure(picture: Picture) -> str:
    light, dark = (base64.b64encode(data).decode() for data in (picture.light, picture.dark))
    kind = "data:image/png;base64,"
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{kind}{dark}">'
        f'<img alt="{_e(picture.caption)}" src="{kind}{light}"></picture>'
        f"<figcaption>{_e(picture.caption)}</figcaption></figure>"
    )


def _e(text: str) -> str:
    return html.escape(text)
