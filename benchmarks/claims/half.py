"""What is said of LongBench's half `report` with today's code, and of `smollm2` on the half `tune`."""

from __future__ import annotations

from collections import Counter
from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of
from infinipot.eval.estimates import FEW

GRID = "report-half/longbench"
OURS, PRINTED = "infinipot 4096 by-task", "infinipot-paper 4096 by-task"
ADR = "docs/adr/0015-what-fits-where-a-text-ends.md"


def claimed(says: Says) -> None:
    page = partial(says, "docs/results.md")
    _told_apart(page)
    _missing(page)
    _unknown(page)
    _printed(says)


def _told_apart(says: partial[None]) -> None:
    grid = rows_of(GRID)
    less = {cell: grid.less(cell, OURS) for cell in ("full", "snapkv 4096", "truncate 4096", PRINTED)}
    none = not any(found[1] > 0 for found in less.values())
    means = [grid.average(cell, FEW)[0] for cell in ("truncate 4096", PRINTED, OURS)]
    says("Nothing is more than chance above InfiniPot on this half", holds=none)
    says("truncation has {:.1f} and the method as printed {:.1f} against its {:.1f},", *means)
    words = "excludes 0 barely (its upper end is {:.2f})"
    says(words, less["full"][2], holds=less["full"][2] < 0)
    one = [_share(cell, "passage_retrieval_en") for cell in ("full", "snapkv 4096")]
    numbers = -one[0], -less["full"][0], -one[1], -less["snapkv 4096"][0]
    words = "{:.1f} of its {:.1f} points, and {:.1f} of SnapKV's {:.1f}, are three answers in the nine rows"
    says(words, *numbers, holds=len(grid.by_task(OURS)["passage_retrieval_en"]) == 9)
    old = set(rows_of("grids/longbench").cell(OURS).by_example())
    new = {name.partition("/")[0].removesuffix("_e") for name in set(grid.cell(OURS).by_example()) - old}
    says("all of them older rows", holds="passage_retrieval_en" not in new)
    words = "Neither the method as printed nor truncation is told apart from our defaults."
    says(words, holds=chance(less[PRINTED]) and chance(less["truncate 4096"]))


def _share(cell: str, task: str) -> float:
    """How many points of a difference by rows are one task's."""
    ours, theirs = (rows_of(GRID).cell(name).by_example() for name in (OURS, cell))
    gaps = {name: theirs[name] - ours[name] for name in theirs}
    assert sum(gap != 0 for name, gap in gaps.items() if name.startswith(task)) == 3
    return 100 * sum(gap for name, gap in gaps.items() if name.startswith(task)) / len(gaps)


def _missing(says: partial[None]) -> None:
    every = _tasks(OURS)
    lost = every - _tasks("full")
    pairs = [n for task in ("narrativeqa", "2wikimqa") for n in (lost[task], every[task])]
    words = "of the whole cache {} are missing (narrativeqa {} of {}, 2wikimqa {} of {}, triviaqa"
    says(words, lost.total(), *pairs)
    pairs = [n for task in ("triviaqa", "samsum", "trec") for n in (lost[task], every[task])]
    says("triviaqa {} of {}, samsum {} of {}, trec {} of {},", *pairs)
    pairs = [n for task in ("qmsum", "qasper") for n in (lost[task], every[task])]
    gone = all(lost[task] == every[task] for task in ("repobench-p", "hotpotqa", "musique"))
    says("qmsum {} of {}, qasper {} of {}, all of repobench-p, hotpotqa and musique,", *pairs, holds=gone)
    few = lost["multifieldqa_en"], every["multifieldqa_en"], lost["lcc"]
    says("musique, {} of {} of multifieldqa_en, {} of lcc)", *few)
    lost = every - _tasks("snapkv 4096")
    first = (lost[task] for task in ("triviaqa", "samsum"))
    says("of SnapKV {} (triviaqa {}, samsum {},", lost.total(), *first)
    words = "trec {}, qmsum {}, repobench-p {}, lcc {})."
    says(words, *(lost[task] for task in ("trec", "qmsum", "repobench-p", "lcc")))


def _tasks(cell: str) -> Counter[str]:
    return Counter({task: len(scores) for task, scores in rows_of(GRID).by_task(cell).items()})


def _unknown(says: partial[None]) -> None:
    grid, cell = rows_of(GRID), "infinipot 4096 general"
    rows = grid.cell(cell).rows
    alike, lost = sum("same_as" in row for row in rows), _tasks(OURS) - _tasks(cell)
    asked = {"2wikimqa", "hotpotqa", "musique", "multifieldqa_en", "qasper", "narrativeqa"}
    says("of {} rows {} are read as with the question known,", len(rows), alike)
    says("and the {} that are missing all ask one.", lost.total(), holds=set(lost) <= asked)
    words = "On the {} the two are level ({:.1f}, {:.1f} to {:.1f}), as they must be."
    says(words, len(rows), *(abs(x) for x in grid.less(cell, OURS)))


def _printed(says: Says) -> None:
    tune = rows_of("defaults-smollm2/longbench")
    found, ours = tune.less(PRINTED, OURS), tune.cell(OURS)
    both = set(ours.by_example()) & set(tune.cell(PRINTED).by_example())
    words = "it scores {:.1f} points more, but the interval has 0 in it ({:.1f} to {:.1f}; {} rows"
    says("docs/results.md", words, *found, len(both), holds=chance(found))
    fit = sum(row["cycles"] == 0 for row in ours.rows if row["example"] in both)
    words = "{:.1f} points more ({:.1f} to {:.1f}) on the {} rows that both have, {} of which fit the pot"
    says(ADR, words, *found, len(both), fit, holds=chance(found))
    mean, low, high = rows_of(GRID).less(PRINTED, OURS)
    words = "on {} rows of the half `report`, the method as printed is {:.1f} below ({:.1f} below"
    words += " to {:.1f} above)"
    says(ADR, words, len(rows_of(GRID).cell(OURS).rows), -mean, -low, high, holds=chance((mean, low, high)))
