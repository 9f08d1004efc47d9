"""What docs/recall.md and ADR 17 say of today's recall: rows of `benchmarks/ways.py` and `judging.py`."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from functools import cache, partial
from statistics import fmean, median
from typing import Any

from claims.checks import Says
from claims.raw import RESULTS, Three, chance, rows_of, three
from infinipot.eval.estimates import bootstrapped, estimate

CELL, BY_ROWS = "{:.1f} ({:.0f} to {:.0f})", "{:.1f} ({:.1f} to {:.1f})"
AGAIN = "infinipot 4096 recall=all general"
WAYS = {
    "pure pot": "pure.pot",
    "pot with recall": "words.pot",
    "pot with recall, `--judge 32`": "judged.pot",
    "passages alone": "words.alone",
    "passages alone, `--judge 32`": "judged.alone",
}
HALVES = {"LoCoMo": "locomo", "LongBench": "longbench", "facts in 1M": "facts"}
Row = dict[str, Any]


class Asked:
    """Questions, and what each way answers."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows, self.count = rows, len(rows)

    def __add__(self, other: Asked) -> Asked:
        return Asked(self.rows + other.rows)

    def some(self, chosen: Callable[[Row], Any]) -> Asked:
        return Asked([*filter(chosen, self.rows)])

    def mean(self, way: str) -> Three:
        return three(estimate([score(row, way) for row in self.rows]))

    def right(self, way: str) -> int:
        return sum(score(row, way) == 1 for row in self.rows)

    def more(self, way: str, other: str) -> Three:
        return three(bootstrapped([score(row, way) - score(row, other) for row in self.rows]))

    def above(self, way: str, others: Mapping[str, float]) -> Three:
        return three(bootstrapped([score(row, way) - others[row["example"]] for row in self.rows]))


LIKELIER = "likelier"  # of two answers, by the mean of their tokens' logarithms: the pot's if it is by 0.1
CARD = "card"  # the default on a card: judged where words find little, without the pot where one says it
CARD_ALONE = "card.alone"  # the same passages without the pot


def score(row: Row, way: str) -> float:
    """Return the score of a way, or of one that chooses between others."""
    if way == LIKELIER:
        pot, alone = ((row["ways"][f"judged.{end}"]["likely"] or [-9, -9])[1] for end in ("pot", "alone"))
        way = "judged.pot" if pot > alone + 0.1 else "judged.alone"
    elif way == CARD:
        says, (found, telling) = max(row["judged"], default=-1.0), row["coverage"]
        sure = "judged.alone" if says >= 0 and found > 0 and telling >= 3 else "judged.pot"
        way = sure if doubtful(row) else "words.pot"
    elif way == CARD_ALONE:
        way = "judged.alone" if doubtful(row) else "words.alone"
    return float(row["ways"][way]["score"])


@cache
def asked(kind: str, begins: str) -> Asked:
    with lzma.open(RESULTS / "recall" / f"{kind}.jsonl.xz", "rt") as file:
        return Asked([row for line in file if (row := json.loads(line))["text"].startswith(begins)])


def claimed(says: Says) -> None:
    page, adr = partial(says, "docs/recall.md"), partial(says, "docs/adr/0017-recall.md")
    _means(page)
    _longbench(page)
    _halves(page)
    _meant(page)
    _other_words(page, adr)
    _essays(page)
    _chosen(adr)


def _means(says: partial[None]) -> None:
    facts, talks = asked("ways", "facts-report-1m"), asked("ways", "locomo-report")
    ways, line = ("pure.pot", "words.alone", "words.pot"), f"| {CELL} | {CELL} | {CELL} |"
    means = [[number for way in ways for number in some.mean(way)] for some in (facts, talks)]
    alone = rows_of("recall/facts-alone").mean("full")[0]
    says(f"| facts in 1M, today's passages {line} {{:.1f}} |", *means[0], alone)
    words = f"| LoCoMo, today's passages, {{}} questions of categories 1 to 4, F1 {line} |"
    says(words, talks.count, *means[1])
    more = [some.more("words.pot", "pure.pot") for some in (facts, talks)]
    says("{:.1f} at 1M ({:.1f} to {:.1f});", *more[0], holds=more[0][1] > 0)
    says("on LoCoMo {:.1f} more ({:.1f} to {:.1f}).", *more[1], holds=more[1][1] > 0)
    whole = rows_of("recall/locomo-full").cell("full").by_example()
    both = talks.some(lambda row: row["example"] in whole)
    there = three(estimate([whole[row["example"]] for row in both.rows]))
    says(f"The whole cache has {CELL} on the {{}} of these", *there, both.count)
    more_ = both.above("words.pot", whole)
    says("has {:.1f} more ({:.1f} to {:.1f}).", *more_, holds=more_[1] > 0)


def _longbench(says: partial[None]) -> None:
    known = rows_of("recall/longbench-known").cell("infinipot 4096 question").by_example()
    some = asked("ways", "longbench-report")
    says("question answering, {} rows longer than the pot |", some.count)
    says("of LongBench {} of {} rows.", some.count, len(known))
    there = three(estimate([known[row["example"]] for row in some.rows]))
    says(f"| question known while reading | {CELL} | |", *there)
    less = {way: some.above(way, known) for way in WAYS.values()}
    for label, way in WAYS.items():
        says(f"| {label} | {CELL} | {BY_ROWS} |", *some.mean(way), *less[way])
    words = "recall by words is not told apart from a question known while reading; the pure pot is lower."
    says(words, holds=chance(less["words.pot"]) and less["pure.pot"][2] < 0)


def _halves(says: partial[None]) -> None:
    """The two comparisons, on both halves, set by set."""
    none = list[bool]()
    for first, ways in (
        ("`--judge 32` above words, beside the pot:", ("judged.pot", "words.pot")),
        ("passages alone above pot with recall, by words:", ("words.alone", "words.pot")),
    ):
        for label, name in HALVES.items():
            sets = [one for half in ("tune", "report") if (one := asked("ways", f"{name}-{half}")).count]
            told = [number for one in sets for number in (*one.more(*ways), one.count)]
            cells = " | ".join([f"{BY_ROWS}, {{}}"] * len(sets))
            cells = cells if len(sets) > 1 else f"not asked | {cells}"
            says(f"| {first} {label} | {cells} |", *told)
            none += [chance(one.more(*ways)) for one in sets if ways[0] == "words.alone"]
    says("see the table above: none excludes 0.", holds=all(none))
    both = asked("ways", "locomo-tune") + asked("ways", "longbench-tune")
    mean, low, high = both.more("judged.pot", "words.pot")
    words = "it is {:.1f} above words ({:.1f} lower to {:.1f} higher), which may be chance"
    says(words, mean, -low, high, holds=low < 0 < high)
    talks = asked("ways", "locomo-report")
    more = talks.more("judged.pot", "words.pot")
    says(f"it has {CELL}, and that difference is more than", *talks.mean("judged.pot"), holds=more[1] > 0)


def _meant(says: partial[None]) -> None:
    facts = asked("ways", "facts-report-1m")
    few = facts.some(doubtful)
    tokens = [fmean(row["recalled"][way] for row in few.rows) for way in ("meant", "words")]
    says("{} of the {} in 1M go by meaning,", few.count, facts.count)
    says("with {:.0f} tokens read again instead of {:.0f},", *tokens)
    same = facts.right("meant.pot"), facts.right("words.pot")
    says("as many of the {} are answered, {}:", facts.count, same[0], holds=same[0] == same[1])
    mean, low, high = facts.more("meant.pot", "words.pot")
    says("{:.1f} points more ({:.1f} fewer to {:.1f} more).", mean, -low, high)


def doubtful(row: Row) -> bool:
    """Say whether a question is looked up by meaning, as `reading/recalled.py` does."""
    found, telling = row["coverage"]
    return bool(telling) and (2 * found <= telling or found < 3)


def _other_words(page: partial[None], adr: partial[None]) -> None:
    report = asked("judging", "paraphrase-report")
    words = "the {} at 128K were asked anew: {} of {} with the extra, {} by words."
    all_ = all(map(doubtful, report.rows))
    right = report.right("near48.pot")
    page(words, report.count, right, report.count, report.right("words.pot"), holds=all_)
    found = report.some(lambda row: any(row["place"][at] < 48 for at in row["right"]))
    page("The right sentence was among those that were judged for {}.", found.count)
    others = asked("judging", "paraphrase-tune") + asked("judging", "statements")
    counts = [others.right(way) for way in ("near160.pot", "near48.pot")]
    words = "Of {} questions to choose on, the nearest 160 answer {} and the nearest 48 {}:"
    adr(words, others.count, *counts)
    mean, low, high = others.more("near160.pot", "near48.pot")
    adr("{:.1f} more ({:.1f} fewer to {:.1f} more), so it stayed so.", mean, -low, high, holds=low < 0)
    more = others.more("near48.alone", "near48.pot")
    adr("Without the pot the nearest 48 answer {},", others.right("near48.alone"))
    adr("{:.1f} more ({:.1f} to {:.1f}), but of the", *more, holds=more[1] > 0)
    adr("but of the {} to report {} instead of {}", report.count, report.right("near48.alone"), right)


def _essays(says: partial[None]) -> None:
    keys = asked("ways", "essays-all-1m")
    told = keys.right("words.pot"), keys.count, keys.right("pure.pot")
    says("at 1M: {} of {} by words, {} by the pure pot.", *told)
    again = rows_of("recall/again-1m")
    took = median(row["seconds"]["answer"] for row in again.cell(AGAIN).rows)
    says("at 1M {} of {}, in {:.0f} s each (median", *again.right(AGAIN), took)


def _chosen(adr: partial[None]) -> None:
    """What was tried to choose a default, and was not taken."""
    tune = asked("ways", "locomo-tune") + asked("ways", "longbench-tune")
    report = sum((asked("ways", f"{name}-report") for name in HALVES.values()), Asked([]))
    adr("on {} questions of LoCoMo and LongBench to choose on,", tune.count)
    for way, words in (
        ("judged.pot", "judged passages are {:.1f} above words ({:.1f} lower to {:.1f} higher),"),
        ("words.alone", "passages alone {:.1f} above the pot with them ({:.1f} lower to {:.1f} higher):"),
    ):
        mean, low, high = tune.more(way, "words.pot")
        adr(words, mean, -low, high, holds=low < 0 < high)
    adr("is {:.1f} above words beside the pot there ({:.1f} to {:.1f}),", *tune.more(LIKELIER, "words.pot"))
    more = report.more(LIKELIER, "words.pot")
    adr("and {:.1f} ({:.1f} to {:.1f}) on {} questions to report,", *more, report.count, holds=more[1] > 0)
    mean, low, high = report.more(LIKELIER, "judged.pot")
    adr("where it is {:.1f} above judged passages beside the pot ({:.1f} lower to {:.1f}", mean, -low, high)
    with lzma.open(RESULTS / "recall" / "judging-tune.jsonl.xz", "rt") as file:
        older = [row["scores"] for line in file if (row := json.loads(line))["set"] == "facts"]
    less = three(bootstrapped([row["alone.words"] - row["pot.words"] for row in older]))
    told = -less[0], -less[2], -less[1], len(older)
    adr("passages alone had {:.1f} less ({:.1f} to {:.1f}) on {} facts", *told, holds=less[2] < 0)
