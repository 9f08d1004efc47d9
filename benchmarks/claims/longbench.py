"""What the documentation says of LongBench: docs/results.md, docs/choosing.md, ADR 14 and ADR 15."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import Three, chance, rows_of
from infinipot.eval.estimates import FEW

GRID = "grids/longbench"
OURS, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 general"
PLAIN = "infinipot 4096 tail=distil by-task"
MEAN, LESS = "{:.1f} ({:.1f} to {:.1f})", "{:.1f} ({:.1f} to {:.1f})"
FIRST = {
    "H2O, 256 tokens a step": "h2o 4096 step=256",
    "sliding window, 256 tokens a step": "swa 4096 step=256",
}
SECOND = {
    "InfiniPot without CR-RoPE": "no-cr-rope 4096 tail=distil by-task",
    "InfiniPot, scores not pooled": "infinipot 4096 tail=distil pool=1 by-task",
    "CaP alone": "cap-only 4096 tail=distil by-task",
    "CCD alone": "ccd 4096 tail=distil",
    "NuC alone": "nuc-only 4096 tail=distil",
    "SirLLM": "sirllm 4096 tail=distil",
}


def claimed(says: Says) -> None:
    page = partial(says, "docs/results.md")
    _rows(page)
    _tables(page)
    _settings(page)
    _words(page)
    _advice(says)
    _ends(partial(says, "docs/adr/0015-what-fits-where-a-text-ends.md"))


def _rows(says: partial[None]) -> None:
    tasks, rows = rows_of(GRID).by_task(OURS), rows_of(GRID).cell(OURS).rows
    few = {name: len(scores) for name, scores in tasks.items() if len(scores) < FEW}
    says("both halves, {} rows, {} tasks, earlier code;", len(rows), len(tasks))
    words = "two tasks have under ten rows (`multifieldqa_en` {}, `musique` {})"
    says(words, few["multifieldqa_en"], few["musique"], holds=len(few) == 2)
    says("{} of the {} rows fit the pot, where", sum(row["cycles"] == 0 for row in rows), len(rows))
    says("among the {} rows that fit, some", sum(row["cycles"] == 0 for row in rows))
    wide = len(tasks) - len(few)
    says(
        "| recipe, older rows | mean of {} rows | mean of {} tasks | less InfiniPot, by rows |",
        len(rows),
        wide,
    )
    says("| recipe, `--tail distil` | mean of {} rows | mean of {} tasks |", len(rows), wide)


def _tables(says: partial[None]) -> None:
    grid = rows_of(GRID)
    words = f"| InfiniPot, questions known while reading | {MEAN} | {{:.1f}} | |"
    says(words, *grid.mean(OURS), grid.average(OURS, FEW)[0])
    for label, cell in FIRST.items():
        numbers = *grid.mean(cell), grid.average(cell, FEW)[0], *grid.less(cell, OURS)
        says(f"| {label} | {MEAN} | {{:.1f}} | {LESS} |", *numbers)
    extended = len(grid.cell("self-extend").rows), len(grid.cell(OURS).rows)
    words = f"| Self-Extend (not memory-constrained) | {{}} of {{}} rows | | {LESS} |"
    says(words, *extended, *grid.less("self-extend", OURS))
    says(f"| InfiniPot | {MEAN} | {{:.1f}} | |", *grid.mean(PLAIN), grid.average(PLAIN, FEW)[0])
    for label, cell in SECOND.items():
        numbers = *grid.mean(cell), grid.average(cell, FEW)[0], *grid.less(cell, PLAIN)
        says(f"| {label} | {MEAN} | {{:.1f}} | {LESS} |", *numbers)


def _words(says: partial[None]) -> None:
    grid = rows_of(GRID)
    less = {label: grid.less(cell, OURS) for label, cell in {**FIRST, "Self-Extend": "self-extend"}.items()}
    below = {label for label, found in less.items() if found[2] < 0}
    only = below == {"Self-Extend", "sliding window, 256 tokens a step"}
    says("Of these only the sliding window and Self-Extend are more than chance below InfiniPot", holds=only)
    says("nothing is above it.", holds=not any(found[1] > 0 for found in less.values()))
    plain = {label: grid.less(cell, PLAIN) for label, cell in SECOND.items()}
    shows = all(plain[name][2] < 0 for name in ("CCD alone", "NuC alone"))
    says("the catalyst shows (CCD and NuC alone are below it)", holds=shows)
    none = all(map(chance, (plain[name] for name in list(SECOND)[:3])))
    says("novelty, pooling and CR-RoPE do not on these rows", holds=none)
    cut = grid.less("truncate 4096", PLAIN)
    words = "Truncation is {:.1f} above InfiniPot here ({:.1f} below to {:.1f} above), no more than chance."
    says(words, cut[0], -cut[1], cut[2], holds=chance(cut))


def _settings(says: partial[None]) -> None:
    """One setting changed: a mean of rows, and the interval of its difference to the default's."""

    def sweep(label: str, default: str, *cells: str) -> list[Three]:
        pieces: list[str] = []
        numbers: list[float] = []
        found = []
        for cell in cells:
            pieces.append("{:.1f}" if cell == default else "{:.1f} ({:.1f} to {:.1f})")
            less = grid.less(cell, default)
            numbers += [grid.mean(cell)[0], *(() if cell == default else less[1:])]
            found.append(less)
        says(f"| {label} | {' / '.join(pieces)} |", *numbers)
        return found

    grid, cell = rows_of(GRID), "infinipot 4096 tail=distil{} by-task"
    ends = sweep(
        "a text's end: filled / distilled / raw", OURS, OURS, PLAIN, "infinipot 4096 tail=raw by-task"
    )
    general = [f"infinipot 4096 tail={tail} general" for tail in ("distil", "raw")]
    ends_general = sweep("the same, questions unknown", UNKNOWN, UNKNOWN, *general)
    novelty = [cell.format(f" novelty={share}") for share in ("0", "0.25", "0.75")]
    sweep("novelty 0 / 0.25 / 0.5 / 0.75", PLAIN, *novelty[:2], PLAIN, novelty[2])
    sweep("pooled over 1 / 7 / 15 slots", PLAIN, cell.format(" pool=1"), PLAIN, cell.format(" pool=15"))
    sweep("kept 2,048 / 3,072", PLAIN, PLAIN, "infinipot 4096 keep=3072 tail=distil by-task")
    names = ("general", "general-1", "general-2", "unrelated", "padding")
    others = [f"infinipot 4096 tail=distil {name}" for name in names]
    prompts = sweep(f"catalyst: question / {' / '.join(names)}", PLAIN, PLAIN, *others)
    sizes = [f"infinipot {size} tail=distil by-task" for size in (1024, 2048, 4096, 8192)]
    pots = sweep("capacity 1,024 / 2,048 / 4,096 / 8,192", PLAIN, *sizes)
    cut = [f"truncate {size}" for size in (1024, 2048, 4096, 8192)]
    says("| the same, truncated | {:.1f} / {:.1f} / {:.1f} / {:.1f} |", *(grid.mean(one)[0] for one in cut))

    raw = ends[2][2] < 0 and ends_general[2][2] < 0
    says("More than chance: a raw end is worse than a filled one,", holds=raw)
    says("small pots are worse than one of 4,096,", holds=pots[0][2] < 0 and pots[1][2] < 0)
    better = [found[2] < 0 for found in prompts[1:]]
    said = better == [False, True, True, False, True]
    says(
        "the question is a better catalyst than two rewordings of the general prompt and than padding.",
        holds=said,
    )
    second = grid.less(others[2], others[0])
    alone = second[2] < 0 and all(chance(grid.less(others[n], others[0])) for n in (1, 3, 4))
    words = "of the general ones only general-2 is below `general` ({:.1f}, {:.1f} to {:.1f})."
    says(words, *second, holds=alone)
    level = all(chance(grid.less(a, b)) for a, b in zip(cut, sizes, strict=True))
    says("At no capacity do these rows tell InfiniPot from truncation.", holds=level)
    wrong = [sum(row["score"] is None for row in grid.cell(one).rows) for one in (sizes[0], cut[0], cut[1])]
    says(
        "At 1,024 entries {} rows have a question that is too long for the pot "
        "(truncated: {}, and {} at 2,048)",
        *wrong,
    )


def _advice(says: Says) -> None:
    grid = rows_of(GRID)
    mean, low, high = grid.less(PLAIN, OURS)
    words = "On LongBench fitting was worth {:.1f} points ({:.1f} to {:.1f}, which does not exclude chance)"
    says("docs/choosing.md", words, -mean, -high, -low, holds=chance((mean, low, high)))
    adr, pool = "docs/adr/0014-pooled-scores.md", "infinipot 4096 tail=distil pool={} by-task"
    mean, low, high = grid.less(pool.format(1), PLAIN)
    wider = grid.less(pool.format(15), PLAIN)
    words = (
        "not pooled is {:.1f} points lower, 95% interval {:.1f} lower to {:.1f} higher; over 15 "
        "slots {:.1f} lower."
    )
    says(adr, words, -mean, -low, high, -wider[0], holds=chance((mean, low, high)) and chance(wider))
    narrow = "infinipot 4096 tail=distil pool=1 general"
    mean, low, high = grid.less("infinipot 4096 tail=distil general", narrow)
    words = (
        "is {:.1f} points higher ({:.1f} lower to {:.1f} higher, on the {} rows both have): no more "
        "than chance"
    )
    says(adr, words, mean, -low, high, len(grid.cell(narrow).rows), holds=chance((mean, low, high)))
    says(adr, "On LongBench ({} rows)", len(grid.cell(PLAIN).rows))


def _ends(says: partial[None]) -> None:
    grid = rows_of(GRID)
    rows = {
        "settled at \\|C\\| (ADR 4)": (
            "infinipot 4096 tail=distil by-task",
            "infinipot 4096 tail=distil general",
        ),
        "last chunk left as it is, as in the paper": (
            "infinipot 4096 tail=raw by-task",
            "infinipot 4096 tail=raw general",
        ),
    }
    says("LongBench's {} rows, mean of rows", len(grid.cell(OURS).rows))
    says("| fitted | {:.1f} | | {:.1f} |", grid.mean(OURS)[0], grid.mean(UNKNOWN)[0])
    for label, (cell, general) in rows.items():
        numbers = grid.mean(cell)[0], *grid.less(cell, OURS), grid.mean(general)[0]
        says(f"| {label} | {{:.1f}} | {LESS} | {{:.1f}} |", *numbers)
    for label, cell in (("whole cache", "full"), ("truncated", "truncate 4096")):
        says(f"| for comparison: {label} | {{:.1f}} | {LESS} | |", grid.mean(cell)[0], *grid.less(cell, OURS))
