"""What docs/recall.md says of how much of the pot stays beside passages; nothing before it is measured."""

from __future__ import annotations

from functools import cache, partial

from claims.checks import Says
from claims.raw import RESULTS, Rows, Three, chance, document, rows_of, three
from infinipot.eval.estimates import estimate, paired

CELL = "{:.1f} ({:.0f} to {:.0f})"
BY = "{:.1f} ({:.1f} to {:.1f})"
ASIDES = {
    "eighth": "an eighth, the last 64 entries of the text among them",
    "plain": "an eighth",
    "sure": "nothing where words find, else an eighth",
    "more": "nothing where words find, else half",
}
ASIDES["own"] = f"{ASIDES['sure']}, and there the pot's own answer is looked for too"
OTHERS = {"pure": "pure pot", "full": "whole cache", "known": "question known while reading"}
JUDGED = {
    "judged": "an eighth, `--judge 32`",
    "passages-judged": "passages alone, `--judge 32`",
}
WAYS = {"passages": "passages alone", **ASIDES, **JUDGED, **OTHERS}
KINDS = ("multi-hop", "temporal", "open-domain", "single-hop")
LONG = {"": "16K and 128K", "-1m": "1M"}


def claimed(says: Says) -> None:
    if (RESULTS / "recall" / "aside-locomo-tune-passages").is_dir():
        page = partial(says, "docs/recall.md")
        _locomo(page)
        _longbench(page)
        _facts(page)
        _rest(page)


@cache
def scores(name: str, kind: str = "") -> dict[str, float]:
    """Return the scores of a part by their examples, in percent; none where the part was not begun."""
    folder = RESULTS / "recall" / f"aside-{name}"
    if not any((folder / f"rows.jsonl{end}").is_file() for end in ("", ".xz")):
        return {}
    (series,) = Rows(f"recall/aside-{name}").section.series
    facts = {row["example"]: row["facts"] for row in series.rows}
    found = series.by_example().items()
    return {one: score for one, score in found if not kind or facts[one].get("task") == kind}


def shared(prefix: str, ways: dict[str, str] = WAYS, last: str = "") -> tuple[list[str], list[str]]:
    """Return the ways that have rows, and the examples that all of them have.

    A way with less than half of the rows of the fullest was cut off, and is left out.
    """
    found = {way: scores(f"{prefix}-{way}{last}") for way in ways}
    most = max(map(len, found.values()), default=0)
    there = {way: rows for way, rows in found.items() if 2 * len(rows) > most}
    alike = set.intersection(*map(set, there.values())) if there else set[str]()
    return list(there), [one for one in next(iter(there.values()), {}) if one in alike]


def mean(name: str, some: list[str]) -> Three:
    return three(estimate([scores(name)[one] for one in some]))


def against(name: str, other: str, some: list[str] | None = None, kind: str = "") -> Three:
    """Return by how much a part is above another one, by rows."""
    ours, theirs = scores(name, kind), scores(other, kind)
    return three(paired({one: x for one, x in ours.items() if some is None or one in some}, theirs))


def chosen() -> str:
    """Return the way that is best on the tune half of LoCoMo, on the questions that all have."""
    there, some = shared("locomo-tune")
    return max((way for way in there if way in ASIDES), key=lambda way: mean(f"locomo-tune-{way}", some)[0])


def verdict(found: Three) -> str:
    return "which does not exclude 0" if chance(found) else "more than chance"


def _locomo(says: partial[None]) -> None:
    ways, some = shared("locomo-report")
    tuned, asked = shared("locomo-tune")
    head = "| beside passages of 1,024 tokens stays of the pot | tune half, {} questions | report half, {} |"
    says(f"{head} against passages alone, by rows |", len(asked), len(some))
    for way in ways:
        first = [CELL, *mean(f"locomo-tune-{way}", asked)] if way in tuned else ["–"]
        last = [BY, *against(f"locomo-report-{way}", "locomo-report-passages", some)]
        last = [""] if way == "passages" else last
        told = mean(f"locomo-report-{way}", some)
        words = f"| LoCoMo: {WAYS[way]} | {first[0]} | {CELL} | {last[0]} |"
        says(words, *first[1:], *told, *last[1:])
    best = chosen()
    if best not in ways:
        return
    says(f"- Best on the tune half is: {ASIDES[best]}.")
    for other in ("passages", "pure", "full", "eighth"):
        if other in ways and other != best:
            more = against(f"locomo-report-{best}", f"locomo-report-{other}", some)
            words = f"  On the report half that is {BY} against: {WAYS[other]}, {verdict(more)}."
            says(words, *more)
    seen = {row["example"] for row in rows_of("recall/locomo").section.series[0].rows}
    fresh = [one for one in some if one not in seen]  # the answers of the others gave the ideas
    if fresh:
        more = against(f"locomo-report-{best}", "locomo-report-passages", fresh)
        words = f"  Without the questions of the table above, whose answers had been looked at: {BY} against"
        says(f"{words} passages alone on {{}} questions, {verdict(more)}.", *more, len(fresh))
    kinds = {kind: against(f"locomo-report-{best}", "locomo-report-passages", kind=kind) for kind in KINDS}
    parts = ", ".join(f"{kind} {BY}" for kind in kinds)
    says(f"  Against passages alone by kinds of questions: {parts}.", *(n for k in kinds.values() for n in k))


def _longbench(says: partial[None]) -> None:
    ways, some = shared("longbench-report")
    if "known" not in ways:
        return
    words = "| LongBench's question answering, read with the general prompt, report half, {} rows | mean |"
    says(f"{words} against question known, by rows |", len(some))
    for way in ("known", *(way for way in ways if way != "known")):
        told = mean(f"longbench-report-{way}", some)
        less = against(f"longbench-report-{way}", "longbench-report-known", some)
        if way == "known":
            says(f"| LongBench: {WAYS[way]} | {CELL} | |", *told)
        else:
            says(f"| LongBench: {WAYS[way]} | {CELL} | {BY} |", *told, *less)
    tuned, asked = shared("longbench-tune", ASIDES)
    for way in tuned:
        words = f"- LongBench on the tune half ({{}} rows): {ASIDES[way]}: {CELL}."
        says(words, len(asked), *mean(f"longbench-tune-{way}", asked))


def _facts(says: partial[None]) -> None:
    alone = three(estimate(list(rows_of("recall/facts-alone").cell("full").by_example().values())))[0]
    says("| facts, report half, the right fact alone has {:.1f} | questions | right | of that |", alone)
    for last, label in LONG.items():
        ways, some = shared("facts-report", last=last)
        for way in ways:
            told = mean(f"facts-report-{way}{last}", some)
            words = f"| {label}, {WAYS[way]} | {{}} | {CELL} | {{:.0f}}% |"
            says(words, len(some), *told, 100 * told[0] / alone)
    tuned, asked = shared("facts-tune", ASIDES)
    for way in tuned:
        words = f"- Facts on the tune half ({{}} questions): {ASIDES[way]}: {CELL}."
        says(words, len(asked), *mean(f"facts-tune-{way}", asked))


def _rest(says: partial[None]) -> None:
    essays = scores("essays")
    if essays:
        words = "- Pass keys in essays of 4K, 16K, 64K, 128K and 1M tokens, recalled by words: {} of {}."
        says(words, round(sum(essays.values())), len(essays))
    if (RESULTS / "recall" / "again-1m").is_dir():
        again = rows_of("recall/again-1m").right("infinipot 4096 recall=all general")
        says(
            "- Reading a text of 1M tokens again with the question known (`--recall all`): {} of {}.", *again
        )
    if (RESULTS / "recall" / "resident.json").is_file():
        found = document("recall/resident.json")["resident"]
        short, long = found["10k"], found["1m"]
        words = (
            "- The most memory of the process while {:,} tokens were read and asked about was {:.1f} MB above"
        )
        words += " the most while {:,} were, in the same process before."
        says(words, long["tokens"], (long["most"] - short["most"]) / 1e6, short["tokens"])
