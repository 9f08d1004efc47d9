"""From runs to a folder: recordings, numbers, pictures, and a page that shades the text by what is held.

Everything is inside the page's file. The slider has at most `MOMENTS` positions, so that the size of the page
does not follow the number of cycles.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from infinipot.common import html_page
from infinipot.common.atomic_files import failing_to
from infinipot.common.plots import Picture
from infinipot.inspect import measures
from infinipot.inspect.findings import BINS, Findings, findings
from infinipot.inspect.plots import pictures
from infinipot.inspect.run import Run, Whole

MOMENTS = 64  # positions of the slider


def write_report(
    runs: Sequence[Run], whole: Whole | None, out: Path, facts: Mapping[str, str]
) -> tuple[list[Path], dict[str, Any]]:
    """Write everything about the runs; return the files, the page first, and what report.json says."""
    found = findings(runs, whole)
    drawn = list(pictures(found))
    told = {"about": dict(facts), **found.json()}
    files = {f"{picture.name}.png": picture.light for picture in drawn}
    with failing_to(f"write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").write_text(page(found, drawn, facts), encoding="utf-8")
        for run, stated in zip(runs, told["recipes"], strict=True):
            stated["recording"] = name = f"{html_page.slug(run.name)}.npz"
            stated["recording_file_bytes"] = run.record.save(out / name)
        files["report.json"] = (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode()
        for name, data in files.items():
            (out / name).write_bytes(data)
    names = ("index.html", *(stated["recording"] for stated in told["recipes"]), *files)
    return [out / name for name in names], told


def page(found: Findings, pictures: Sequence[Picture], facts: Mapping[str, str]) -> str:
    """Return the page."""
    here = resources.files("infinipot.inspect")
    style, body, script = ((here / f"page.{kind}").read_text("utf-8") for kind in ("css", "html", "js"))
    data = json.dumps(payload(found.runs), ensure_ascii=False).replace("<", "\\u003c")
    parts = [
        "<h1>What the pot kept</h1>",
        html_page.facts(facts),
        _answers(found),
        body,
        "<h2>Figures</h2>" if pictures else "",
        *(picture.html() for picture in pictures),
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{script}</script>",
    ]
    return html_page.page("What the pot kept", style, parts)


def payload(runs: Sequence[Run]) -> dict[str, Any]:
    """What the page's script reads."""
    record = runs[0].record
    starts = measures.words(record.pieces)
    texts = measures.texts(record.pieces, starts)
    lengths = np.array([len(text.encode("utf-16-le")) // 2 for text in texts], np.uint32)
    novelty = np.clip(10 * measures.novelties(record.novelty, starts), 0, 255).astype(np.uint8)
    return {
        "text": "".join(texts),
        "tokens": len(record.ids),
        "layers": record.layers,
        "heads": record.dropped.shape[1],
        "lines": record.dropped.shape[0] * record.dropped.shape[1],
        "bins": len(measures.bounds(len(record.ids), BINS)),
        "starts": _packed(starts.astype(np.uint32)),
        "lengths": _packed(lengths),
        "novelty": _packed(novelty),
        "recipes": [_recipe(run, starts) for run in runs],
    }


def _recipe(run: Run, starts: measures.Starts) -> dict[str, Any]:
    record = run.record
    moments = measures.cycles(record, MOMENTS)
    shares, maps, held = [], [], []
    for cycle in moments:
        mask = record.held(cycle)
        shares.append(_eight_bits(measures.shares(mask, starts)))
        maps.append(_eight_bits(measures.retention(mask, BINS, record.seen(cycle))))
        held.append(round(float(mask.sum(-1).mean())))
    return {
        "name": run.name,
        "cycles": moments,
        "total": record.cycles,
        "tokens": [record.seen(cycle) for cycle in moments],
        "held": held,
        "share": _packed(np.stack(shares)),
        "map": _packed(np.stack(maps)),
    }


def _eight_bits(shares: measures.Floats) -> Any:
    """Shares as bytes; what is held at all is never 0."""
    return np.ceil(255 * shares - 1e-9).clip(0, 255).astype(np.uint8)


def _packed(values: Any) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode()


def _answers(found: Findings) -> str:
    heads = ["recipe", "answer", "cycles", "held a head", *(["hit rate"] if found.hits else [])]
    rows = []
    for run in found.runs:
        record = run.record
        cells = [run.name, run.answer, f"{record.cycles:,}", f"{record.held().sum(-1).mean():,.0f}"]
        if found.hits:
            cells.append(f"{100 * found.hits[run.name].mean():.1f}%")
        rows.append(cells)
    return html_page.table(heads, rows, ("", "answer", "n", "n", "n"))
