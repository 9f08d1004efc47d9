"""Tables of the paper beside ours: averages, differences and whether they agree, tasks, groups, pass keys.

Works on the rows of one grid and the paper's numbers (`tables.toml`); yields lines of Markdown.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from infinipot.eval.estimates import FEW, Estimate, bootstrapped, paired
from infinipot.eval.results import Section, Series
from infinipot.eval.tables import joined

PAPER: dict[str, Any] = tomllib.loads((Path(__file__).parent / "tables.toml").read_text("utf-8"))
FILLED = " tail=fill"  # of what drops step by step, whose own is another
STAR = r"\*"  # of a task with few rows; two bare ones would be Markdown's slanted text
TAILS = ("", " tail=distil")  # the first with which all recipes of a table were run


class Ours:
    """The rows of one grid, by the paper's names of recipes."""

    def __init__(self, section: Section, all_of: Mapping[str, str]) -> None:
        self.cells = {one.name: one for one in joined(section).series}
        chosen = [cell for cell in all_of.values() if "{tail}" in cell]
        whole = (tail for tail in TAILS if all(cell.format(tail=tail) in self.cells for cell in chosen))
        self.tail = next(whole, TAILS[-1])  # the treatment of a text's end with which all these were run

    def series(self, cells: Mapping[str, str]) -> dict[str, Series]:
        """Return the series of a table's recipes; one that was not run is not there."""
        steps = "" if self.tail else FILLED
        names = {label: cell.format(tail=self.tail, steps=steps) for label, cell in cells.items()}
        return {label: self.cells[name] for label, name in names.items() if name in self.cells}


def common(ours: Mapping[str, Series]) -> dict[str, Series]:
    """Return the series with those rows alone that all of them have: their means are like for like."""
    names = set.intersection(*(set(one.by_example()) for one in ours.values())) if ours else set()
    return {
        label: replace(one, rows=[row for row in one.rows if row["example"] in names])
        for label, one in ours.items()
    }


def verdict(theirs: float, ours: Estimate | None, large: Sequence[Estimate | None]) -> str:
    """Say whether a difference of ours has the sign of the paper's.

    `large` is the difference without small tasks' rows, and without their most telling row besides.
    """
    if ours is None:
        return "not run"
    if not ours.excludes_zero:
        return "not told apart"
    alike = [one is not None and one.excludes_zero and (one.mean > 0) == (ours.mean > 0) for one in large]
    few = "" if all(alike) else ", not without one row" if alike[0] else ", by all rows only"
    return ("agrees" if (ours.mean > 0) == (theirs > 0) else "contradicts") + few


def of_many(one: Series, every: Series) -> Series:
    """Return a series without the rows of tasks that have few in the one that has all."""
    counts = Counter(_task(row) for row in every.rows)
    return replace(one, rows=[row for row in one.rows if counts[_task(row)] >= FEW])


def _task(row: Mapping[str, Any]) -> str:
    return str(row["facts"]["task"]).removesuffix("_e")


def difference(one: Series, other: Series) -> Estimate | None:
    return paired(one.by_example(), other.by_example())


def with_and_without(one: Series, other: Series) -> tuple[Estimate | None, Estimate | None]:
    """Return a difference, and what it is without the row that makes most of it."""
    scores, others = one.by_example(), other.by_example()
    found = paired(scores, others)
    if found is None:
        return None, None
    most = telling(scores, others)
    return found, paired({row: score for row, score in scores.items() if row != most}, others)


def telling(scores: Mapping[str, float], others: Mapping[str, float]) -> str:
    """Return the row that makes most of a difference."""
    less = {row: score - others[row] for row, score in scores.items() if row in others}
    sign = fmean(less.values())
    return max(less, key=lambda row: (less[row] * sign, row))


def by_place(one: Series, other: Series) -> Estimate | None:
    """Return a difference of keys, each length and depth counted once: trials at a place fail together."""
    base, found = other.by_example(), defaultdict[tuple[Any, Any], list[float]](list)
    for row in one.rows:
        if row["score"] is not None and row["example"] in base:
            place = row["facts"]["length"], row["facts"]["depth"]
            found[place].append(row["score"] - base[row["example"]])
    return bootstrapped([fmean(less) for less in found.values()])


def worded(found: Estimate | None) -> str:
    return f"{100 * found.mean:+.1f} ({found.span})" if found else "–"


def group_means(one: Series) -> list[float | None]:
    """Return the means of the paper's groups of tasks: means over tasks, as there, with few rows too."""
    found = [[one.scores(task=task) for task in names] for names in PAPER["groups"].values()]
    means = [[fmean(scores) for scores in group if scores] for group in found]
    return [100 * fmean(group) if group else None for group in means]


def against(
    title: str,
    base: str,
    theirs: Mapping[str, Sequence[float]],
    ours: Mapping[str, Series],
    note: str = "",
    printed: Series | None = None,
) -> Iterator[str]:
    """Yield a table of averages and of differences to one of its rows, and to that method as printed."""
    twice = " less ours as printed | |" if printed else ""
    yield f"| {title} | paper, average | ours, mean of rows | paper, less {base} | ours, by rows | |{twice}"
    yield "|---|---|---|---|---|---|" + "---|---|" * bool(printed)
    for label, numbers in theirs.items():
        one = ours.get(label)
        gap = None if label == base else numbers[-1] - theirs[base][-1]
        told = f"{label} | {numbers[-1]:.2f} | {_level(one, ours, base)} | "
        told += "" if gap is None else f"{gap:+.2f}"
        for other in (ours.get(base), *([printed] if printed else [])):
            told += f" | {_compared(gap, one, other)}"
        yield f"| {told} |"
    yield f"\n{note}\n" if note else ""


def _level(one: Series | None, ours: Mapping[str, Series], base: str) -> str:
    """Our mean of a row, and of how many examples where the table's others have more."""
    if one is None:
        return "–"
    mean = f"{100 * fmean(one.scores()):.1f}"
    if len(one.rows) < max(len(other.rows) for other in ours.values()):
        mean += f" ({len(one.rows)} rows{_there(one, ours.get(base), base)})"
    return mean


def _compared(gap: float | None, one: Series | None, other: Series | None) -> str:
    """Our difference to another row, and whether it has the sign of the paper's; two cells."""
    if one is other:
        return " | "
    less = difference(one, other) if one and other else None
    large = with_and_without(of_many(one, other), other) if one and other else ()
    return f"{worded(less)} | {'' if gap is None else verdict(gap, less, large)}"


def _there(one: Series, base: Series | None, name: str) -> str:
    """The mean of the row that a table compares with, on the rows of one that has fewer."""
    scores = one.by_example()
    both = [score for example, score in base.by_example().items() if example in scores] if base else []
    return f"; {name} there {100 * fmean(both):.1f}" if both and base is not one else ""


def by_task(theirs: Mapping[str, Sequence[float]], ours: Mapping[str, Series]) -> Iterator[str]:
    """Yield Table 1 cell by cell: the paper's number, and ours with its rows."""
    yield f"| | {' | '.join(theirs)} |"
    yield "|---" * (len(theirs) + 1) + "|"
    for place, task in enumerate(PAPER["tasks"]):
        cells, count = [], max((len(one.scores(task=task)) for one in ours.values()), default=0)
        for label, numbers in theirs.items():
            scores = ours[label].scores(task=task) if label in ours else []
            mean = f"{100 * fmean(scores):.1f}" if scores and len(scores) == count else "–"
            cells.append(f"{numbers[place]:.1f} / {mean}")
        yield f"| {task} ({count}){STAR * (count < FEW)} | {' | '.join(cells)} |"
    yield f"\nEach cell: paper / ours. In brackets our rows; {STAR}: under ten, not to be leaned on. A recipe"
    yield "that has fewer of a task's rows has no mean there.\n"


def by_group(theirs: Mapping[str, Sequence[float]], ours: Mapping[str, Series]) -> Iterator[str]:
    """Yield a table of the paper's groups of tasks: the paper's number, and ours on the rows all have."""
    ours = common(ours)
    yield f"| | {' | '.join(PAPER['groups'])} |"
    yield "|---" * (len(PAPER["groups"]) + 1) + "|"
    for label, numbers in theirs.items():
        means = group_means(ours[label]) if label in ours else [None] * len(PAPER["groups"])
        both = zip(numbers, means, strict=False)
        told = (f"{n:.1f} / {'–' if m is None else f'{m:.1f}'}" for n, m in both)
        yield f"| {label} | {' | '.join(told)} |"
    count = len(next(iter(ours.values())).scores()) if ours else 0
    yield f"\nEach cell: paper / ours, means over tasks of the {count} rows that all of these have run on,"
    yield "tasks of under ten rows included, as the paper groups them: no interval, so not to be leaned on.\n"


def keys(ours: Mapping[str, Series]) -> Iterator[str]:
    """Yield Table 4: keys found at three depths, the paper's and ours."""
    lengths = PAPER["table4"]["lengths"]
    yield f"| | {' | '.join(lengths)} |"
    yield "|---" * (len(lengths) + 1) + "|"
    for label, one in ours.items():
        cells = []
        for length, theirs in zip(lengths, PAPER["table4"][label], strict=True):
            tokens = 1024 * (1024 if length == "1M" else int(length[:-1]))
            found = [one.scores(length=tokens, depth=depth) for depth in (0.1, 0.5, 0.9)]
            mine = "/".join(f"{100 * fmean(scores):.0f}" for scores in found if scores) or "–"
            cells.append(f"{'/'.join(map(str, theirs))} · {mine}")
        yield f"| {label} | {' | '.join(cells)} |"
    yield "\nEach cell: paper · ours, at 10/50/90% of the text; ours is one key each.\n"


def budgets(ours: Ours) -> Iterator[str]:
    """Yield Figure 6: InfiniPot less truncation at each capacity."""
    yield "| capacity | rows | InfiniPot | truncated | InfiniPot less truncated, by rows | the paper: above |"
    yield "|---|---|---|---|---|---|"
    sizes = (1024, 2048, 4096, 8192)
    cells = {f"ours {size}": f"infinipot {size}{{tail}} by-task" for size in sizes}
    cells |= {f"theirs {size}": f"truncate {size}" for size in sizes}
    found = common(ours.series(cells))
    for size in sizes:
        both = [found[f"{side} {size}"] for side in ("ours", "theirs") if f"{side} {size}" in found]
        if len(both) < 2:
            continue
        means = (f"{100 * fmean(one.scores()):.1f}" for one in both)
        told = f"{size:,} | {len(both[0].scores())} | {' | '.join(means)}"
        less, large = difference(*both), with_and_without(of_many(both[0], both[0]), both[1])
        yield f"| {told} | {worded(less)} | {verdict(1, less, large)} |"
    yield "\nThe rows that all of these answered: a question too long for a small pot has no answer.\n"


def speed(bench: Mapping[str, Any]) -> Iterator[str]:
    """Yield Figure 7: first token, memory and decoding against the length of the text."""
    yield "| tokens | first token | beyond the weights | a decoded token | the same, whole cache |"
    yield "|---|---|---|---|---|"
    rows = {(row["system"], row["length"]): row for row in bench["rows"]}
    for (system, length), row in rows.items():
        if system != "infinipot":
            continue
        other = rows.get(("transformers", length), {"failed": "not run"})
        peer = _cost(other) if not other["failed"] else "does not fit"
        first, memory, decode = _cost(row).split(", ")
        yield f"| {length // 1024:,}K | {first} | {memory} | {decode} | {peer} |"
    yield ""


def _cost(row: Mapping[str, Any]) -> str:
    return f"{row['first_token_s']:.2f} s, {row['reserved_bytes'] / 1e9:.2f} GB, {row['decode_ms']:.1f} ms"
