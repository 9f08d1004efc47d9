"""What docs/results.md and ADR 15 say of the same recipes with other models."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of
from infinipot.eval.estimates import FEW

PAGE = "docs/results.md"
ADR = "docs/adr/0015-what-fits-where-a-text-ends.md"
KNOWN, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 general"
OTHERS = ("truncate 4096", "full")
KINDS = ("by-task", "units=slots general")
STREAMING = "streaming-llm 4096 step=256 tail=fill"


def claimed(says: Says) -> None:
    texts, page, adr = rows_of("report-half-smollm2/longbench"), partial(says, PAGE), partial(says, ADR)
    rows = len(texts.cell(KNOWN).rows)
    known, unknown = (texts.less(_printed(name), f"infinipot 4096 {name}") for name in KINDS)
    words = "on the same {} rows, InfiniPot has {:.1f} ({:.1f} to {:.1f}) with questions known;"
    page(words, rows, *texts.mean(KNOWN))
    level = all(chance(texts.less(cell, base)) for cell in OTHERS for base in (KNOWN, UNKNOWN))
    words = "as printed ({:.1f} below to {:.1f} above), truncation and the whole cache are not told apart"
    page(words, -known[1], known[2], holds=level and chance(known) and chance(unknown))
    words = "on all {} rows of that half, it is {:.1f} above ({:.1f} below to {:.1f} above),"
    adr(words, rows, known[0], -known[1], known[2], holds=chance(known))
    words = "and with questions unknown {:.1f} above ({:.1f} below to {:.1f} above): not told apart"
    adr(words, unknown[0], -unknown[1], unknown[2], holds=chance(unknown))
    says(
        "README.md",
        "With `smollm2` none of this table's recipes is told apart from InfiniPot on LongBench.",
        holds=_none(),
    )
    _keys(page, adr)
    found = rows_of("report-half-smollm2/essays-short").right("infinipot 4096 question")
    says("docs/index.md", "In essays of 4K to 32K tokens it finds {} of {} keys", *found)
    few = rows_of("report-half-gemma-3-270m/longbench")
    both = [("truncate 4096", KNOWN), ("truncate 4096", UNKNOWN)]
    both += [(_printed(name), f"infinipot 4096 {name}") for name in (*KINDS, "general")]
    level = all(chance(few.less(*pair)) for pair in both)
    level = level and all(len(scores) < FEW for scores in few.by_task(KNOWN).values())
    page("has few rows of LongBench, under ten a task, and they tell nothing apart.", holds=level)
    _gemma(page)


def _printed(kind: str) -> str:
    return f"infinipot-paper 4096 {kind.removeprefix('units=slots ')}"


def _gemma(page: partial[None]) -> None:
    noise, essays = (rows_of(f"report-half-gemma-3-270m/{name}-short") for name in ("passkey", "essays"))
    ours, blind, cut = "infinipot 4096 question", "infinipot 4096 general", "truncate 4096"
    right, count = noise.right(ours)
    below = noise.less(cut, ours)[2] < 0 and chance(noise.less("full", ours))
    words = "Of {} keys in noise InfiniPot finds all, known or not, truncation {}, which is told apart,"
    every = right == count == noise.right(blind)[0]
    found = noise.right(cut)[0], noise.right("full")[0]
    page(f"{words} the whole cache {{}}, which is not;", count, *found, holds=below and every)
    printed = "infinipot-paper 4096 question"
    told = [essays.right(cell)[0] for cell in (ours, printed, "full")]
    words = "with questions known, the method as printed {}, which is told apart, the whole cache {}, which"
    level = chance(essays.less("full", ours)) and essays.less(printed, ours)[2] < 0
    page(f"in essays {{}} {words} is not.", *told, holds=level)
    words = "it finds {} there, and slot by slot {}, which is told apart; the whole cache and truncation ({})"
    slots = f"infinipot 4096 {KINDS[1]}"
    told = [essays.right(cell)[0] for cell in (blind, slots, cut)]
    level = all(chance(essays.less(cell, blind)) for cell in OTHERS)
    page(f"{words} are not.", *told, holds=level and essays.less(slots, blind)[2] < 0)


def _none() -> bool:
    """Say whether no recipe of README's table is told apart from ours with `smollm2`."""
    texts, blind = rows_of("report-half-smollm2/longbench"), (*OTHERS, "tova 4096", STREAMING)
    pairs = [(cell, base) for cell in blind for base in (KNOWN, UNKNOWN)]
    pairs += [(_printed(name), f"infinipot 4096 {name}") for name in (*KINDS, "general")]
    return all(chance(texts.less(*pair)) for pair in pairs)


def _keys(page: partial[None], adr: partial[None]) -> None:
    noise, essays = (rows_of(f"report-half-smollm2/{name}-short") for name in ("passkey", "essays"))
    ours, printed = "infinipot 4096 question", "infinipot-paper 4096 question"
    (right, count), (whole, _), (cut, _) = map(noise.right, (ours, "full", "truncate 4096"))
    page("Of {} keys in noise InfiniPot finds {}, the whole cache {}", count, right, whole)
    below = all(noise.less(cell, ours)[2] < 0 for cell in OTHERS)
    page("and truncation {}, both more than chance below;", cut, holds=below)
    told = [essays.right(cell)[0] for cell in (ours, "truncate 4096", printed)]
    apart = essays.less(printed, ours)[2] < 0 and all(chance(essays.less(cell, ours)) for cell in OTHERS)
    page("in essays {}, truncation {}, the method as printed {}: there only the last", *told, holds=apart)
    lost = {
        (row["facts"]["length"], row["facts"]["depth"])
        for row in essays.cell(ours).rows
        if row["score"] > essays.cell(printed).by_example()[row["example"]]
    }
    places = {(row["facts"]["length"], row["facts"]["depth"]) for row in essays.cell(ours).rows}
    words = "it also finds\n{} keys of {} in essays where ours finds {}; the five lie at four of {} places,"
    words += " so this alone"
    five = told[0] - told[2] == 5 and len(lost) == 4
    adr(words, told[2], essays.right(ours)[1], told[0], len(places), holds=apart and five)
