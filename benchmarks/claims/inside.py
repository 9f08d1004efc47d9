"""What docs/how-it-works.md says of the paper's Figures 2 and 3 and its Table 8."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

from claims.checks import Says
from claims.raw import RESULTS, Three, document, three
from infinipot.eval.estimates import bootstrapped, compared
from paper.averages import CAP, WITH_NOVELTY, Averages, Mean, averages

TASKS = ("hotpotqa", "narrativeqa")
ROWS = {
    "the most recent (`swa`)": "swa",
    "without catalyst and novelty (`ccd`)": "ccd",
    "CaP-G (`cap-only`, general)": "cap-only general",
    "CaP-Q (`cap-only`, question)": "cap-only question",
    "CaP-Q + NuC (`infinipot`, question)": "infinipot question",
}


def claimed(says: Says) -> None:
    page = partial(says, "docs/how-it-works.md")
    found = {task: _averages(task) for task in TASKS}
    cell = "{:.1f}% ({:.1f} to {:.1f})"
    bold = "**{:.1f}%** ({:.1f} to {:.1f})"
    for label, name in ROWS.items():
        numbers = [
            100 * x for task in TASKS for m in [found[task].hits[name]] for x in (m.mean, m.low, m.high)
        ]
        one = bold if name == "cap-only question" else cell
        page(f"| {label} | {one} | {one} |", *numbers)
    both = "{:.1f} points ({:.1f} to {:.1f}) and {:.1f} ({:.1f} to {:.1f})"
    page(f"CaP-G less CCD {both},", *_gains("cap-only general", "ccd"))
    words = "CaP-Q less CaP-G {:.1f} ({:.1f} to {:.1f}) and {:.1f} ({:.1f} to {:.1f})."
    page(words, *_gains("cap-only question", "cap-only general"))
    words = "{:.1f} points above it ({:.1f} to {:.1f}) and {:.1f} ({:.1f} to {:.1f})."
    page(words, *_gains("ccd", "swa"))
    page(f"the hit rate drops by {both}.", *_gains("cap-only question", "infinipot question"))
    book = found["narrativeqa"]
    assert book.overlap_in_the_end
    ends = [*_three(book.overlap.means[0]), *_three(book.overlap_in_the_end)]
    words = "({:.1f}%, {:.1f} to {:.1f}, at first and {:.1f}%, {:.1f} to {:.1f}, in the end on NarrativeQA)"
    page(words, *ends)
    sums = {name: dict(zip(one.cycles, one.means, strict=True)) for name, one in book.novelty.items()}
    told = [sums[name][cycle] for name in (WITH_NOVELTY, CAP) for cycle in (1, 15)]
    words = "{:,.0f} nats after one cycle and {:,.0f} after fifteen with it, {:,.0f} and {:,.0f} without"
    few = [one.rows for one in told] == [8, 4, 8, 4]
    page(f"{words} (means of eight texts,", *(one.mean for one in told), holds=few)
    share = {name: dict(zip(one.cycles, one.means, strict=True)) for name, one in book.share.items()}
    ours, alone = (
        [number for cycle in (1, 15) for number in _three(share[name][cycle])]
        for name in ("infinipot question", "cap-only question")
    )
    words = (
        "there could be it is {:.0f}% ({:.1f} to {:.1f}) after one cycle, in eight texts, {:.0f}% ({:.1f} to"
        " {:.1f})"
    )
    words += " after fifteen, in the four that are so long (not the same texts, so no fall is claimed); CaP"
    words += " alone {:.0f}% ({:.1f} to {:.1f}) and {:.0f}%"
    reached = [share["infinipot question"][cycle].rows for cycle in (1, 15)]
    page(f"{words} ({{:.1f}} to {{:.1f}}).", *ours, *alone, holds=reached == [8, 4])
    table = document("inside/table8.json")
    counts = table["counts"]
    ten = (counts["ours only"], counts["theirs only"]) == (10, 1)
    page(
        "was found by searching {} rows: ten that only InfiniPot answered, one", counts["searched"], holds=ten
    )
    both = counts["both right"]
    pairs = [(1.0, 0.0)] * counts["ours only"] + [(0.0, 1.0)] * counts["theirs only"] + [(1.0, 1.0)] * both
    pairs += [(0.0, 0.0)] * (counts["searched"] - len(pairs))
    more = three(compared(pairs))
    page("({:.1f} points more right, {:.1f} to {:.1f}, of rows of both halves;", *more, holds=more[1] > 0)
    known = {row["id"]: row for row in table["rows"]}
    held = {
        known[name]["task"]: known[name] for name in reversed(table["best"])
    }  # of each task, the best row
    hotpot, wiki = held["hotpotqa"], held["2wikimqa"]
    page("In its HotpotQA row {:.0f}% of InfiniPot's heads", 100 * hotpot["ours"]["share"])
    page("and {:.0f}% of SirLLM's", 100 * hotpot["theirs"]["share"])
    none = wiki["theirs"]["share"] == 0
    page("in its 2WikiMQA row {:.0f}% and none.", 100 * wiki["ours"]["share"], holds=none)


def _three(one: Mean) -> Three:
    return 100 * one.mean, 100 * one.low, 100 * one.high


@cache
def _rows(task: str) -> list[Any]:
    with tarfile.open(RESULTS / "inside" / "rows.tar.xz") as archive:
        files = [one for one in archive.getmembers() if f"figures-{task}-" in one.name]
        return [json.load(archive.extractfile(one)) for one in files]  # type: ignore[arg-type]  # files, not folders


@cache
def _averages(task: str) -> Averages:
    return averages(_rows(task), _interval)


def _gains(name: str, other: str) -> list[float]:
    """By how much one recipe's hit rate is above another's, row by row, for both tasks."""
    found: list[float] = []
    for task in TASKS:
        rates = [{r["name"]: fmean(r["hit_rate"]["layers"]) for r in row["recipes"]} for row in _rows(task)]
        found += three(bootstrapped([row[name] - row[other] for row in rates]))
    return found


def _interval(values: Sequence[float]) -> tuple[float, float]:
    found = bootstrapped(values)
    assert found
    return found.low, found.high
