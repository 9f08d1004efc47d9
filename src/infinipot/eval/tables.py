"""Tables of a section: scores x 100 by length, by task, by depth; as Markdown, CSV and HTML."""

import csv
import html
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from infinipot.common.page import table
from infinipot.common.sizes import short
from infinipot.eval.results import Estimate, Section, bootstrapped
from infinipot.eval.tasks.task import TaskType, tasks

ALL, AVERAGE = "all", "average"
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

    def markdown(self) -> str:
        """Return the table in Markdown; the last column with its interval."""
        lines = [f"### {self.title}", "", f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        for row in self.rows:
            shown = [_plain(value, last=value is row[-1]) for value in row]
            lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in shown)} |")
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def html(self) -> str:
        """Return the table in HTML; a long one folded."""
        kinds = ["" if isinstance(value, str) else "n" for value in self.rows[0]]
        rows = ([_plain(value, last=value is row[-1]) for value in row] for row in self.rows)
        title, note = html.escape(self.title), html.escape(self.note)
        body = table(self.columns, rows, kinds) + (f"<p class=note>{note}</p>" if note else "")
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
    return [found for name in (*names, "difference") if (found := _TABLES[name](section)).rows]


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
    parts: list[Facts] = [{"task": name} for name in values(section, "task")]
    return _table(section, title, {**{shown(part["task"]): [part] for part in parts}, AVERAGE: parts})


def _by_depth(section: Section) -> Table:
    lengths, depths = values(section, "length"), values(section, "depth")
    found = Table("By length and depth", ("cell", "length", *(f"depth {shown(d)}" for d in depths), ALL))
    for one, length in product(section.series, lengths if depths else ()):
        parts = (one.mean([{"length": length, "depth": depth}]) for depth in depths)
        found.rows.append((one.name, shown(length), *parts, one.mean([{"length": length}])))
    return found


def _twins(section: Section) -> Table:
    """Rows of a task and of its LongBench-E twin as one task, where both are there."""
    names = values(section, "task")
    both = any(f"{name}_e" in names for name in names)
    series = []
    for one in section.series if both else ():
        facts = ({**row["facts"], "task": row["facts"]["task"].removesuffix("_e")} for row in one.rows)
        rows = [{**row, "facts": known} for row, known in zip(one.rows, facts, strict=True)]
        series.append(replace(one, rows=rows))
    return _by_task(replace(section, series=series), "By task, rows of LongBench and LongBench-E together")


def _buckets(section: Section) -> Table:
    """LongBench-E by length: the mean over its tasks in each bucket."""
    parts: list[Facts] = [{"task": name} for name in values(section, "task") if name.endswith("_e")]
    buckets = sorted(values(section, "bucket")) if parts else []
    columns = {bucket: [{**part, "bucket": bucket} for part in parts] for bucket in buckets}
    return _table(section, "LongBench-E by length", {**columns, AVERAGE: parts}, "Means over tasks.")


def _difference(section: Section) -> Table:
    """Every series against the first, on the examples that both have."""
    first, *others = section.series
    scored = {row["example"]: row["score"] for row in first.rows if row["score"] is not None}
    note = "On the examples both have; an interval without 0 is more than chance."
    found = Table(f"Difference to {first.name}", ("cell", "difference"), note=note)
    for one in others:
        both = [row for row in one.rows if row["score"] is not None and row["example"] in scored]
        pairs = [row["score"] - scored[row["example"]] for row in both]
        found.rows.append((section.label(one), bootstrapped(pairs)))
    return found


def _plain(value: Value, last: bool) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    number = f"{100 * value.mean:.1f}"
    return f"{number} [{100 * value.low:.1f}, {100 * value.high:.1f}]" if last else number


# What a task's declaration may name; the difference to the first cell ends every report.
_TABLES: dict[str, Callable[[Section], Table]] = {"length": _by_length, "depth": _by_depth, "task": _by_task}
_TABLES |= {"twins": _twins, "buckets": _buckets, "difference": _difference}
