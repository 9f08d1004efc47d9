"""Our own rows as tables of docs/results.md: pass keys and LongBench.

Works on the folders that `grids.py` makes; yields lines of Markdown. What was not run is not there. Bold: the
interval of a difference, of ten rows or more, excludes 0. A cell that ended early is left out, and named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from statistics import fmean

from infinipot.eval.estimates import FEW, Estimate, estimate, over_tasks, paired
from infinipot.eval.folder import read_rows
from infinipot.eval.results import Series, load, part, sections
from infinipot.eval.tables import joined, values
from infinipot.eval.tasks.longbench import descriptions
from paper.beside import STAR, TAILS, difference
from paper.models import marked, marked_keys

Row = tuple[str, str, str]  # a label, a cell, and the cell that it is compared with; {tail} as in `TAILS`
KNOWN, UNKNOWN = "infinipot 4096{tail} question", "infinipot 4096{tail} general"
OURS = "infinipot 4096{tail} by-task"
STEP = " step=256 tail=fill"
KEYS: tuple[Row, ...] = (
    ("InfiniPot, question known", KNOWN, KNOWN),
    ("as printed", "infinipot-paper 4096 question", KNOWN),
    ("scores not pooled", "infinipot 4096{tail} pool=1 question", KNOWN),
    ("without novelty (`cap-only`)", "cap-only 4096{tail} question", KNOWN),
    ("without CR-RoPE", "no-cr-rope 4096{tail} question", KNOWN),
    ("InfiniPot, question unknown", UNKNOWN, UNKNOWN),
    ("as printed, question unknown", "infinipot-paper 4096 general", UNKNOWN),
    ("slot by slot (`units=slots`), question unknown", "infinipot 4096{tail} units=slots general", UNKNOWN),
    ("without novelty, question unknown", "cap-only 4096{tail} general", UNKNOWN),
    ("without catalyst and novelty (`ccd`), which ask no question", "ccd 4096{tail}", UNKNOWN),
    ("*for comparison: whole cache*", "full", KNOWN),
)
HAYS = {
    "passkey-more": "noise, 4K to 64K",
    "passkey": "noise, 4K to 1M",
    "essays-more": "essays, 4K to 64K",
    "essays": "essays, 4K to 1M",
}
LOOKING: tuple[Row, ...] = (  # at the question while they read, or before they drop anything
    ("InfiniPot", OURS, OURS),
    ("InfiniPot as printed", "infinipot-paper 4096 by-task", OURS),
    ("SnapKV (holds the whole prompt first)", "snapkv 4096", OURS),
)
BLIND: tuple[tuple[str, str], ...] = (  # the same whatever the question
    ("whole cache", "full"),
    ("Self-Extend (the whole cache, positions in groups)", "self-extend"),
    ("truncated to the pot", "truncate 4096"),
    ("TOVA, half the pot a step", "tova 4096{tail}"),
    ("SirLLM, half the pot a step", "sirllm 4096{tail}"),
    ("StreamingLLM, 256 tokens a step", f"streaming-llm 4096{STEP}"),
    ("StreamingLLM, token by token", "streaming-llm 4096 tail=fill"),
    ("TOVA, token by token", "tova-tokenwise 4096 tail=fill"),
    ("H2O, half heavy hitters, 256 tokens a step", f"h2o-half 4096{STEP}"),
    ("H2O, four heavy hitters, 256 tokens a step", f"h2o 4096{STEP}"),
    ("sliding window, 256 tokens a step", f"swa 4096{STEP}"),
    ("CCD alone (no catalyst, no novelty)", "ccd 4096{tail}"),
    ("NuC alone (no catalyst)", "nuc-only 4096{tail}"),
)
GENERAL, SLOTS = "infinipot 4096{tail} general", "infinipot 4096{tail} units=slots"
CHANGED: tuple[Row, ...] = (
    ("CaP alone (no novelty)", "cap-only 4096{tail} by-task", OURS),
    ("novelty 0.25", "infinipot 4096{tail} novelty=0.25 by-task", OURS),
    ("novelty 0.75", "infinipot 4096{tail} novelty=0.75 by-task", OURS),
    ("without CR-RoPE", "no-cr-rope 4096{tail} by-task", OURS),
    ("scores not pooled", "infinipot 4096{tail} pool=1 by-task", OURS),
    ("catalyst: the general prompt for all", f"{SLOTS} general", OURS),
    *((f"catalyst: {name}", f"{SLOTS} {name}", OURS) for name in ("general-1", "general-2")),
    *((f"catalyst: {name}", f"{SLOTS} {name}", OURS) for name in ("unrelated", "padding")),
    ("a pot of 1,024", "infinipot 1024{tail} by-task", OURS),
    ("a pot of 2,048", "infinipot 2048{tail} by-task", OURS),
    ("a pot of 8,192", "infinipot 8192{tail} by-task", OURS),
)


class Cells:
    """The rows of one grid, cell by cell."""

    def __init__(self, path: Path) -> None:
        (self.run,) = load([path])[0]
        (section,) = sections([self.run])
        self.section = joined(section)
        every = {one.name: one for one in self.section.series if one.rows}
        self.series = {name: one for name, one in every.items() if enough(one, self.section.series)}
        self.left_out = sorted(set(every) - set(self.series))

    def pair(self, cell: str, base: str) -> tuple[str, Series, Series] | None:
        """Return a cell and its base with the first tail that both were run with."""
        for tail in TAILS:
            one, other = (self.series.get(name.format(tail=tail)) for name in (cell, base))
            if one and other:
                return tail, one, other
        return None


def enough(one: Series, every: Sequence[Series]) -> bool:
    """Say whether a cell is to be told of: it has all rows, or ten and those of a cell that computed a third.

    What two cells do alike is copied first, so one that was cut off has little else, which tells nothing.
    """
    names = set(one.by_example())
    alike = (other.rows for other in every if set(other.by_example()) == names)
    own = max(sum("same_as" not in row for row in rows) for rows in alike)
    return len(one.rows) == max(len(other.rows) for other in every) or 3 * own >= len(one.rows) >= FEW


def keys(grids: Path) -> Iterator[str]:
    """Yield the table of pass keys: how many were found, and by how much that is more than InfiniPot's."""
    hays = {name: Cells(grids / name) for name in HAYS if (grids / name).exists()}
    yield f"| keys found, and less InfiniPot by rows | {' | '.join(HAYS[name] for name in hays)} |"
    yield "|---" * (1 + len(hays)) + "|"
    for label, cell, base in KEYS:
        told = [_keys(one, cell, base) for one in hays.values()]
        if any(told):
            yield f"| {label} | {' | '.join(told)} |"
    yield ""


def _keys(grid: Cells, cell: str, base: str) -> str:
    found = grid.pair(cell, base)
    if not found:
        return ""
    tail, one, other = found
    scores = one.scores()
    less = "" if one is other else f", {marked_keys(one, other)}"
    return f"{sum(scores):.0f} of {len(scores)}{less}{' †' * bool(tail)}"


def longbench(path: Path, chosen_on: Path) -> Iterator[str]:
    """Yield LongBench's tables, the question known and unknown apart, and what they tell.

    Defaults were chosen on the rows of another run, `chosen_on`: differences are told without those too.
    """
    grid = Cells(path)
    seen = {row["example"] for row in read_rows(chosen_on)} if chosen_on.exists() else set()
    yield _rows(grid, seen)
    known = (*LOOKING, *((label, cell, OURS) for label, cell in BLIND))
    unknown = (
        ("InfiniPot", GENERAL, GENERAL),
        ("InfiniPot, slot by slot (`units=slots`)", f"{SLOTS} general", GENERAL),
        ("InfiniPot as printed", "infinipot-paper 4096 general", GENERAL),
        *((label, cell, GENERAL) for label, cell in BLIND),
    )
    columns = {"on new rows alone": seen, "without tasks of under ten rows": _small(grid)}
    asking = {**columns, "on rows of QA tasks": _silent(grid)}
    yield from _table("questions known in QA tasks", grid, known, asking)
    yield from _table("questions unknown", grid, unknown, columns)
    yield from _table("one thing changed, questions known in QA tasks", grid, CHANGED, asking)


def _rows(grid: Cells, seen: Set[str]) -> str:
    rows = max((one.rows for one in grid.series.values()), key=len)
    tasks = Counter(row["facts"]["task"] for row in rows)
    counts = ", ".join(f"{name} {count}{STAR * (count < FEW)}" for name, count in tasks.items())
    whole = next(one for name, one in grid.series.items() if name.startswith("infinipot 4096"))
    fit = sum(row.get("cycles") == 0 for row in whole.rows)
    half = part(grid.run)
    which = f"of the half `{half}`" if half != "all" else "of both halves"
    told = (
        f"{len(rows)} rows {which}, {len(tasks)} tasks ({counts}; {STAR} enters no mean over tasks). {fit} "
        f"of them fit the pot of {whole.cell['capacity']:,}."
    )
    known = sum(row["example"] in seen for row in rows)
    told += f" {known} are among the rows that defaults were chosen on; {len(rows) - known} are new." * bool(
        seen
    )
    if silent := len(_silent(grid)):
        asking = len(rows) - silent
        told += f" {asking} are of question-answering (QA) tasks; the others are read with the general prompt"
        told += " in any case."
    names = "; ".join(f"`{name}`" for name in grid.left_out)
    return told + f" Left out, cut off early: {names}." * bool(names) + "\n"


def _table(title: str, grid: Cells, table: Sequence[Row], columns: Mapping[str, Set[str]]) -> Iterator[str]:
    """Yield a table and what it tells; `columns` are differences without some rows."""
    pairs = [(label, grid.pair(cell, base)) for label, cell, base in table]
    if not any(found and found[1] is not found[2] for _, found in pairs):
        return
    wide = sum(len(scores) >= FEW for scores in _by_task(grid, _widest(grid)).values())
    columns = {head: some for head, some in columns.items() if some}
    heads = "".join(f" {head} |" for head in columns)
    tasks = f"mean of {wide} tasks, and less InfiniPot"
    yield f"| {title} | rows | mean of rows | {tasks} | less InfiniPot, by rows |{heads}"
    yield "|---|---|---|---|---|" + "---|" * len(columns)
    sides: dict[str, list[str]] = {"above": [], "below": [], "level": []}
    for label, found in pairs:
        if not found:
            continue
        tail, one, other = found
        less = None if one is other else difference(one, other)
        if less:
            sides[_side(less)].append(label)
        mean = f"{_mean(estimate(one.scores()))}{_there(one, other)}"
        told = f"{label}{' †' * bool(tail)} | {len(one.scores())} | {mean}"
        apart = "".join(f" {_without(some, one, other) if less else ''} |" for some in columns.values())
        yield f"| {told} | {_tasks(grid, one, other)} | {marked(less) if less else ''} |{apart}"
    yield f"\n{_told(sides)}{_larger(grid, pairs)}\n"


def _there(one: Series, base: Series) -> str:
    """InfiniPot's mean on the rows of a cell that has fewer."""
    scores, ours = one.by_example(), base.by_example()
    both = [ours[name] for name in scores if name in ours]
    return f"; InfiniPot there {100 * fmean(both):.1f}" if 0 < len(both) < len(ours) else ""


def _small(grid: Cells) -> set[str]:
    """The rows of tasks that have few."""
    rows = _widest(grid).rows
    tasks = Counter(row["facts"]["task"] for row in rows)
    return {row["example"] for row in rows if tasks[row["facts"]["task"]] < FEW}


def _silent(grid: Cells) -> set[str]:
    """The rows of all but question-answering tasks: `by-task` reads them with the general prompt."""
    known = descriptions()
    return {row["example"] for row in _widest(grid).rows if not known[row["facts"]["task"]].asks}


def _without(some: Set[str], one: Series, other: Series) -> str:
    """A difference without some rows, and how many are left."""
    new = {name: score for name, score in one.by_example().items() if name not in some}
    return f"{marked(paired(new, other.by_example()))}, {len(new)} rows"


def _told(sides: Mapping[str, Sequence[str]]) -> str:
    """Say which recipes are more than chance above or below InfiniPot."""
    above, below, level = ("; ".join(labels) or "none" for labels in sides.values())
    return f"More than chance above InfiniPot, by all rows: {above}. Below: {below}. Not told apart: {level}."


def _side(less: Estimate) -> str:
    if not less.excludes_zero:
        return "level"
    return "above" if less.mean > 0 else "below"


def _widest(grid: Cells) -> Series:
    return max(grid.series.values(), key=lambda one: len(one.rows))


def _by_task(grid: Cells, one: Series) -> dict[str, list[float]]:
    return {str(task): one.scores(task=task) for task in values(grid.section, "task")}


def _tasks(grid: Cells, one: Series, other: Series) -> str:
    """The mean over tasks, and by how much it is above another, where a cell has all rows."""
    whole = len(one.scores()) == len(_widest(grid).scores())
    found = over_tasks(_by_task(grid, one).values()) if whole else None
    if found is None:
        return ""
    less = "" if one is other else f", {marked(over_tasks(less_by_task(one, other)))}"
    return f"{100 * found.mean:.1f}{less}"


def less_by_task(one: Series, other: Series) -> list[list[float]]:
    """By how much one is above another, row by row, task by task."""
    base, found = other.by_example(), defaultdict[str, list[float]](list)
    for row in one.rows:
        if row["score"] is not None and row["example"] in base:
            found[row["facts"]["task"]].append(row["score"] - base[row["example"]])
    return [*found.values()]


def _larger(grid: Cells, pairs: Sequence[tuple[str, tuple[str, Series, Series] | None]]) -> str:
    """Say who is above InfiniPot without tasks of under ten rows, which the sides by all rows do not say."""
    small = _small(grid)
    above = [label for label, found in pairs if found and _above(found[1], found[2], small)]
    return f" Above without tasks of under ten rows: {'; '.join(above) or 'none'}."


def _above(one: Series, other: Series, without: Set[str]) -> bool:
    rows = {name: score for name, score in one.by_example().items() if name not in without}
    less = paired(rows, other.by_example())
    return less is not None and less.excludes_zero and less.mean > 0


def _mean(found: Estimate | None) -> str:
    return f"{100 * found.mean:.1f} ({found.span})" if found else "–"


def mean_of(scores: Sequence[float]) -> str:
    """A mean of rows with its interval."""
    return _mean(estimate(scores))
