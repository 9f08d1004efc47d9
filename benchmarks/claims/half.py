"""What is said of LongBench's half `report` with today's code, and of the defaults on the half `tune`."""

from __future__ import annotations

import json
import lzma
from functools import partial

from claims.checks import Says
from claims.raw import POTS, RESULTS, Three, chance, rows_of, three
from infinipot.eval.estimates import FEW, compared

GRID = "report-half/longbench"
OURS, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 general"
SLOTS = "infinipot 4096 units=slots general"
PRINTED, BLIND_PRINTED = "infinipot-paper 4096 by-task", "infinipot-paper 4096 general"
ADR = "docs/adr/0015-what-fits-where-a-text-ends.md"


def claimed(says: Says) -> None:
    page = partial(says, "docs/results.md")
    _told_apart(page)
    _choosing(partial(says, "docs/choosing.md"))
    _printed(says)
    _tuned(says)


def _told_apart(says: partial[None]) -> None:
    _again(says)
    grid, seen = rows_of(GRID), set(rows_of("grids/longbench").cell(OURS).by_example())
    cells = [name for name in grid.names if not name.startswith("infinipot 4096")]
    none = not any(grid.less(cell, base)[1] > 0 for cell in cells for base in _bases(cell))
    says("By all rows nothing is more than chance above InfiniPot on this half", holds=none)
    tasks = {cell: grid.less_by_task(cell, UNKNOWN)[1] > 0 for cell in cells if UNKNOWN in _bases(cell)}
    above = [cell for cell in cells if OURS in _bases(cell) and grid.less_by_task(cell, OURS)[1] > 0]
    words = "by the mean of tasks truncation is, where questions are unknown."
    says(words, holds=[cell for cell, more in tasks.items() if more] == ["truncate 4096"] and not above)
    many = [cell for cell in cells if len(set(grid.cell(cell).by_example()) - seen) >= 200]
    plain = [cell for cell in many if not cell.startswith("candidate")]
    known = {cell: grid.less(cell, OURS, seen) for cell in plain}
    apart = {cell for cell, found in known.items() if not chance(found)}
    words = "Of the recipes with 200 new rows or more only TOVA is told apart on them (barely),"
    says(words, holds=apart == {"tova 4096"} and -0.1 < known["tova 4096"][2] < 0)
    blind = [cell for cell in plain if not cell.endswith("by-task") and cell != "snapkv 4096"]
    level = all(chance(grid.less(cell, UNKNOWN, seen)) for cell in blind)
    says("with questions unknown none is.", holds=level)
    _few(says, seen)
    _without_small_tasks(says, plain)
    _parts(says, seen)
    _pots(says, seen)
    rows = grid.cell(UNKNOWN).rows
    words = "Recipes with {} rows are whole. `general-1` has {}, and what is missing is no random part."
    says(words, len(rows), _count("infinipot 4096 units=slots general-1"))
    step = "step=256 tail=fill"
    told = [
        _count(cell) for cell in ("infinipot 4096 units=slots unrelated", f"h2o 4096 {step}", "self-extend")
    ]
    words = "drawn by a hash, {} in all; H2O with four heavy hitters has {} of them, Self-Extend {}."
    says(words, *told)
    words = "StreamingLLM token by token has {} rows of short texts. But for `general-1` these have under ten"
    words += " rows of most tasks, so no headline hangs on them."
    few = [cell for cell in grid.names if _count(cell) < len(rows) and not cell.endswith("general-1")]
    says(words, _count("streaming-llm 4096 tail=fill"), holds=all(map(grid.sparse, few)))


def _again(says: partial[None]) -> None:
    """Rows of texts that fit the pot, which a later run of one cell answered otherwise (`level.py`)."""
    folder, ours = RESULTS / GRID, rows_of(GRID).cell(UNKNOWN).by_example()
    now = {row["example"]: row["prediction"] for row in rows_of(GRID).cell(UNKNOWN).rows}
    with lzma.open(folder / "again.jsonl.xz", "rt") as file:
        rows = [json.loads(line) for line in file]
    less = three(compared([(row["score"], ours[row["example"]]) for row in rows]))
    others = sum(row["prediction"] != now[row["example"]] for row in rows)
    words = "({} of {} were answered otherwise there, {:.1f} lower in the mean, {:.2f} to {:.1f};"
    says(words, others, len(rows), -less[0], -less[2], -less[1], holds=less[2] < 0)


def _choosing(says: partial[None]) -> None:
    """Sizes and novelty, as the page about choosing them has them."""
    grid, essays = rows_of(GRID), rows_of("report-half/essays-more")
    rows, every = {_count(one) for one in POTS}, [grid.less(one, OURS) for one in POTS]
    few = all(map(grid.sparse, POTS))
    words = "on {} rows of LongBench (`qwen2.5-coder-1.5b`, questions known, under ten rows of most tasks)"
    words += (
        " pots of 1,024, 2,048 and 8,192 are below one of 4,096 ({:.1f}, {:.1f} to {:.1f}; {:.1f}, {:.1f}"
    )
    words += " to {:.1f}; {:.1f}, {:.1f} to {:.1f}), the last mostly by five rows"
    told = [-number for less in every for number in less]
    says(words, *rows, *told, holds=few and all(less[2] < 0 for less in every))
    plain, ours = "cap-only 4096 general", "infinipot 4096 general"
    less = essays.less(plain, ours)
    words = (
        "with it unknown {} of {} keys in essays are found instead of {} ({:.1f} points, {:.1f} to {:.1f})."
    )
    found = *essays.right(plain), essays.right(ours)[0]
    says(words, *found, *(-one for one in less), holds=less[2] < 0)
    known = [
        rows_of(f"report-half/{name}").right("cap-only 4096 question")
        for name in ("essays", "passkey", "essays-more", "passkey-more")
    ]
    words = "and the question known no key is lost without novelty, in noise or in essays;"
    says(words, holds=all(right == count for right, count in known))
    less = grid.less("cap-only 4096 by-task", OURS)
    level = chance(grid.less("cap-only 4096 by-task", OURS, grid.of_few(OURS)))
    words = "questions known, {:.1f} points are lost without it ({:.1f} to {:.1f}) on all {} rows, and none"
    words += " that show without tasks of under ten rows"
    told = *(-one for one in less), len(grid.cell(OURS).rows)
    says(words, *told, holds=less[2] < 0 and level)


def _bases(cell: str) -> tuple[str, ...]:
    """What a cell may stand beside: the like, or both where it looks at no question."""
    if cell.endswith("by-task") or cell == "snapkv 4096":
        return (OURS,)
    return (UNKNOWN,) if cell.endswith(("general", '"')) else (OURS, UNKNOWN)


def _few(says: partial[None], seen: set[str]) -> None:
    """Recipes with few new rows."""
    grid, window = rows_of(GRID), "swa 4096 step=256 tail=fill"
    new = len(set(grid.cell(window).by_example()) - seen)
    below = all(grid.less(window, base, seen)[2] < 0 for base in (OURS, UNKNOWN))
    says("On {} new rows the sliding window is below either way.", new, holds=below)
    one, more = "streaming-llm 4096 tail=fill", "streaming-llm 4096 step=256 tail=fill"
    rows, less = grid.cell(one).rows, grid.less(one, more)
    words = (
        "StreamingLLM was run on {} rows of short texts, of which {} fit the pot: by rows it is {:.1f} above"
    )
    fit = [
        sum(row["cycles"] == 0 for row in grid.cell(name).rows)
        for name in (one, "tova-tokenwise 4096 tail=fill")
    ]
    words += " the usual step ({:.1f} below to {:.1f} above)."
    says(words, len(rows), fit[0], less[0], -less[1], less[2], holds=chance(less))
    few = len(grid.cell("tova-tokenwise 4096 tail=fill").rows) - fit[1]
    says("TOVA token by token has {} rows that do not fit,", few, holds=few < FEW)
    small = rows_of("steps-smollm2/longbench")
    each = ("streaming-llm 1024{} tail=fill", "tova-tokenwise 1024{} tail=fill")
    less = [small.less(cell.format(""), cell.format(" step=64")) for cell in each]
    rows = {len(small.cell(cell.format(" step=64")).rows) for cell in each}
    fit = sum(row["cycles"] == 0 for cell in each for row in small.cell(cell.format(" step=64")).rows)
    words = "on {} texts, none of which fits, token by token StreamingLLM has {:.1f} less ({:.1f} less to"
    words += " {:.1f} more)\n  and TOVA {:.1f} more ({:.1f} less to {:.1f} more); beside half the pot a step,"
    words += " as TOVA drops here, {:.1f} more ({:.1f} less to {:.1f} more)."
    less.append(small.less(each[1].format(""), "tova 1024"))
    told = -less[0][0], -less[0][1], less[0][2], *(f for one in less[1:] for f in (one[0], -one[1], one[2]))
    says(words, *rows, *told, holds=all(map(chance, less)) and not fit)


def _without_small_tasks(says: partial[None], many: list[str]) -> None:
    grid, known, unknown = rows_of(GRID), [], []
    small = grid.of_few(OURS)
    for cell in many:
        known += [(cell, grid.less(cell, OURS, small))] * (OURS in _bases(cell))
        unknown += [(cell, grid.less(cell, UNKNOWN, small))] * (UNKNOWN in _bases(cell))
    tasks = [scores for scores in grid.by_task(OURS).values() if len(scores) < FEW]
    says("*Six tasks of under ten rows, {} rows in all.*", len(small), holds=len(tasks) == 6)
    below = {cell for cell, less in known if less[2] < 0} == {"tova 4096"}
    above = any(less[1] > 0 for _, less in known)
    words = "Without them, of recipes with all rows, TOVA alone is below InfiniPot with questions known, and"
    says(f"{words} nothing is above.", holds=below and not above)
    apart = {cell: less for cell, less in unknown if not chance(less)}
    words = (
        "With questions unknown truncation is above it ({:.1f}, {:.1f} to {:.1f}) and the method as printed"
    )
    words += " below ({:.1f}, {:.1f} to {:.1f})."
    told = *apart["truncate 4096"], *(-number for number in apart[BLIND_PRINTED])
    says(words, *told, holds=apart.keys() == {"truncate 4096", BLIND_PRINTED} and apart[BLIND_PRINTED][2] < 0)
    pairs = ("tova 4096", OURS), ("truncate 4096", UNKNOWN), (BLIND_PRINTED, UNKNOWN)
    one = all(chance(grid.but_one(cell, base, small)[1]) for cell, base in pairs)
    says("With one row more left out none of these three is told apart.", holds=one)
    prompt = grid.less(SLOTS, OURS, small)
    words = "than the general prompt only without the small tasks, and barely ({:.1f}, {:.1f} to just under"
    words += " 0):"
    says(words, -prompt[0], -prompt[1], holds=-0.1 < prompt[2] < 0)


def _pots(says: partial[None], seen: set[str]) -> None:
    """Pots of other sizes."""
    grid, (*less_room, wide) = rows_of(GRID), POTS
    small = [grid.less(one, OURS) for one in less_room]
    words = "Pots of 1,024 and 2,048 are worse than one of 4,096 ({:.1f}, {:.1f} to {:.1f}; {:.1f}, {:.1f} to"
    told = [-number for less in small for number in less]
    says(f"{words} {{:.1f}}).", *told, holds=all(less[2] < 0 for less in small))
    less, ours, theirs = grid.less(wide, OURS), grid.cell(OURS).by_example(), grid.cell(wide).by_example()
    says("So is one of 8,192 by {:.1f} ({:.1f} to {:.1f}),", *(-n for n in less), holds=less[2] < 0)
    lost = {name for name, score in theirs.items() if score < ours[name] - 0.1}
    carried = lost <= grid.of_few(OURS) & seen and len(lost) == 5
    words = "five rows of the small tasks carry most of it, all among the {} rows that defaults were chosen"
    says(f"{words} on;", len(seen & set(ours)), holds=carried)
    rest = grid.less(wide, OURS, grid.of_few(OURS))
    says("without the small tasks {:.1f} are left ({:.1f} to {:.2f}).", *(-number for number in rest))
    pots = ((f"truncate {size}", f"infinipot {size} by-task") for size in (1024, 2048, 4096, 8192))
    level = all(chance(grid.less(*both)) for both in pots)
    says("At no capacity do these rows tell InfiniPot from truncation", holds=level)


def _parts(says: partial[None], seen: set[str]) -> None:
    """Which parts of the method pay."""
    grid, parts = rows_of(GRID), ("ccd 4096", "cap-only 4096 by-task", "nuc-only 4096")
    found = [grid.less(cell, OURS) for cell in parts]
    words = "without catalyst and novelty InfiniPot loses {:.1f} points ({:.1f} to {:.1f}), without"
    words += " novelty {:.1f} ({:.1f} to {:.1f}), without the catalyst {:.1f} ({:.1f} to {:.1f}),"
    words += " this last not without one row ({:.1f}, {:.1f} lower to {:.1f} higher)."
    pays = all(high < 0 for _, _, high in found)
    firm = [grid.but_one(cell, OURS)[1] for cell in parts]
    told = [-number for three in found for number in three] + [-firm[2][0], -firm[2][1], firm[2][2]]
    says(words, *told, holds=pays and [chance(one) for one in firm] == [False, False, True])
    new = len(set(grid.cell(OURS).by_example()) - seen)
    small = grid.of_few(OURS)
    level = all(chance(grid.less(cell, OURS, some)) for cell in parts for some in (seen, small))
    words = "By rows none of the three shows on the {} new ones, or without the small tasks."
    says(words, new, holds=level)
    rope = chance(grid.less("no-cr-rope 4096 by-task", OURS))
    texts = [row["tokens_read"] for row in grid.cell("full").rows]
    within = sum(read <= 32768 for read in texts), len(texts)
    words = (
        "CR-RoPE does not show on all rows of LongBench, of whose {} texts {} are within the model's window;"
    )
    says(words, *within[::-1], holds=rope)
    some, asked = grid.silent(OURS), len(grid.cell(OURS).rows) - len(grid.silent(OURS))
    less = grid.less("no-cr-rope 4096 by-task", OURS, some)
    words = "on the {} of question answering it does ({:.1f}, {:.1f} to {:.1f}), but not without the tasks of"
    words += " under ten rows ({:.1f}, {:.1f} lower to {:.1f} higher)."
    rest = grid.less("no-cr-rope 4096 by-task", OURS, {*some, *small})
    told = -rest[0], -rest[1], rest[2]
    says(words, asked, *(-number for number in less), *told, holds=less[2] < 0 and chance(rest))
    words = "Of LongBench's {} rows {} are of its question-answering tasks,"
    says(words, asked + len(some), asked)
    says("The other {} are read with the general prompt,", len(some))
    says("these tables have a column of the {} rows alone.", asked)
    first = "infinipot 4096 units=slots general-1"
    less, words = (
        grid.less(first, OURS),
        "The prompt `general-1` is below ({:.1f}, {:.1f} to {:.1f}, on its {}",
    )
    says(words, *(-one for one in less), len(grid.cell(first).rows), holds=less[2] < 0)
    prompts = ("infinipot 4096 units=slots unrelated", "infinipot 4096 units=slots padding")
    level = all(chance(grid.less(cell, OURS, some)) for cell in prompts for some in ((), small))
    words = "It does not show that the question is a better catalyst than the unrelated one or padding,"
    says(words, holds=level)


def _count(cell: str) -> int:
    return len(rows_of(GRID).cell(cell).rows)


def _tuned(says: Says) -> None:
    """One default changed at a time, on the half `tune`."""
    grid = rows_of("defaults-qwen2.5-coder-1.5b/longbench")
    raw, distilled, flat = (f"infinipot 4096 {one} {{}}" for one in ("tail=raw", "tail=distil", "pool=1"))
    usual, paper = "infinipot 4096 {}", "infinipot-paper 4096 {}"

    def less(cell: str, kind: str = "by-task") -> Three:
        told = "general" if cell == paper and kind != "by-task" else kind
        return grid.less(cell.format(told), usual.format(kind))

    kinds, adr = ("by-task", "units=slots general"), partial(says, ADR)
    level = all(chance(less(cell, kind)) for cell in (raw, distilled, flat) for kind in kinds)
    words = "neither pooling nor the filled end shows on LongBench when it is changed alone;"
    says("docs/results.md", words, holds=level)
    says(
        "docs/results.md",
        "as printed, they show with questions unknown.",
        holds=less(paper, kinds[1])[2] < 0,
    )
    says("docs/choosing.md", "On {} rows of LongBench neither setting shows", _tuned_rows(), holds=level)
    (mean, low, high), end = less(raw), less(distilled)
    adr("on {} rows of LongBench's half `tune`", _tuned_rows())
    adr("as it is scores {:.1f} less ({:.1f} less to {:.1f} more)", -mean, -low, high)
    words = "a distilled end {:.1f} more ({:.1f} less to {:.1f} more): neither is told apart,"
    adr(words, end[0], -end[1], end[2], holds=level)
    (mean, low, high), unknown = less(paper), less(paper, kinds[1])
    adr("not pooled besides, it is {:.1f} less ({:.1f} less to {:.1f} more),", -mean, -low, high)
    words = "and with questions unknown {:.1f} less ({:.1f} to {:.1f} less)."
    adr(words, *(-number for number in unknown), holds=unknown[2] < 0)
    known, unknown = less(flat), less(flat, kinds[1])
    words = "not pooled {:.1f} with questions known ({:.1f} lower to {:.1f} higher), {:.1f} lower with them"
    numbers = known[0], -known[1], known[2], -unknown[0], -unknown[1], unknown[2]
    pooled = partial(says, "docs/adr/0014-pooled-scores.md")
    pooled(f"{words} unknown ({{:.1f}} lower to {{:.1f}} higher).", *numbers)
    pooled("On LongBench's half `tune`, {} rows, pooling alone makes", _tuned_rows(), holds=level)


def _tuned_rows() -> int:
    return len(rows_of("defaults-qwen2.5-coder-1.5b/longbench").cell("infinipot 4096 tail=raw by-task").rows)


def _printed(says: Says) -> None:
    tune = rows_of("defaults-smollm2/longbench")
    found, ours = tune.less(PRINTED, OURS), tune.cell(OURS)
    both = set(ours.by_example()) & set(tune.cell(PRINTED).by_example())
    fit = sum(row["cycles"] == 0 for row in ours.rows if row["example"] in both)
    words = "{:.1f} points more ({:.1f} to {:.1f}) on the {} rows that both have, {} of which fit the pot"
    says(ADR, words, *found, len(both), fit, holds=chance(found))
    _printed_unknown(partial(says, ADR))
    mean, low, high = rows_of(GRID).less(PRINTED, OURS)
    words = "on {} rows of the half `report`, the method as printed is {:.1f} below ({:.1f} below"
    words += " to {:.1f} above)"
    says(ADR, words, len(rows_of(GRID).cell(OURS).rows), -mean, -low, high, holds=chance((mean, low, high)))


def _printed_unknown(says: partial[None]) -> None:
    grid, printed = rows_of(GRID), BLIND_PRINTED
    seen = set(rows_of("grids/longbench").cell(OURS).by_example())
    mean, low, high = grid.less(printed, SLOTS)
    chosen = len(seen & set(grid.cell(SLOTS).by_example()))
    words = (
        "With questions unknown it is {:.1f} below single slots, the default then ({:.1f} to {:.1f} below),"
    )
    says(f"{words} which {{}} rows of the choice", -mean, -low, -high, chosen, holds=high < 0)
    mean, low, high = grid.less(printed, SLOTS, seen)
    words = "on the others {:.1f} below ({:.1f} below to {:.1f} above)."
    says(words, -mean, -low, high, holds=low < 0 < high)
    mean, low, high = grid.less(printed, UNKNOWN)
    words = "From today's default it is not told apart ({:.1f} below, {:.1f} below to {:.1f} above)."
    says(words, -mean, -low, high, holds=low < 0 < high)
