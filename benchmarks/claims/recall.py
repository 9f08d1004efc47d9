"""What docs/recall.md and ADR 17 say of recall."""

from __future__ import annotations

import ast
from functools import partial
from statistics import median

from claims.checks import Says
from claims.raw import RESULTS, Rows, Three, chance, document, rows_of, three
from infinipot.eval.estimates import bootstrapped

PURE, PASSAGES, BOTH = (
    "infinipot 4096 general",
    "passages 4096 recall=1024",
    "infinipot 4096 recall=1024 general",
)
CELL = "{:.1f} ({:.0f} to {:.0f})"
JUDGED = "infinipot 4096 recall=1024 judge=1024 general"
WORDS = "infinipot 4096 recall=1024 judge=0 general"
LONGBENCH = {
    "pure pot": PURE,
    "pot with recall": WORDS,
    "pot with recall, `--judge 1024`": BOTH,
    "pot with recall of 2,048 tokens, `--judge 1024`": "infinipot 4096 recall=2048 general",
    "passages alone, `--judge 1024`": PASSAGES,
}


def claimed(says: Says) -> None:
    page = partial(says, "docs/recall.md")
    _facts(page)
    _pot_and_passages(page)
    _longbench(page)
    _judged(page)
    _seconds(page)
    adr = partial(says, "docs/adr/0017-recall.md")
    adr("answers from a wrong one ({} of {})", *rows_of("recall/judged-paraphrase").right(PASSAGES))
    fewer = (
        rows_of("recall/judged-facts-16k").mean(PASSAGES)[0],
        rows_of("recall/facts-16k").mean(PASSAGES)[0],
    )
    adr("({:.1f} against {:.1f}). LongBench", *fewer)
    grid = _grid()
    gained = chance(grid.less(BOTH, WORDS))
    words = "({:.1f} against {:.1f}, which {} rows do not tell from chance)"
    adr(words, grid.mean(BOTH)[0], grid.mean(WORDS)[0], len(grid.cell(BOTH).rows), holds=gained)


def _grid() -> Rows:
    return rows_of(*(f"recall/longbench-{n}" for n in ("known", "pure", "words", "recall", "2k", "passages")))


def _facts(says: partial[None]) -> None:
    alone = rows_of("recall/facts-alone").mean("full")
    three = f"| {CELL} | {CELL} | {CELL} |"
    labels = {"16k": "facts in 16K tokens, {} questions", "128k": "facts in 128K", "1m": "facts in 1M"}
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
    rows = rows_of("recall/locomo")
    means = [number for cell in (PURE, PASSAGES, BOTH) for number in rows.mean(cell)]
    says(f"| LoCoMo, {{}} questions of categories 1 to 4, F1 {three} |", len(rows.cell(PURE).rows), *means)


def _pot_and_passages(says: partial[None]) -> None:
    names = ("facts-16k", "facts-128k", "facts-1m", "locomo")
    more = {name: rows_of(f"recall/{name}").less(BOTH, PURE) for name in names}
    for words, name in (
        ("by rows {:.1f} points more at 16K ({:.1f} to {:.1f}),", "facts-16k"),
        ("{:.1f} at 128K ({:.1f} to {:.1f}),", "facts-128k"),
        ("{:.1f} at 1M ({:.1f} to {:.1f});", "facts-1m"),
        ("on LoCoMo {:.1f} more ({:.1f} to {:.1f}).", "locomo"),
    ):
        says(words, *more[name], holds=more[name][1] > 0)
    less = {name: rows_of(f"recall/{name}").less(BOTH, PASSAGES) for name in names}
    for words, name in (
        ("it is {:.1f} lower at 16K ({:.1f} lower to {:.1f} higher),", "facts-16k"),
        ("{:.1f} lower at 128K ({:.1f} lower to {:.1f} higher),", "facts-128k"),
        ("{:.1f} higher at 1M ({:.1f} lower to {:.1f} higher)", "facts-1m"),
        ("on LoCoMo {:.1f} lower ({:.1f} lower to {:.1f} higher)", "locomo"),
    ):
        mean, low, high = less[name]
        says(words, abs(mean), abs(low), high)
    says("higher): none excludes 0.", holds=all(map(chance, less.values())))


def _longbench(says: partial[None]) -> None:
    grid, known = _grid(), "infinipot 4096 question"
    says("question answering, {} rows longer than the pot |", len(grid.cell(known).rows))
    says(f"| question known while reading | {CELL} | |", *grid.mean(known))
    less: dict[str, Three] = {label: grid.less(cell, known) for label, cell in LONGBENCH.items()}
    for label, cell in LONGBENCH.items():
        says(f"| {label} | {CELL} | {{:.1f}} ({{:.1f}} to {{:.1f}}) |", *grid.mean(cell), *less[label])
    none = all(map(chance, less.values()))
    says("On LongBench none of these differences from a question known while reading excludes 0", holds=none)
    tasks = [grid.parts(cell)[0] for cell in (WORDS, BOTH, known)]
    says("recall has {:.1f}, judged {:.1f}, question known {:.1f} ([by task]", *tasks)


def _judged(says: partial[None]) -> None:
    judged, plain = rows_of("recall/judged-facts-16k"), rows_of("recall/facts-16k")
    words = f"passages alone answered {CELL} of the facts in 16K with it and {{:.1f}} without,"
    says(words, *judged.mean(PASSAGES), plain.mean(PASSAGES)[0])
    there = {row["example"]: row["score"] for row in judged.cell(PASSAGES).rows}
    pairs = [row["score"] - there[row["example"]] for row in plain.cell(PASSAGES).rows]
    says("by rows {:.1f} fewer ({:.1f} to {:.1f} fewer),", *three(bootstrapped(pairs)))
    others = [rows_of(f"recall/{name}").right(PASSAGES) for name in ("judged-paraphrase", "paraphrase")]
    says("and {} of {} statements in other words where words alone found {}.", *others[0], others[1][0])
    talks = rows_of("recall/locomo")
    mean, low, high = talks.less(JUDGED, BOTH)
    says(f"On LoCoMo the pot with recall has {CELL} with it,", *talks.mean(JUDGED))
    says("{:.1f} more by rows than without ({:.1f} fewer to {:.1f} more).", mean, -low, high)
    says("with recall and `--judge`: {} of {}.", *rows_of("recall/judged-essays").right(JUDGED))
    again = [
        rows_of(f"recall/again-{size}").mean("infinipot 4096 recall=all general") for size in ("16k", "128k")
    ]
    asked = len(rows_of("recall/again-16k").cell("infinipot 4096 recall=all general").rows)
    words = f"(`--recall all`): {CELL} of {{}} questions at 16K, {CELL} at 128K."
    says(words, *again[0], asked, *again[1])
    read = [row["recalled"] for row in plain.cell(BOTH).rows]
    says("A question re-reads some {:.0f} tokens;", round(median(read), -2))


def _seconds(says: partial[None]) -> None:
    found = document("recall/seconds.json")
    took = found["seconds"]["seconds"]
    more = sorted(b - a for a, b in zip(took["0"], took["recall"], strict=True))
    slow = [one for one in more if one > 2]
    quick = [one for one in more if one <= 2]
    says("an ask at 128K took {:.1f} s more than one without recall", median(quick))
    words = "and {:.0f} to {:.0f} s more where all 483 were judged ({} of {} questions,"
    says(words, min(slow), max(slow), len(slow), len(more))
    by_words = ast.literal_eval((RESULTS / "recall" / "seconds-by-words.txt").read_text("utf-8").strip())
    ask = by_words["ask_with_recall_minus_without_s"]
    words = "an ask took {:.2f} s more with recall than without ({:.2f} to {:.1f},"
    says(words, ask["median"], ask["least"], ask["most"])
    reading = found["seconds"]["reading_with_over_without"]
    words = "Reading 128K took {:.3f} x with the archive ({:.3f} to {:.3f}, {} rounds)"
    says(words, reading["median"], reading["least"], reading["most"], len(took["archive"]))
    disk, pot = found["seconds"]["archive_bytes"] / 1e6, found["seconds"]["pot_bytes"] / 1e6
    says("at 128K an archive of {:.1f} MB on disk and a pot of {:.0f} MB;", disk, pot)
    memory, resident = found["seconds"]["memory"], found["resident"]
    same = len({(one["resident"], one["gpu"]) for one in resident.values()}) == 1
    loading = memory["loaded"]["resident"] == memory["asked"]["resident"]
    words = "the process's peak was {:.2f} GB of RAM, all of it for loading, and {:.2f} GB on the GPU,"
    says(words, memory["asked"]["resident"] / 1e9, memory["asked"]["gpu"] / 1e9, holds=same and loading)
