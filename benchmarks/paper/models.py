"""The same recipes on other models: LongBench and pass keys, the question known and unknown apart.

Works on the folders that `grids.py --plan models` made, one a model; yields lines of Markdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from infinipot.eval.estimates import FEW, Estimate, estimate
from infinipot.eval.folder import MANIFEST, read_manifest
from infinipot.eval.results import KNOWN, UNKNOWN, UNUSED, Run, Section, Series, load, part, sections
from infinipot.eval.tables import joined
from paper.beside import STAR, by_place, difference, worded

GRIDS = {"longbench": "LongBench", "passkey-short": "keys in noise", "essays-short": "keys in essays"}
OURS, SLOTS = "infinipot", " units=slots"
LABELS = {
    "infinipot": "InfiniPot",
    f"infinipot{SLOTS}": "InfiniPot, slot by slot",
    "infinipot-paper": "InfiniPot as printed",
    "full": "whole cache",
    "truncate": "truncated to the pot",
    "snapkv": "SnapKV (holds the whole prompt first)",
    "streaming-llm": "StreamingLLM",
    "tova": "TOVA",
    "h2o-half": "H2O, half heavy hitters",
}
NOTE = """\
Pots of 4,096, rows of `benchmarks/grids.py`. Means of rows with their intervals; keys found, in
brackets at each length from 4K to 32K, half `report` too. *Less InfiniPot* is by rows; bold: more than
chance. StreamingLLM and H2O drop 256 entries at a time, TOVA half the pot. {ends}
What looks at no question while it reads stands in both tables. There is no mean over tasks here. `smollm2`
was trained on texts of 8K tokens, `gemma-3-270m` of 32K: whole caches and SnapKV go beyond that. Where rows
are given, time ended before the others; a cell with under ten is left out.
"""
ENDS = {
    True: "A text's end is treated alike (`--tail fill`) by all but InfiniPot as printed.",
    False: "A text's end is treated alike (`--tail fill`) by all but those two and InfiniPot as printed.",
}


def other_models(folders: Sequence[Path]) -> Iterator[str]:
    """Yield two tables a model."""
    for place, folder in enumerate(folders):
        runs = {name: load([folder / name])[0][0] for name in GRIDS if (folder / name).exists()}
        found = {name: sections([run])[0] for name, run in runs.items()}
        if not place:
            yield NOTE.format(ends=ENDS[_all_filled(folders)])
        yield _described(next(iter(runs.values())), found)
        for question in (KNOWN, UNKNOWN):
            yield from _table(question, found)


def _all_filled(folders: Sequence[Path]) -> bool:
    """Say whether recipes that drop step by step treated a text's end as the others did."""
    manifests = (read_manifest(path.parent) for folder in folders for path in folder.glob(f"*/{MANIFEST}"))
    return all(
        cell["tail"] == "fill" for one in manifests for cell in one["cells"].values() if "step" in cell
    )


def _described(run: Run, found: dict[str, Section]) -> str:
    model, rows = run.manifest["model"], _of(joined(found["longbench"]), KNOWN)[OURS].rows
    fit, tasks = sum(row.get("cycles") == 0 for row in rows), Counter(row["facts"]["task"] for row in rows)
    counts = ", ".join(f"{name} {count}{STAR * (count < FEW)}" for name, count in tasks.items())
    marks = f"; {STAR}: under ten" * (min(tasks.values()) < FEW)
    return (
        f"`{model['name']}`, a file of {model['file']}, held and computed in {model['dtype']}. {len(rows)}"
        f" rows of LongBench's half `{part(run)}` ({counts}{marks}); {fit} fit the pot.\n"
    )


def _of(section: Section, question: str) -> dict[str, Series]:
    """Return the series that may stand beside ours with the question known, or unknown, by their recipes."""
    some = (one for one in section.series if one.question in (question, UNUSED))
    return {one.cell["name"] + SLOTS * (SLOTS in one.name): one for one in some}


def _table(question: str, found: dict[str, Section]) -> Iterator[str]:
    grids = {name: _of(section, question) for name, section in found.items()}
    yield f"| question {question} | {' | '.join(f'{GRIDS[name]} | less InfiniPot' for name in grids)} |"
    yield "|---" * (1 + 2 * len(grids)) + "|"
    for recipe, label in LABELS.items():
        if any(recipe in series for series in grids.values()):
            cells = (text for name, series in grids.items() for text in _cells(name, recipe, series))
            yield f"| {label} | {' | '.join(cells)} |"
    yield ""


def _cells(grid: str, recipe: str, series: dict[str, Series]) -> tuple[str, str]:
    """Return a recipe's level in a grid, and its difference to ours."""
    if recipe not in series or OURS not in series or len(series[recipe].rows) < FEW:
        return "–", "–"
    one, ours = series[recipe], series[OURS]
    level = _mean(one) if grid == "longbench" else _keys(one)
    if grid == "longbench" and len(one.rows) < len(ours.rows):
        level += f", {len(one.rows)} rows"
    less = marked(difference(one, ours)) if grid == "longbench" else marked_keys(one, ours)
    return level, "" if one is ours else less


def _mean(one: Series) -> str:
    found = estimate(one.scores())
    return f"{100 * found.mean:.1f} ({found.span})" if found else "–"


def _keys(one: Series) -> str:
    lengths = sorted({row["facts"]["length"] for row in one.rows})
    parts = [one.scores(length=length) for length in lengths]
    right, count = sum(map(sum, parts)), sum(map(len, parts))
    return f"{right:.0f} of {count} ({', '.join(f'{sum(scores):.0f}/{len(scores)}' for scores in parts)})"


def marked(less: Estimate | None, firm: bool = True) -> str:
    """Write a difference, bold where it is more than chance, and `firm` by another count too."""
    return f"**{worded(less)}**" if less and less.excludes_zero and firm else worded(less)


def marked_keys(one: Series, other: Series) -> str:
    """Write a difference of keys, bold where it is more than chance by keys and by their places."""
    places = by_place(one, other)
    return marked(difference(one, other), places is not None and places.excludes_zero)
