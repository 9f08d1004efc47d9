"""The top of a report's page: which recipe answers best, at what memory and time, and what chance allows.

Known and unknown questions are two boards with a switch between them, made of HTML and CSS alone: the page
stays one file without a script.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from infinipot.eval.estimates import FEW, Estimate, estimate, over_tasks, paired
from infinipot.eval.grid import BY_TASK
from infinipot.eval.results import KNOWN, UNKNOWN, UNUSED, Section, Series
from infinipot.eval.tables import MARK, Table, joined, shown, values

BOARDS = {KNOWN: "Question known while reading", UNKNOWN: "Question unknown"}
MANY = 30  # tasks or lengths beyond which a board has no column for each
Part = tuple[str, Any]  # a fact of rows and one of its values


@dataclass(frozen=True)
class Standing:
    """One cell of a board."""

    number: int  # in the board and in its picture
    series: Series
    rows: Estimate  # over rows
    tasks: Estimate | None  # over tasks that have enough rows
    entries: int | None  # KV entries at the peak
    seconds: float | None  # a row


def standings(section: Section) -> list[Standing]:
    """Return the cells that have a score: the best first, those that lack rows or had errors last."""
    section = joined(section)
    found, names = [], values(section, "task")
    for one in section.series:
        if rows := estimate(one.scores()):
            tasks = over_tasks(one.scores(task=name) for name in names) if len(names) > 1 else None
            found.append(Standing(0, one, rows, tasks, _entries(one), _seconds(one)))
    found.sort(key=lambda one: (one.rows.count < section.most, -(one.tasks or one.rows).mean))
    return [replace(one, number=number) for number, one in enumerate(found, start=1)]


def _entries(one: Series) -> int | None:
    """The most KV entries a layer and head held: the capacity, or the longest text without a bound."""
    if one.cell.get("bounds") == "memory":
        return one.cell.get("capacity")
    return max((row["tokens_read"] for row in one.rows if "tokens_read" in row), default=None)


def _seconds(one: Series) -> float | None:
    took = [sum(row["seconds"].values()) for row in one.rows if "seconds" in row]
    return fmean(took) if took else None


def leaderboard(section: Section, name: str) -> str:
    """Return a section's boards; `name` tells their switch from that of other sections."""
    every = standings(section)
    boards = {
        question: [one for one in every if one.series.question in (question, UNUSED)]
        for question in BOARDS
        if any(one.series.question == question for one in every)
    } or {UNUSED: every}
    parts = [f'<section class="boards boards-{len(boards)}">']
    if len(boards) > 1:
        for place, question in enumerate(boards):
            parts.append(f'<input type=radio name="{name}" id="{name}-{place}"{" checked" * (not place)}>')
            parts.append(f'<label for="{name}-{place}">{BOARDS[question]}</label>')
    parts += [_board(section, standing) for standing in boards.values()]
    return "\n".join([*parts, "</section>"])


def _board(section: Section, standing: Sequence[Standing]) -> str:
    section = joined(section)
    parts = _parts(section)
    most = {part: max(len(one.series.scores(**dict([part]))) for one in standing) for part in parts}
    told = [f"{shown(value)} ({n}){MARK if n < FEW else ''}" for (_, value), n in most.items()]
    tasks = ["mean of tasks, 95%"] if parts and parts[0][0] == "task" else []
    heads = ["#", "cell", "mean of rows, 95%", *tasks, "entries", "s a row", *told]
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    note = f"Best first, by {'the mean of tasks' if tasks else 'rows'}. Grey: not told apart from it by rows."
    note += " Entries: the most a layer and head held. Seconds of rows run side by side are no benchmark."
    note += f" {MARK}: under {FEW} rows, not in the mean of tasks." if tasks else ""
    if any(one.series.cell.get("catalyst") == BY_TASK for one in standing):
        note += f" {BY_TASK}: the question is known in tasks of question answering alone."
    body = "\n".join(_row(section, one, parts, standing[0]) for one in standing)
    table = f"<table class=board><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f"<div class=panel><div class=wide>{table}</div><p class=note>{note}</p></div>"


def _parts(section: Section) -> list[Part]:
    """What a board has a column for: tasks where there are several, else lengths."""
    for fact in ("task", "length"):
        if 1 < len(found := values(section, fact)) <= MANY:
            return [(fact, value) for value in found]
    return []


def _row(section: Section, one: Standing, parts: Sequence[Part], best: Standing) -> str:
    less = paired(one.series.by_example(), best.series.by_example())
    level = one is not best and less is not None and not less.excludes_zero
    cells = [f"<td class=n>{one.number}</td><td>{html.escape(section.label(one.series))}</td>"]
    low, width = 100 * one.rows.low, 100 * (one.rows.high - one.rows.low)
    bar = _bar("bar", 100 * one.rows.mean, low, width)
    cells.append(f"<td class=score><b>{100 * one.rows.mean:.1f}</b> <small>{one.rows.span}</small>{bar}</td>")
    if parts and parts[0][0] == "task":
        told = f"<b>{100 * one.tasks.mean:.1f}</b> <small>{one.tasks.span}</small>" if one.tasks else "–"
        cells.append(f"<td class=n>{told}</td>")
    cells.append(f"<td class=n>{f'{one.entries / 1024:.3g}K' if one.entries else '–'}</td>")
    cells.append(f"<td class=n>{f'{one.seconds:.1f}' if one.seconds is not None else '–'}</td>")
    for part in parts:
        scores = one.series.scores(**dict([part]))
        heat = f' style="--heat:{fmean(scores):.2f}"' if scores else ""
        cells.append(f'<td class="n task"{heat}>{f"{100 * fmean(scores):.1f}" if scores else "–"}</td>')
    return f"<tr{' class=level' if level else ''}>{''.join(cells)}</tr>"


def forest(table: Table) -> str:
    """Return a table of differences as bars around a line at 0; what excludes 0 has a colour."""
    told = ((str(row[0]), str(row[1]), row[-1]) for row in table.rows)
    rows = [(name, question, less) for name, question, less in told if isinstance(less, Estimate)]
    reach = max((max(abs(less.low), abs(less.high)) for _, _, less in rows), default=0) or 1
    lines = []
    for name, question, less in rows:
        left, at = 50 + 50 * less.low / reach, 50 + 50 * less.mean / reach
        kind = "chance" if not less.excludes_zero else "below" if less.high < 0 else "above"
        bar = _bar(f"span {kind}", at, left, 50 * (less.high - less.low) / reach)
        numbers = f"{100 * less.mean:+.1f} <small>{less.span}</small>"
        cells = (f"<td>{html.escape(name)}</td>", f"<td>{question}</td>", f"<td class=n>{numbers}</td>")
        lines.append(f"<tr>{''.join(cells)}<td class=forest>{bar}</td></tr>")
    head = "<th>cell</th><th>question</th><th class=n>difference, 95%</th><th class=forest></th>"
    body = "\n".join(lines)
    drawn = f"<div class=wide><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    return f"<h3>{html.escape(table.title)}</h3>\n{drawn}<p class=note>{html.escape(table.note)}</p>"


def _bar(kind: str, at: float, low: float, wide: float) -> str:
    """A bar drawn by the page's style: where the mean is, where its interval begins and how wide that is."""
    return f'<span class="{kind}" style="--at:{at:.1f}%;--low:{low:.1f}%;--wide:{wide:.1f}%"></span>'
