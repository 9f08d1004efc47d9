"""Tables of a section: scores x 100 by length, by task, by depth; as Markdown, CSV and HTML."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from infinipot.common.html_page import table
from infinipot.common.sizes import short
from infinipot.eval.estimates import FEW, Estimate, estimate, over_tasks, paired, points
from infinipot.eval.results import KNOWN, UNKNOWN, UNUSED, Section
from infinipot.eval.tasks.task import TaskType, tasks

ALL, AVERAGE, ROWS = "all", "average", "rows"
DIFFERENCES = ("cell", "question", "more than chance", "difference")
MARK = "*"  # at the name of a task that has few rows
FEW_NOTE = f"Average: over tasks, without those under {FEW} rows ({MARK}). The last column: over rows."
LONG = 32  # rows beyond which a table is folded
Value = str | Estimate | None
Facts = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A heading, the columns' names, and rows that begin with the cell's name."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]] = field(default_factory=list)
    note: str = ""
    spread: int = 1  # of the last columns are shown with their intervals

    def plain(self) -> Iterator[list[str]]:
        """Yield every row as it is shown."""
        for row in self.rows:
            yield [_plain(value, place >= len(row) - self.spread) for place, value in enumerate(row)]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"### {self.title}", "", f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        for shown in self.plain():
            lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in shown)} |")
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def html(self) -> str:
        """Return the table in HTML; a long one folded."""
        kinds = ["" if isinstance(value, str) else "n" for value in self.rows[0]]
        title, note = html.escape(self.title), html.escape(self.note)
        body = table(self.columns, self.plain(), kinds) + (f"<p class=note>{note}</p>" if note else "")
        if len(self.rows) > LONG:
            return f"<details><summary><h3>{title}</h3></summary>\n{body}</details>"
        return f"<h3>{title}</h3>\n{body}"

    def csv(self) -> str:
        """Return every number with its interval and count, one a line."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        first = sum(isinstance(value, str) for value in self.rows[0])  # columns of words come first
        writer.writerow([*self.columns[:first], "column", "score", "low", "high", "rows"])
        for row in self.rows:
            for name, value in zip(self.columns, row, strict=True):
                if isinstance(value, Estimate):
                    numbers = (f"{100 * x:.2f}" for x in (value.mean, value.low, value.high))
                    writer.writerow([*row[:first], name, *numbers, value.count])
        return stream.getvalue()


def tables(section: Section) -> list[Table]:
    """Return the tables of a section that have anything in them, the one to look at first."""
    names = tasks().get(section.task, TaskType).tables  # the default ones of a task that is no longer here
    found = [_TABLES[name](section) for name in names]
    found += [_difference(section, question) for question in (KNOWN, UNKNOWN)]
    return [one for one in found if one.rows]


def shown(fact: Any) -> str:
    """Write a fact as a column is called."""
    return short(fact) if isinstance(fact, int) else f"{fact:g}" if isinstance(fact, float) else str(fact)


def values(section: Section, fact: str) -> list[Any]:
    """Return every value a fact has in a section: numbers by size, words as they come."""
    facts = (row["facts"] for one in section.series for row in one.rows)
    found = dict.fromkeys(told[fact] for told in facts if fact in told)
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found) if numbers else list(found)


def _table(section: Section, title: str, columns: Mapping[str, list[Facts]], note: str = "") -> Table:
    """Return a row a series; a column is the mean over some groups of rows, each known by its facts."""
    rows = [(section.label(one), *map(one.mean, columns.values())) for one in section.series]
    return Table(title, ("cell", *columns), rows if len(columns) > 1 else [], note)


def _by_length(section: Section) -> Table:
    columns: dict[str, list[Facts]] = {shown(n): [{"length": n}] for n in values(section, "length")}
    return _table(section, "By length", {**columns, ALL: [{}]})


def _by_task(section: Section, title: str = "By task") -> Table:
    """A column a task with its rows, then the mean over tasks that have enough of them, then over rows."""
    names = values(section, "task")
    most = {name: max(len(one.scores(task=name)) for one in section.series) for name in names}
    columns = [f"{shown(name)} ({n}){MARK if n < FEW else ''}" for name, n in most.items()]
    found = Table(title, ("cell", *columns, AVERAGE, ROWS), note=FEW_NOTE, spread=2)
    for one in section.series if names else ():
        means = (one.mean([{"task": name}]) for name in names)
        enough = over_tasks(one.scores(task=name) for name in names)
        found.rows.append((section.label(one), *means, enough, estimate(one.scores())))
    return found


def _by_depth(section: Section) -> Table:
    lengths, depths = values(section, "length"), values(section, "depth")
    found = Table("By length and depth", ("cell", "length", *(f"depth {shown(d)}" for d in depths), ALL))
    for one, length in product(section.series, lengths if depths else ()):
        parts = (one.mean([{"length": length, "depth": depth}]) for depth in depths)
        found.rows.append((one.name, shown(length), *parts, one.mean([{"length": length}])))
    return found


def joined(section: Section) -> Section:
    """Return the section with rows of a task and of its LongBench-E twin as one task."""
    names = values(section, "task")
    if not any(f"{name}_e" in names for name in names):
        return section
    series = []
    for one in section.series:
        facts = ({**row["facts"], "task": row["facts"]["task"].removesuffix("_e")} for row in one.rows)
        rows = [{**row, "facts": known} for row, known in zip(one.rows, facts, strict=True)]
        series.append(replace(one, rows=rows))
    return replace(section, series=series)


def _twins(section: Section) -> Table:
    """A task's rows and its LongBench-E twin's together; nothing where no twins are there."""
    together, title = joined(section), "By task, rows of LongBench and LongBench-E together"
    return Table(title, ()) if together is section else _by_task(together, title)


def _buckets(section: Section) -> Table:
    """LongBench-E by length: the mean over its tasks in each bucket."""
    parts: list[Facts] = [{"task": name} for name in values(section, "task") if name.endswith("_e")]
    buckets = sorted(values(section, "bucket")) if parts else []
    columns = {bucket: [{**part, "bucket": bucket} for part in parts] for bucket in buckets}
    return _table(section, "LongBench-E by length", {**columns, AVERAGE: parts}, "Means over tasks.")


def _difference(section: Section, question: str) -> Table:
    """Series against the first of a kind, row by row; one that uses no question stands beside both kinds."""
    kind = [one for one in section.series if one.question in (question, UNUSED)]
    first = next((one for one in kind if one.question == question), None)
    if first is None:  # where no cell uses a question, all are compared once
        none_asks = all(one.question == UNUSED for one in section.series)
        first = kind[0] if kind and question == KNOWN and none_asks else None
    title = f"Difference to {first.name}" if first else ""
    title += f", question {question}" if first and first.question != UNUSED else ""
    note = "By rows, on the examples both have; an interval without 0 is more than chance."
    found = Table(title, DIFFERENCES, note=note)
    if first is None:
        return found
    base = first.by_example()
    for one in kind:
        if one is not first and (less := paired(one.by_example(), base)):
            apart = "yes" if less.excludes_zero else "no" if less.count >= FEW else f"under {FEW} rows"
            found.rows.append((section.label(one), one.question, apart, less))
    return found


def _plain(value: Value, spread: bool) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    number = f"{100 * value.mean:.1f}"
    return f"{number} [{points(value.low)}, {points(value.high)}]" if spread else number


# What a task's declaration may name; differences to the first cell end every report.
_TABLES: dict[str, Callable[[Section], Table]] = {"length": _by_length, "depth": _by_depth, "task": _by_task}
_TABLES |= {"twins": _twins, "buckets": _buckets}
