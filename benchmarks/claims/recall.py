"""What docs/recall.md and ADR 17 say of recall."""

from __future__ import annotations

import ast
import json
import lzma
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

from claims.checks import Says
from claims.raw import RESULTS, Three, chance, document, rows_of, three
from infinipot.eval.estimates import compared

PURE, PASSAGES, BOTH = (
    "infinipot 4096 units=slots general",
    "passages 4096 recall=1024",
    "infinipot 4096 recall=1024 units=slots general",
)
CELL = "{:.1f} ({:.0f} to {:.0f})"
JUDGED = "infinipot 4096 recall=1024 judge=1024 units=slots general"
RULES, TAKEN = ("yes", "yes48", "examples", "both", "likely", "near", "all"), "both"
SETS = ("locomo", "longbench", "facts", "paraphrase")
WORDS = "infinipot 4096 recall=1024 judge=0 units=slots general"


def claimed(says: Says) -> None:
    page = partial(says, "docs/recall.md")
    _judged(page)
    _meaning(partial(says, "docs/adr/0017-recall.md"))
    _rules(partial(says, "docs/adr/0017-recall.md"))
    _seconds(page)
    _chosen(partial(says, "docs/adr/0017-recall.md"))


def _judged(says: partial[None]) -> None:
    again = [
        rows_of(f"recall/again-{size}").mean("infinipot 4096 recall=all units=slots general")
        for size in ("16k", "128k")
    ]
    asked = len(rows_of("recall/again-16k").cell("infinipot 4096 recall=all units=slots general").rows)
    says(f"(`--recall all`): {CELL} of {{}} questions at 16K, {CELL} at 128K;", *again[0], asked, *again[1])


def _meaning(adr: partial[None]) -> None:
    """Sentences by their meaning against words alone, by the rule before today's."""
    meant, words = (f"infinipot 4096 recall=1024{told} units=slots general" for told in ("", " meaning=0"))
    rows = rows_of("recall/paraphrase-meaning")
    adr("on the report half {} of {} were answered, {} by words", *rows.right(meant), rows.right(words)[0])


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
        return three(compared([(row["scores"][rule], row["scores"][other]) for row in self.rows]))


def _rules(adr: partial[None]) -> None:
    """Ways to judge sentences that were found by their meaning, chosen on some questions, told of others."""
    with lzma.open(RESULTS / "recall" / "judging-other-words.jsonl.xz", "rt") as file:
        rows = Asked([json.loads(line) for line in file])
    report = rows.some(lambda row: "-report-" in row["text"])
    others = rows.some(lambda row: "-report-" not in row["text"])
    _compared(adr, others)
    adr("the seven have {}, {}, {}, {}, {}, {} and {} of {},", *map(report.right, RULES), report.count)
    sure = others.some(lambda row: not row["doubtful"])
    adr("for {} of the {} the right sentence is not", others.count - others.found, others.count)
    adr("and {} have two telling words", sure.count)
    adr("answer {} of them where the sum would answer {}:", sure.right("words"), sure.right(TAKEN))


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


def _chosen(adr: partial[None]) -> None:
    """What was chosen on the tune halves."""
    with lzma.open(RESULTS / "recall" / "judging-tune.jsonl.xz", "rt") as file:
        rows = [json.loads(line) for line in file]
    sets = {name: [row for row in rows if row["set"] == name] for name in SETS}

    def means(way: str) -> list[float]:
        return [fmean(100 * row["scores"][f"pot.{way}"] for row in found) for found in sets.values()]

    near, words, best = means("m1"), means("words"), means("s1")
    told = [n for three in zip(near, words, map(len, sets.values()), strict=True) for n in three]
    scores = [[row["scores"] for row in found] for found in sets.values()]
    more = [three(compared([(one["pot.m1"], one["pot.words"]) for one in some])) for some in scores]
    phrase = "of LoCoMo {:.1f} against {:.1f} by words alone ({:.1f} more, {:.1f} to {:.1f}),"
    adr(phrase, near[0], words[0], *more[0], holds=more[0][1] > 0)
    adr(
        "{:.1f} against {:.1f} ({:.1f}, {:.1f} to {:.1f}); of facts",
        *told[3:5],
        *more[1],
        holds=more[1][1] > 0,
    )
    phrase = (
        "of facts {:.1f} against {:.1f}, of statements in other words {:.1f} against {:.1f}, which does not"
    )
    level = chance(more[2]) and chance(more[3])
    adr(f"{phrase} exclude chance;", *told[6:8], *told[9:11], holds=level)
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
    timed = document("recall/seconds.json")["seconds"]
    for words, name in (
        ("an ask by words took {:.2f} s more (least {:.2f}, most {:.2f}),", "recall"),
        ("one with 32 judged passages {:.2f} s more (least {:.2f}, most {:.2f})", "judge_32"),
    ):
        says(words, *timed[f"ask_with_{name}_minus_without_s"].values())
    says("({} answers of up to 16 tokens)", len(timed["seconds"]["0"]))
    words, reading = (
        "Reading took {:.3f} x with the archive ({:.3f} to {:.3f}, {} rounds).",
        timed["seconds"]["archive"],
    )
    says(words, *timed["reading_with_over_without"].values(), len(reading))
    says("the pot has {:.0f} MB:", turns["pot_bytes"] / 1e6)
    without, with_ = document("recall/costs-cpu.json")["costs"]
    took = [with_["ask_s"][name] for name in ("median", "least", "most")]
    words = (
        "an ask after {:,} tokens took {:.1f} s with recall (least {:.1f}, most {:.1f}; {} tokens read again)"
    )
    says(words, with_["tokens"], *took, with_["read_again"])
    took = [without["ask_s"][name] for name in ("median", "least", "most")]
    says("and {:.1f} s without (least {:.1f}, most {:.1f}),", *took)
    resident = document("recall/resident.json")
    long, short = resident["1m"], resident["10k"]
    more = (long["most"] - short["most"]) / 1e6
    words = "while {:,} tokens were read and asked about, by words, was {:.1f} MB more than with {:,}"
    says(words, long["tokens"], more, short["tokens"])
    says("The aim was 20 MB at most.", holds=more <= 20)
