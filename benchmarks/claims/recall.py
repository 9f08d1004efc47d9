"""What docs/recall.md and ADR 17 say of recall."""

from __future__ import annotations

import ast
import json
import lzma
from collections.abc import Callable
from functools import partial
from statistics import fmean, median
from typing import Any

from claims.checks import Says
from claims.raw import RESULTS, Rows, Three, chance, document, rows_of, three
from infinipot.eval.estimates import bootstrapped, estimate

PURE, PASSAGES, BOTH = (
    "infinipot 4096 general",
    "passages 4096 recall=1024",
    "infinipot 4096 recall=1024 general",
)
CELL = "{:.1f} ({:.0f} to {:.0f})"
JUDGED = "infinipot 4096 recall=1024 judge=1024 general"
RULES, TAKEN = ("yes", "yes48", "examples", "both", "likely", "near", "all"), "both"
SETS = ("locomo", "longbench", "facts", "paraphrase")
WORDS = "infinipot 4096 recall=1024 judge=0 general"


def claimed(says: Says) -> None:
    page = partial(says, "docs/recall.md")
    _facts(page)
    _pot_and_passages(page)
    _longbench(page)
    _judged(page)
    _meaning(page, partial(says, "docs/adr/0017-recall.md"))
    _rules(page, partial(says, "docs/adr/0017-recall.md"))
    _seconds(page)
    _chosen(page, partial(says, "docs/adr/0017-recall.md"))


def _grid() -> Rows:
    return rows_of(*(f"recall/longbench-{n}" for n in ("known", "pure", "words", "recall", "2k", "passages")))


def _facts(says: partial[None]) -> None:
    alone = rows_of("recall/facts-alone").mean("full")
    three = f"| {CELL} | {CELL} | {CELL} |"
    labels = {"16k": "facts in 16K tokens, {} questions", "128k": "facts in 128K"}
    for size, label in labels.items():
        rows = rows_of(f"recall/facts-{size}")
        means = [number for cell in (PURE, PASSAGES, BOTH) for number in rows.mean(cell)]
        count = [len(rows.cell(PURE).rows)] if size == "16k" else []
        last, numbers = (CELL, alone) if size == "16k" else ("{:.1f}", alone[:1])
        says(f"| {label} {three} {last} |", *count, *means, *numbers)
    rows = rows_of("recall/paraphrase")
    means = [number for cell in (PURE, PASSAGES, BOTH) for number in rows.mean(cell)]
    right = rows_of("recall/paraphrase-alone")
    words = f"16K and 128K, {{}} questions {three} {{:.1f}} ({{}} questions) |"
    says(words, len(rows.cell(PURE).rows), *means, right.mean("full")[0], right.right("full")[1])
    found = rows.right(BOTH), right.right("full")
    says("recall finds little: {} of {}, where the right statement alone has {} of {}.", *found[0], *found[1])
    more = rows.less(BOTH, PURE)
    words = "{:.1f} points more than without recall, and the interval ({:.1f} to {:.1f}) does not exclude 0."
    says(words, *more, holds=chance(more))


def _pot_and_passages(says: partial[None]) -> None:
    names = ("facts-16k", "facts-128k")
    more = {name: rows_of(f"recall/{name}").less(BOTH, PURE) for name in names}
    for words, name in (
        ("by rows {:.1f} points more at 16K ({:.1f} to {:.1f}),", "facts-16k"),
        ("{:.1f} at 128K ({:.1f} to {:.1f}),", "facts-128k"),
    ):
        says(words, *more[name], holds=more[name][1] > 0)
    less = {name: rows_of(f"recall/{name}").less(BOTH, PASSAGES) for name in names}
    for words, name in (
        ("it is {:.1f} lower at 16K ({:.1f} lower to {:.1f} higher),", "facts-16k"),
        ("{:.1f} lower at 128K ({:.1f} lower to {:.1f} higher);", "facts-128k"),
    ):
        mean, low, high = less[name]
        says(words, abs(mean), abs(low), high)
    says("see the table above: none excludes 0.", holds=all(map(chance, less.values())))


def _longbench(says: partial[None]) -> None:
    """Longer passages, on more rows than today's were asked."""
    grid, known = _grid(), "infinipot 4096 question"
    less: dict[str, Three] = {cell: grid.less(cell, known) for cell in (WORDS, BOTH)}
    words = "on all {} rows, recall was {:.1f} lower ({:.1f} lower to {:.1f} higher),"
    mean, low, high = less[WORDS]
    says(words, len(grid.cell(known).rows), -mean, -low, high, holds=chance(less[WORDS]))
    mean, low, high = less[BOTH]
    says("with `--judge 1024` {:.1f} higher ({:.1f} lower to {:.1f} higher).", mean, -low, high)
    tasks = [grid.parts(cell)[0] for cell in (WORDS, BOTH, known)]
    says("recall had {:.1f}, judged {:.1f}, question known {:.1f} ([by task]", *tasks)


def _judged(says: partial[None]) -> None:
    says("of the report half's statements {} of {}.", *rows_of("recall/paraphrase").right(JUDGED))
    says("with recall and an earlier `--judge`: {} of {}.", *rows_of("recall/judged-essays").right(JUDGED))
    again = [
        rows_of(f"recall/again-{size}").mean("infinipot 4096 recall=all general") for size in ("16k", "128k")
    ]
    asked = len(rows_of("recall/again-16k").cell("infinipot 4096 recall=all general").rows)
    says(f"(`--recall all`): {CELL} of {{}} questions at 16K, {CELL} at 128K;", *again[0], asked, *again[1])


def _meaning(says: partial[None], adr: partial[None]) -> None:
    """Sentences by their meaning against words alone, by the rule before today's."""
    meant, words = (f"infinipot 4096 recall=1024{told} general" for told in ("", " meaning=0"))
    rows, facts = rows_of("recall/paraphrase-meaning"), rows_of("recall/facts-meaning")
    adr("on the report half {} of {} were answered, {} by words", *rows.right(meant), rows.right(words)[0])
    says("By the way before, {} of {} questions about facts were", *facts.right(meant))
    says("answered with it and {} without:", facts.right(words)[0])
    mean, low, high = facts.less(meant, words)
    says("without: {:.1f} more ({:.1f} fewer", mean, -low)
    says("to {:.1f} more). By today's,", high)


class Asked:
    """Questions in other words, and what each rule of `benchmarks/judging.py` answers."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.count = rows, len(rows)
        self.found = sum(bool(row["right"]) for row in rows)

    def some(self, chosen: Callable[[dict[str, Any]], bool]) -> Asked:
        return Asked([*filter(chosen, self.rows)])

    def right(self, rule: str) -> int:
        return sum(row["scores"][rule] == 1 for row in self.rows)

    def more(self, rule: str, other: str) -> Three:
        return three(bootstrapped([row["scores"][rule] - row["scores"][other] for row in self.rows]))


def _rules(page: partial[None], adr: partial[None]) -> None:
    """Ways to judge sentences that were found by their meaning, chosen on some questions, told of others."""
    with lzma.open(RESULTS / "recall" / "judging-other-words.jsonl.xz", "rt") as file:
        rows = Asked([json.loads(line) for line in file])
    report = rows.some(lambda row: "-report-" in row["text"])
    others = rows.some(lambda row: "-report-" not in row["text"])
    _told(page, report, others)
    _compared(adr, others)
    adr("the seven have {}, {}, {}, {}, {}, {} and {} of {},", *map(report.right, RULES), report.count)
    sure = others.some(lambda row: not row["doubtful"])
    adr("for {} of the {} the right sentence is not", others.count - others.found, others.count)
    adr("and {} have two telling words", sure.count)
    adr("answer {} of them where the sum would answer {}:", sure.right("words"), sure.right(TAKEN))


def _told(says: partial[None], report: Asked, others: Asked) -> None:
    """The rule that was taken, on questions that it was not chosen on."""
    sizes = [report.some(lambda row, end=end: row["text"].endswith(end)) for end in ("-16k", "-128k")]
    mean = three(estimate([row["scores"][TAKEN] for row in report.rows]))
    says(f"| the same {{}} with the extra `meaning`, shorter passages | | | {CELL}", report.count, *mean)
    says("With the extra `meaning` {} of {} of these are answered", report.right(TAKEN), report.count)
    told = [number for size in sizes for number in (size.right(TAKEN), size.count)]
    says("({} of {} at 16K, {} of {} at 128K)", *told)
    more, less = report.more(TAKEN, "words"), report.more(TAKEN, "yes")
    says("against {} by words alone, {:.1f} points", report.right("words"), more[0])
    says("({:.1f} to {:.1f}). The aim was 60%: it is not", *more[1:], holds=mean[0] < 60)
    says("that were judged for {} of the {}.", report.found, report.count)
    told = [others.count, others.right(TAKEN), others.right("yes")]
    says("on {} other questions, where it has {} and the way before {}", *told)
    says("The way before has {} of the {}: {:.1f} points fewer", report.right("yes"), report.count, less[0])
    says("fewer ({:.1f} to {:.1f} fewer), which may be chance.", *less[1:], holds=chance(less))


def _compared(says: partial[None], others: Asked) -> None:
    """All rules, on the questions that one was chosen on."""
    tune = others.some(lambda row: row["text"].startswith("paraphrase")).count
    words = "rules on {} questions in 16K and 128K tokens, {} of the tune half and {} about"
    says(words, others.count, tune, others.count - tune)
    before, more, after, both, likely, near, every = map(others.right, RULES)
    says("for the nearest 24, answers {}; for the nearest 48 {};", before, more)
    says("examples alone {}; the sum of both {};", after, both)
    says("likelihood after the sentence {};", likely)
    says("the nearness of vectors {}; all four {}.", near, every)
    says("alone {}. Against the rule before, by rows,", others.right("words"))
    says("the sum of both has {:.1f} points more ({:.1f} to {:.1f}),", *others.more(TAKEN, "yes"))
    says("all four {:.1f} more ({:.1f} to {:.1f});", *others.more("all", "yes"))
    mean, low, high = others.more("all", TAKEN)
    words = "{:.1f} more ({:.1f} fewer to {:.1f} more), which does not exclude 0."
    says(words, mean, -low, high, holds=low <= 0)


def _chosen(page: partial[None], adr: partial[None]) -> None:
    """What was chosen on the tune halves."""
    with lzma.open(RESULTS / "recall" / "judging-tune.jsonl.xz", "rt") as file:
        rows = [json.loads(line) for line in file]
    sets = {name: [row for row in rows if row["set"] == name] for name in SETS}

    def means(way: str) -> list[float]:
        return [fmean(100 * row["scores"][f"pot.{way}"] for row in found) for found in sets.values()]

    near, words, best = means("m1"), means("words"), means("s1")
    told = [n for three in zip(near, words, map(len, sets.values()), strict=True) for n in three]
    page("LoCoMo {:.1f} with it and {:.1f} without ({} questions),", *told[:3])
    page("question answering {:.1f} and {:.1f} ({} rows), facts {:.1f} and {:.1f} ({}),", *told[3:9])
    page("statements in other words {:.1f} and {:.1f} ({});", *told[9:])
    long = [row["judging_s"] for row in rows if row["passages"] > 400]
    page("Judging all 484 passages of 128K took {:.1f} s in the median", median(long))
    each = median(row["judging_s"] / row["passages"] for row in rows if row["passages"] > 400)
    page("At that rate 32 take {:.1f} s.", 32 * each)
    adr("of LoCoMo {:.1f} against {:.1f} by words alone,", near[0], words[0])
    adr("of LongBench {:.1f} against {:.1f}, of facts {:.1f} against {:.1f},", *told[3:5], *told[6:8])
    adr("of statements in other words {:.1f} against {:.1f};", *told[9:11])
    adr("the single best passage has {:.1f}, {:.1f}, {:.1f} and {:.1f}.", *best)
    adr("stayed at {} of {}:", *rows_of("recall/paraphrase").right(JUDGED))


def _seconds(says: partial[None]) -> None:
    lines = (RESULTS / "recall" / "costs.txt").read_text("utf-8").splitlines()
    turns, *ways = (ast.literal_eval(line) for line in lines)
    for one in ways:
        took = one["ask_s"]
        words = f"| {one['length'].upper()} | {one['way']} | {{:.2f}} ({{:.2f}} to {{:.2f}}) | {{:,}} |"
        words += " {:.2f} GB | {:.2f} GB | " + ("{:.2f} MB |" if one["archive"] else "{} |")
        sizes = one["gpu"] / 1e9, one["resident"] / 1e9, one["archive"] / (1e6 if one["archive"] else 1)
        says(words, took["median"], took["least"], took["most"], one["read_again"], *sizes[:2],
             sizes[2] if one["archive"] else 0)  # fmt: skip
    ask = turns["ask_with_recall_minus_without_s"]
    says("an ask at 128K took {:.2f} s more ({:.2f} to {:.2f}).", ask["median"], ask["least"], ask["most"])
    reading = turns["reading_with_over_without"]
    words = "Reading 128K took {:.3f} x with the archive ({:.3f} to {:.3f}, 4 rounds)."
    says(words, reading["median"], reading["least"], reading["most"])
    says("the pot has {:.0f} MB:", turns["pot_bytes"] / 1e6)
    without, with_ = document("recall/costs-cpu.json")["costs"]
    took = [with_["ask_s"][name] for name in ("median", "least", "most")]
    words = "an ask after {:,} tokens took {:.1f} s with recall ({:.1f} to {:.1f}; {} tokens read again)"
    says(words, with_["tokens"], *took, with_["read_again"])
    took = [without["ask_s"][name] for name in ("median", "least", "most")]
    says("and {:.1f} s without ({:.1f} to {:.1f}),", *took)
    resident = document("recall/resident.json")
    long, short = resident["1m"], resident["10k"]
    more = (long["most"] - short["most"]) / 1e6
    words = "while {:,} tokens were read and asked about, by words, was {:.1f} MB more than with {:,}"
    says(words, long["tokens"], more, short["tokens"])
    says("The aim was 20 MB at most.", holds=more <= 20)
