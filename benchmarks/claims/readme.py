"""What README.md says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean

from claims.checks import Says
from claims.raw import chance, document, rows_of, three
from infinipot.eval.estimates import paired
from infinipot.models.catalog import find

PAGE = "README.md"


def claimed(says: Says) -> None:
    _longbench(partial(says, PAGE))
    noise, essays = (rows_of(f"grids/{name}") for name in ("passkey-more", "essays-more"))
    unknown = "infinipot 4096 general"
    found = [noise.right(f"infinipot 4096 {catalyst}") for catalyst in ("question", "general")]
    words = "| {} of {}, question known or not | whole cache {} of {} |"
    says(PAGE, words, *found[0], *noise.right("full"), holds=found[0] == found[1])
    within = [essays.right("full", length=1024 * k) for k in (4, 8, 16, 32)]
    inside = sum(right for right, _ in within), sum(count for _, count in within)
    known = (*essays.right("infinipot 4096 question"), *essays.right("full"), *inside)
    words = (
        "| a key in essays, question known | {} of {} | whole cache {} of {}: {} of {} inside the "
        "model's window"
    )
    says(PAGE, words, *known)
    says(PAGE, "of 32K, {} of {} at 64K |", *essays.right("full", length=65536))
    novel = essays.right("cap-only 4096 tail=distil general")
    words = "| a key in essays, question not known | {} of {} | without novelty {} of {} |"
    says(PAGE, words, *essays.right(unknown), *novel)
    far = [
        rows_of("grids/essays").right("infinipot 4096 tail=distil general", length=2**n) for n in (17, 18, 20)
    ]
    says(PAGE, "no key was found beyond 64K", holds=not any(right for right, _ in far))

    bench = document("bench-llama-3-8b-h200-128k.json")["rows"]
    times = [value for row in bench for value in (row["first_token_s"], row["decode_ms"])]
    words = (
        "first token after 128K | {:.2f} s, {:.1f} ms a token | plain transformers (dynamic "
        "cache, no graphs) {:.1f} s, {:.0f} ms, in the same run |"
    )
    says(PAGE, words, *times)

    many = document("load-card-8b.json")["many"]
    quiet = document("load-card-8b.json")["fair"]["quiet"]
    held, rate, first = many["memory"]["most_bytes"] / 1e9, quiet["tokens_s"], quiet["first_p95_s"]
    says(PAGE, "{} users' texts of 2K to 1M tokens | {:.1f} GB in all;", many["texts"]["answered"], held)
    says(PAGE, "62 who ask short questions get {:,.0f} tokens/s,", rate)
    says(PAGE, "the first of them after {:.1f} s (p95); all who ask again in full pots at once", first)
    says(PAGE, "wait {:.1f} s in the median |", many["again_1"]["first_p50_s"])
    whole = document("load-card-8b-whole.json")["whole"]
    says(PAGE, "| in whole caches {} of the {}, then memory runs out |", whole["users"], whole["of"])

    facts = rows_of("recall/facts-128k")
    cells = "infinipot 4096 recall=1024 general", "infinipot 4096 general", "passages 4096 recall=1024"
    (with_, count), (without, _), (alone, _) = map(facts.right, cells)
    words = (
        "of {} facts planted in 128K tokens of novels and asked for afterwards, {} are answered with it and"
    )
    says(PAGE, f"{words} {{}} without.", count, with_, without)
    words = "The passages alone, without a pot, answer {}: for facts that a few words find, the pot adds"
    says(PAGE, words, alone, holds=chance(facts.less(cells[2], cells[0])))

    qwen = next(row for row in document("needs.json")["rows"] if row["model"].startswith("qwen"))
    release = find("qwen2.5-coder-1.5b")
    words = "The model is a download of {:.1f} GB, once, and takes {:.1f} to {:.1f} GB of memory"
    longer = document("limited-qwen-100k.json")["told"]["peak_memory_bytes"]
    says(PAGE, words, *(size / 1e9 for size in (release.size, qwen["peak_memory_bytes"], longer)))
    reading = [
        document(f"bench-cpu-{kind}-qwen.json")["side_by_side"]["reading"]["infinipot"]["tokens_s"]
        for kind in ("packed", "integers")
    ]
    says(PAGE, "it read {:.0f} tokens a second on two CPU cores with AVX2, {:.0f} on two with", *reading)


def _longbench(says: partial[None]) -> None:
    """Rows of today's code, and older ones for questions that are not known."""
    half, older = rows_of("report-half/longbench"), rows_of("grids/longbench")
    ours, printed, cut = "infinipot 4096 by-task", "infinipot-paper 4096 by-task", "truncate 4096"
    rows, whole = half.cell(ours).by_example(), half.cell("full").by_example()
    words = "| LongBench, mean of {} rows, questions known while reading | {:.1f} (95%: {:.1f} to {:.1f}) |"
    says(words, len(rows), *half.mean(ours))
    words = "| truncation {:.1f}, the method as the paper prints it {:.1f} |"
    says(words, half.mean(cut)[0], half.mean(printed)[0])
    there = 100 * fmean(rows[name] for name in whole)
    words = "| the same, on the {} of them that the whole cache has | {:.1f} | whole cache {:.1f} |"
    says(words, len(whole), there, half.mean("full")[0])
    unknown, others = "infinipot 4096 general", ("full", cut, "streaming-llm 4096 step=256")
    words = "| LongBench, questions not known, {} older rows, earlier code | {:.1f} ({:.1f} to {:.1f}) |"
    says(words, len(older.cell(unknown).rows), *older.mean(unknown))
    words = "| whole cache {:.1f}, truncation {:.1f}, StreamingLLM {:.1f} |"
    says(words, *(older.mean(cell)[0] for cell in others))
    level = all(chance(older.less(cell, unknown)) for cell in others)
    says("With questions not known, on older rows, it is told from none of the three.", holds=level)

    less = {cell: half.less(cell, ours) for cell in (cut, printed, "full")}
    told = [(-mean, -low, high) for mean, low, high in less.values()]
    words = "neither from truncation, by rows {:.1f} below it ({:.1f} below to {:.1f} above), nor from"
    says(words, *told[0], holds=chance(less[cut]))
    words = "as printed, {:.1f} below ({:.1f} below to {:.1f} above)."
    says(words, *told[1], holds=chance(less[printed]))
    mean, low, high = less["full"]
    says("The whole cache is {:.1f} below ({:.1f} to {:.2f} below),", -mean, -low, -high, holds=high < 0)
    seen = set(older.cell(ours).by_example())
    says("Two defaults were chosen in part on {} of the {} rows", len(seen & set(rows)), len(rows))
    fresh = {cell: _unless(seen, half.cell(cell).by_example()) for cell in (*less, "snapkv 4096")}
    level = all(chance(three(paired(scores, rows))) for scores in fresh.values())
    says("on the other {} nothing is told apart.", len(_unless(seen, rows)), holds=level)


def _unless(seen: set[str], scores: Mapping[str, float]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if name not in seen}
