"""What docs/recall.md and ADR 17 say of today's recall: rows of `benchmarks/ways.py` and `judging.py`."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from functools import cache, partial
from statistics import median
from typing import Any

import torch

import weights
from claims.checks import Says
from claims.raw import RESULTS, Three, chance, rows_of, three
from infinipot.eval.estimates import compared, estimate
from infinipot.models.catalog import SENTENCES

CELL, BY_ROWS = "{:.1f} ({:.0f} to {:.0f})", "{:.1f} ({:.1f} to {:.1f})"
AGAIN = "infinipot 4096 recall=all units=slots general"
HALVES = {"LoCoMo": "locomo", "LongBench": "longbench", "facts": "facts"}
COLUMNS = ("pure.pot", "words.alone", "words.pot")
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
        return three(compared([(score(row, way), score(row, other)) for row in self.rows]))

    def above(self, way: str, others: Mapping[str, float]) -> Three:
        return three(compared([(score(row, way), others[row["example"]]) for row in self.rows]))


LIKELIER = "likelier"  # of two answers, by the mean of their tokens' logarithms: the pot's if it is by 0.1
ASKED = "asked.pot"  # the default on a card, asked itself
CARD = "card"  # the same by its rule from rows of all ways, which it was chosen on
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
    found = Asked([row for row in _rows(kind) if row["text"].startswith(begins)])
    if kind == "ways":
        own = {(row["text"], row["example"]): row["ways"] for row in _rows("asked")}
        for row in found.rows:
            row["ways"] |= own.get((row["text"], row["example"]), {})
    return found


@cache
def _rows(kind: str) -> list[Row]:
    with lzma.open(RESULTS / "recall" / f"{kind}.jsonl.xz", "rt") as file:
        return [*map(json.loads, file)]


def claimed(says: Says) -> None:
    page, adr = partial(says, "docs/recall.md"), partial(says, "docs/adr/0017-recall.md")
    _means(page)
    _halves(page)
    _others(page, partial(says, "docs/index.md"))
    _other_words(page, adr)
    _again(page)
    _chosen(adr)


def _means(says: partial[None]) -> None:
    alone, ways = rows_of("recall/facts-alone").mean("full"), (*COLUMNS, ASKED)
    lines = {
        "questions about facts in 16K tokens, {} in five texts": "facts-report-16k",
        "{} in 128K, two texts": "facts-report-128k",
        "{} in 1M, two texts": "facts-report-1m",
        "LoCoMo, {} questions of categories 1 to 4": "locomo-report",
        "LongBench's question answering, {} rows longer than the pot": "longbench-report",
        "pass keys in essays of 4K to 1M, {} keys": "essays-all",
    }
    for label, name in lines.items():
        some = asked("ways", name)
        count = [some.count] if "{}" in label else []
        means = [number for way in ways for number in some.mean(way)]
        says(f"| {label} {f'| {CELL} ' * len(ways)}|", *count, *means)
    sizes = [asked("ways", f"facts-report-{size}") for size in ("16k", "128k", "1m")]
    says(f"is answered in {CELL} of {{}} cases:", *alone, sizes[0].count)
    shares = [100 * one.mean(ASKED)[0] / alone[0] for one in sizes]
    beside = [one.right(ASKED) - round(alone[0] * one.count / 100) for one in sizes]
    words = "has {:.1f}%, {:.1f}% and {:.1f}% of that: one right answer fewer, as many and two more,"
    says(words, *shares, holds=min(shares) >= 90 and beside == [-1, 0, 2])
    words = (asked("ways", "locomo-report") + asked("ways", "facts-report")).some(
        lambda one: not doubtful(one)
    )
    other = words.some(lambda one: score(one, ASKED) != score(one, "words.pot"))
    says("both ways leave {} questions to words, and of these {} have", words.count, other.count)
    known = _known()
    some = asked("ways", "longbench-report")
    there = three(estimate([known[row["example"]] for row in some.rows]))
    says(f"LongBench's {{}} rows have {CELL}.", some.count, *there)


def _known() -> dict[str, float]:
    return rows_of("recall/longbench-known").cell("infinipot 4096 question").by_example()


def _halves(says: partial[None]) -> None:
    """The default of a card against three others, on both halves, set by set."""
    others = {"by words": "words.pot", "passages alone by words": "words.alone"}
    others["the same passages alone"] = CARD_ALONE
    for first, other in others.items():
        for label, name in HALVES.items():
            sets = [asked("ways", f"{name}-{half}") for half in ("tune", "report")]
            told = [number for one in sets for number in (*one.more(ASKED, other), one.count)]
            says(f"| on a card above {first}: {label} | {BY_ROWS}, {{}} | {BY_ROWS}, {{}} |", *told)
    plain = "words.pot", "words.alone"
    for label, name in HALVES.items():
        sets = [asked("ways", f"{name}-{half}") for half in ("tune", "report")]
        told = [number for one in sets for number in (*one.more(*plain), one.count)]
        words = f"| by words above passages alone by words: {label} | {BY_ROWS}, {{}} | {BY_ROWS}, {{}} |"
        says(words, *told)
    pairs = (plain, (ASKED, CARD_ALONE))
    report = [asked("ways", f"{name}-report").more(*both) for name in HALVES.values() for both in pairs]
    words = "beside the same passages alone no difference excludes 0, on a card or by words."
    says(words, holds=all(map(chance, report)))
    less = asked("ways", "locomo-tune").more(*plain)
    words = "below passages alone on LoCoMo ({:.1f}, {:.1f} to {:.1f})."
    says(words, *(-one for one in less), holds=less[2] < 0)
    talks = asked("ways", "locomo-report")
    words = "above passages by words alone, but not above the same judged passages without a pot:"
    says(words, holds=talks.more(ASKED, "words.alone")[1] > 0 > talks.more(ASKED, CARD_ALONE)[1])


def _others(says: partial[None], index: partial[None]) -> None:
    """Against the pure pot, a question known while reading, and the whole cache."""
    for words, name in (
        ("by words {:.1f} points more at 16K ({:.1f} to {:.1f}),", "facts-report-16k"),
        ("{:.1f} at 128K ({:.1f} to {:.1f}),", "facts-report-128k"),
        ("{:.1f} at 1M ({:.1f} to {:.1f});", "facts-report-1m"),
        ("{:.1f} more ({:.1f} to {:.1f}), on a card", "locomo-report"),
    ):
        more = asked("ways", name).more("words.pot", "pure.pot")
        says(words, *more, holds=more[1] > 0)
    talks, rows, known = asked("ways", "locomo-report"), asked("ways", "longbench-report"), _known()
    more = talks.more(ASKED, "pure.pot")
    says("on a card {:.1f} ({:.1f} to {:.1f}).", *more, holds=more[1] > 0)
    for words, way in (("by words", "words.pot"), ("on a card", ASKED)):
        mean, low, high = rows.above(way, known)
        side = "lower" if mean < 0 else "higher"
        told = f"{words} {{:.1f}} {side} ({{:.1f}} lower to {{:.1f}} higher)"
        says(told, abs(mean), -low, high, holds=low < 0 < high)
    whole = rows_of("recall/locomo-full").cell("full").by_example()
    both = talks.some(lambda row: row["example"] in whole)
    there = three(estimate([whole[row["example"]] for row in both.rows]))
    says(f"The whole cache has {CELL} on the {{}} of these", *there, both.count)
    more = both.above("words.pot", whole)
    says("has {:.1f} more by words ({:.1f} to {:.1f}),", *more, holds=more[1] > 0)
    passages, bare = both.above("words.alone", whole), both.above("pure.pot", whole)
    words = "on {} questions about LoCoMo's talks, which fit, passages without a pot are above the whole"
    words += (
        " cache ({:.1f} points, {:.1f} to {:.1f}), the pot with recall is too ({:.1f} points by words, {:.1f}"
    )
    words += " to {:.1f}), and the pot alone is below it ({:.1f}, {:.1f} to {:.1f};"
    sure = passages[1] > 0 and more[1] > 0 and bare[2] < 0
    index(words, both.count, *passages, *more, *(-one for one in bare), holds=sure)
    says("Passages alone have {:.1f} more ({:.1f} to {:.1f}) and the pot", *passages)
    says("alone {:.1f} less ({:.1f} to {:.1f}).", *(-one for one in bare))
    firsts = {row["text"]: sum(one["text"] == row["text"] for one in both.rows) for row in both.rows}
    says("(the first {} of each talk, or all)", max(firsts.values()))
    more = both.above(ASKED, whole)
    says("{:.1f} on a card ({:.1f} to {:.1f}).", *more, holds=more[1] > 0)


def doubtful(row: Row) -> bool:
    """Say whether a question is looked up by meaning, as `reading/recalled.py` does."""
    found, telling = row["coverage"]
    return bool(telling) and (2 * found <= telling or found < 3)


def _other_words(page: partial[None], adr: partial[None]) -> None:
    report, words = asked("asked", "paraphrase-report"), asked("judging-weights", "paraphrase-report")
    sizes = [asked("asked", f"paraphrase-report-{size}") for size in ("16k", "128k")]
    right, by_size = report.right(ASKED), [n for one in sizes for n in (one.right(ASKED), one.count)]
    for says, about in ((page, "a download of {:.0f} MB out of"), (adr, "is a download of {:.0f} MB and")):
        says(about, SENTENCES.size / 1e6)
    page(
        "each in 16K and in 128K tokens, {} questions in all. By words {} are answered,",
        report.count,
        words.right("words.pot"),
    )
    page("{} with the model of sentences ({} of {} at 16K, {} of {} at 128K):", right, *by_size)
    mean = report.mean(ASKED)
    page(f"128K): {CELL}, by rows", *mean)
    both = [(row["text"], row["example"]) for row in words.rows]
    own = {(row["text"], row["example"]): score(row, ASKED) for row in report.rows}
    less = [(own[name], score(row, "words.pot")) for name, row in zip(both, words.rows, strict=True)]
    more = three(compared(less))
    page("{:.1f} more ({:.1f} to {:.1f}). The aim was 60%:", *more, holds=mean[0] >= 60 and more[1] > 0)
    page("the mean reaches it, but the interval begins at {:.0f}.", mean[1])
    told = report.count, words.right("words.pot"), right
    adr("of {} statements in other words {} are found by words and {} with the model of sentences:", *told)
    page("that were found for {} of the {}.", *_found("report", "one"))
    page("The right statement alone has {} of {}.", *rows_of("recall/paraphrase-alone").right("full"))
    tune = asked("asked", "paraphrase-tune") + asked("asked", "statements")
    page(
        "Of the {} questions to choose on, which judgements were weighed by, {} are answered.",
        tune.count,
        tune.right(ASKED),
    )
    _where_words_find_little(page)
    _weighed(adr, tune, report)
    _judgements(adr)
    before = asked("judging-sizes", "paraphrase-report")
    others = asked("judging-sizes", "paraphrase-tune") + asked("judging-sizes", "statements")
    counts = [others.right(way) for way in ("near160.pot", "near48.pot")]
    words = "Of {} questions to choose on, the nearest 160 answer {} and the nearest 48 {}:"
    adr(words, others.count, *counts)
    mean, low, high = others.more("near160.pot", "near48.pot")
    adr("{:.1f} more ({:.1f} fewer to {:.1f} more), so it stayed so.", mean, -low, high, holds=low < 0)
    more = others.more("near48.alone", "near48.pot")
    adr("Without the pot the nearest 48 answer {},", others.right("near48.alone"))
    adr("{:.1f} more ({:.1f} to {:.1f}), but of the", *more, holds=more[1] > 0)
    told = before.count, before.right("near48.alone"), before.right("near48.pot")
    adr("but of the {} to report {} instead of {}", *told)


def _found(part: str, found: str) -> tuple[int, int]:
    """For how many questions the right sentence was found, and of how many."""
    lists = [weights.judged(row, found) for row in weights.rows(part)]
    return sum(bool(right.any()) for _, right in lists), len(lists)


def _where_words_find_little(page: partial[None]) -> None:
    """What the model of sentences does to questions that it was not pulled for."""

    def less(name: str, half: str) -> Three:
        before = {(row["text"], row["example"]): score(row, ASKED) for row in asked("asked-slots", name).rows}
        rows = asked("asked-meaning", f"{name}-{half}").rows
        return three(compared([(score(row, ASKED), before[row["text"], row["example"]]) for row in rows]))

    talks, texts, facts = (less(name, "report") for name in HALVES.values())
    told = [abs(number) for one in (talks, texts, facts) for number in one]
    words = "LoCoMo had {:.1f} less ({:.1f} less to {:.1f}\n  more), "
    words += "LongBench {:.1f} less ({:.1f} less to {:.1f} more),"
    words += " facts in 16K and 128K {:.1f} less ({:.1f} less to {:.1f} more): none is told apart."
    page(words, *told, holds=all(map(chance, (talks, texts, facts))))
    alone = rows_of("recall/facts-alone").mean("full")[0]
    sizes = [asked("asked-meaning", f"facts-report-{size}").mean(ASKED)[0] for size in ("16k", "128k")]
    page("These facts had {:.1f}% and {:.1f}% of the fact alone;", *(100 * one / alone for one in sizes))
    tune = [less(name, "tune") for name in HALVES.values()]
    words = "on the halves to choose on {:.1f}, {:.1f} and {:.1f} less, none told apart."
    page(words, *(-one[0] for one in tune), holds=all(map(chance, tune)))


def _weighed(adr: partial[None], tune: Asked, report: Asked) -> None:
    """Two models of sentences, and judgements alike or weighed (`benchmarks/weights.py`)."""
    alike = asked("judging-weights", "paraphrase-tune") + asked("judging-weights", "statements")
    found, ways = {name: _found("tune", name) for name in ("one", "two", "beside")}, range(len(weights.WAYS))
    words = "of {} questions to choose on the right sentence is among the nearest 48 for {} and {}."
    adr(words, found["one"][1], found["one"][0], found["beside"][0])
    counts = [alike.right(f"{way}.pot") for way in ("one", "beside")]
    adr("answers hardly differ, {} and {}:", *counts)
    even, every = torch.ones(len(weights.WAYS), dtype=torch.float64), tuple(ways)
    taken = torch.tensor(weights.ROUNDED, dtype=torch.float64)

    def lists(part: str, name: str) -> weights.Lists:
        return [weights.judged(row, name) for row in weights.rows(part)]

    def without(name: str) -> int:
        return weights.left_out(name, weights.TAKEN)

    alone = [weights.surest(lists("tune", name), every, even) for name in ("one", "beside")]
    words = "the right one is the surest for {} of the {}, with all six alike\n  for {}; "
    words += "for the smaller model's {} and {}."
    adr(words, without("one"), found["one"][1], alone[0], without("beside"), alone[1])
    words = "finds {} of the {} and makes the right one the surest for {},"
    adr(words, *found["two"], without("two"))
    told = _found("report", "one")[0], weights.surest(lists("report", "one"), weights.TAKEN, taken)
    words = (
        "Of the {} to report the right sentence is found for {} and the surest for {}, with all alike for {}."
    )
    adr(words, report.count, *told, weights.surest(lists("report", "one"), every, even))
    counts = tune.right(ASKED), tune.count, report.right(ASKED), report.count
    adr("{} of the {} are answered, and {} of the {}. They", *counts)


def _judgements(adr: partial[None]) -> None:
    """Six judgements of the best sentences against two, before they were weighed."""
    report = asked("judging-six", "paraphrase-report")
    others = asked("judging-six", "paraphrase-tune") + asked("judging-six", "statements")
    counts = [others.right(f"{way}48.pot") for way in ("six", "two")]
    adr("of {} questions to choose on, six judgements answer {} and two {}:", others.count, *counts)
    more = others.more("six48.pot", "two48.pot")
    adr("{:.1f} more ({:.1f} to {:.1f}), so six were taken.", *more, holds=more[1] > 0)
    counts = [report.right(f"{way}48.pot") for way in ("six", "two")]
    adr("Of the {} to report they answer {} and {}", report.count, *counts)
    before = asked("judging-sizes", "paraphrase-report").right("near48.pot")
    adr("in the run before, by other kernels, two judgements answered {} of them", before)


def _again(says: partial[None]) -> None:
    again = rows_of("recall/again-1m")
    took = median(row["seconds"]["answer"] for row in again.cell(AGAIN).rows)
    says("at 1M {} of {}, in {:.0f} s each (median", *again.right(AGAIN), took)


def _chosen(adr: partial[None]) -> None:
    """What was tried to choose a default, and was not taken."""
    tune, report = (
        sum((asked("ways-slots", f"{name}-{half}") for name in HALVES.values()), Asked([]))
        for half in ("tune", "report")
    )
    adr("on {} questions of LoCoMo, LongBench and facts to choose on,", tune.count)
    more = tune.more(CARD, "words.pot")
    adr("{:.1f} above words ({:.1f} to {:.1f})", *more, holds=more[1] > 0)
    for way, words in (
        ("judged.pot", "judged passages beside the pot {:.1f} above ({:.1f} lower to {:.1f} higher),"),
        ("judged.alone", "without it {:.1f} ({:.1f} lower to {:.1f} higher),"),
        ("words.alone", "passages by words alone {:.1f} ({:.1f} lower to {:.1f} higher),"),
        (LIKELIER, "the likelier of two answers {:.1f} ({:.1f} lower to {:.1f} higher):"),
    ):
        mean, low, high = tune.more(way, "words.pot")
        adr(words, mean, -low, high, holds=low < 0 < high)
    more = report.more(CARD, "words.pot")
    words = "On {} questions to report it is {:.1f} above ({:.1f} to {:.1f});"
    adr(words, report.count, *more, holds=more[1] > 0)
    better = [report.more(way, "words.pot")[0] for way in ("judged.alone", LIKELIER)]
    adr("judged passages without the pot have {:.1f} and the likelier of two answers {:.1f} there", *better)
    with lzma.open(RESULTS / "recall" / "judging-tune.jsonl.xz", "rt") as file:
        older = [row["scores"] for line in file if (row := json.loads(line))["set"] == "facts"]
    less = three(compared([(row["alone.words"], row["pot.words"]) for row in older]))
    told = -less[0], -less[2], -less[1], len(older)
    adr("passages alone had {:.1f} less ({:.1f} to {:.1f}) on {} facts", *told, holds=less[2] < 0)
