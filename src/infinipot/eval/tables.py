"""Tables of a section: scores x 100 by length, by task, by depth; as Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infinipot.common.sizes import short
from infinipot.eval.results import Section, Series
from infinipot.eval.stats import Estimate, bootstrapped, estimate, macro
from infinipot.eval.tasks.registry import tasks

ALL, AVERAGE = "all", "average"
DEFAULT = ("task", "length")  # of a task that is no longer here
LONG = 32  # rows beyond which a table is folded
Value = str | Estimate | None


@dataclass(frozen=True)
class Table:
    """A heading, the columns' names, and rows that begin with the cell's name."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]] = field(default_factory=list)
    note: str = ""

    def markdown(self) -> str:
        """Return it in Markdown; the last column with its interval."""
        lines = [f"### {self.title}", "", f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        for row in self.rows:
            shown = [_plain(value, last=value is row[-1]) for value in row]
            lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in shown)} |")
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def html(self) -> str:
        """Return it as an HTML table; a long one folded."""
        numbers = [not isinstance(value, str) for value in self.rows[0]]
        head = _cells("th", numbers, self.columns)
        body = "\n".join(
            f"<tr>{_cells('td', numbers, [_plain(v, last=v is row[-1]) for v in row])}</tr>"
            for row in self.rows
        )
        title, note = html.escape(self.title), html.escape(self.note)
        table = (
            f"<div class=wide><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
            + (f"<p class=note>{note}</p>" if note else "")
        )
        if len(self.rows) > LONG:
            return f"<details><summary><h3>{title}</h3></summary>\n{table}</details>"
        return f"<h3>{title}</h3>\n{table}"

    def csv(self) -> str:
        """Return every number with its interval and count, one a line."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        names = [
            name for name, value in zip(self.columns, self.rows[0], strict=True) if isinstance(value, str)
        ]
        writer.writerow([*names, "column", "score", "low", "high", "rows"])
        for row in self.rows:
            words = [value for value in row if isinstance(value, str)]
            for name, value in zip(self.columns, row, strict=True):
                if isinstance(value, Estimate):
                    numbers = (f"{100 * x:.2f}" for x in (value.mean, value.low, value.high))
                    writer.writerow([*words, name, *numbers, value.count])
        return stream.getvalue()


def tables(section: Section) -> list[Table]:
    """Return the tables of a section, the one to look at first."""
    task = tasks().get(section.task)
    names = (*(task.tables if task else DEFAULT), "difference")
    return [table for name in names for table in _TABLES[name](section)]


def shown(fact: Any) -> str:
    """Write a fact as a column is called."""
    return short(fact) if isinstance(fact, int) else f"{fact:g}" if isinstance(fact, float) else str(fact)


def values(section: Section, fact: str) -> list[Any]:
    """Return every value a fact has in a section: numbers by size, words as they come."""
    found = dict.fromkeys(
        row["facts"][fact] for one in section.series for row in one.rows if fact in row["facts"]
    )
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found) if numbers else list(found)


def _across(
    section: Section, fact: str, title: str, last: str, total: Callable[[Series, list[Any]], Estimate | None]
) -> list[Table]:
    """One row a series, one column a value of the fact, and a last column over all of them."""
    columns = values(section, fact)
    if not columns:
        return []
    table = Table(title, ("cell", *map(shown, columns), last))
    for one in section.series:
        parts = (estimate(one.scores(**{fact: value})) for value in columns)
        table.rows.append((section.label(one), *parts, total(one, columns)))
    return [table]


def _by_length(section: Section) -> list[Table]:
    return _across(section, "length", "By length", ALL, lambda one, _: estimate(one.scores()))


def _by_task(section: Section) -> list[Table]:
    def total(one: Series, tasks: list[Any]) -> Estimate | None:
        return macro([one.scores(task=task) for task in tasks])

    return _across(section, "task", "By task", AVERAGE, total)


def _by_depth(section: Section) -> list[Table]:
    lengths, depths = values(section, "length"), values(section, "depth")
    table = Table("By length and depth", ("cell", "length", *(f"depth {shown(d)}" for d in depths), ALL))
    for one in section.series:
        for length in lengths:
            parts = (estimate(one.scores(length=length, depth=depth)) for depth in depths)
            table.rows.append((one.name, shown(length), *parts, estimate(one.scores(length=length))))
    return [table] if lengths and depths else []


def _pooled(section: Section) -> list[Table]:
    """Rows of a task and of its LongBench-E twin as one task, where both are there."""
    names = values(section, "task")
    if not any(f"{name}_e" in names for name in names):
        return []
    joined = replace(
        section, series=[replace(one, rows=[_base(r) for r in one.rows]) for one in section.series]
    )
    return [
        replace(table, title="By task, rows of LongBench and LongBench-E together")
        for table in _by_task(joined)
    ]


def _base(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "facts": {**row["facts"], "task": row["facts"]["task"].removesuffix("_e")}}


def _buckets(section: Section) -> list[Table]:
    """LongBench-E by length: the mean over its tasks in each bucket."""
    tasks = [name for name in values(section, "task") if name.endswith("_e")]
    buckets = sorted(values(section, "bucket"))
    if not tasks:
        return []
    table = Table("LongBench-E by length", ("cell", *buckets, AVERAGE), note="Means over tasks.")
    for one in section.series:
        parts = (macro([one.scores(task=task, bucket=bucket) for task in tasks]) for bucket in buckets)
        table.rows.append((section.label(one), *parts, macro([one.scores(task=task) for task in tasks])))
    return [table]


def _against(section: Section) -> list[Table]:
    """Every series against the first, on the examples that both have."""
    first, *others = section.series
    scored = {row["example"]: row["score"] for row in first.rows if row["score"] is not None}
    table = Table(
        f"Difference to {first.name}",
        ("cell", "difference"),
        note="On the examples both have; an interval without 0 is more than chance.",
    )
    for one in others:
        pairs = [
            row["score"] - scored[row["example"]]
            for row in one.rows
            if row["score"] is not None and row["example"] in scored
        ]
        table.rows.append((section.label(one), bootstrapped(pairs)))
    return [table] if others else []


def _cells(kind: str, numbers: Sequence[bool], texts: Sequence[str]) -> str:
    return "".join(
        f"<{kind}{' class=n' if number else ''}>{html.escape(text)}</{kind}>"
        for number, text in zip(numbers, texts, strict=True)
    )


def _plain(value: Value, last: bool) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    number = f"{100 * value.mean:.1f}"
    return f"{number} [{100 * value.low:.1f}, {100 * value.high:.1f}]" if last else number


_TABLES: dict[str, Callable[[Section], list[Table]]] = {
    "length": _by_length,
    "depth": _by_depth,
    "task": _by_task,
    "twins": _pooled,
    "buckets": _buckets,
    "difference": _against,
}
"""What a task's declaration may name; the difference to the first cell ends every report."""
