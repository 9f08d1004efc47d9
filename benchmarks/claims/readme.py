"""What README.md says."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import POTS, chance, clients, document, rows_of
from claims.recall_ways import CARD, asked
from infinipot.eval.estimates import FEW, newcombe
from infinipot.models.catalog import find
from infinipot.reading.plan import RECENT

PAGE = "README.md"
KNOWN, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 general"
SLOTS = "infinipot 4096 units=slots general"
TOVA, STREAMING = "tova 4096", "streaming-llm 4096 step=256 tail=fill"


def claimed(says: Says) -> None:
    _longbench(partial(says, PAGE))
    noise, essays = rows_of("report-half/passkey-more"), rows_of("report-half/essays-more")
    printed = "infinipot-paper 4096 question", "infinipot-paper 4096 general"
    found = [noise.right(cell) for cell in ("infinipot 4096 question", SLOTS, printed[0], "full")]
    blind = [noise.right(cell) for cell in (UNKNOWN, SLOTS, printed[1], "full")]
    words = "| in noise, 4K to 64K tokens, question known or not | " + " | ".join(["{} of {}"] * 4) + " |"
    says(PAGE, words, *(number for pair in found for number in pair), holds=found == blind)
    known = [essays.right(cell) for cell in ("infinipot 4096 question", printed[0], "full")]
    words = "question known | {} of {} | what InfiniPot does here | **{} of {}** | {} of {} |"
    says(PAGE, words, *(number for pair in known for number in pair))
    words = "question not known | {} of {} | **{} of {}** | **{} of {}** | {} of {} |"
    blind = [essays.right(cell) for cell in (UNKNOWN, SLOTS, printed[1], "full")]
    says(PAGE, words, *(number for pair in blind for number in pair))
    far = [rows_of("report-half/essays").right(UNKNOWN, length=2**n) for n in (17, 18, 20)]
    long = [rows_of(f"report-half/{name}") for name in ("passkey", "essays")]
    words = (
        "From 4K to 1M tokens, one trial a cell ({} of each {} keys are among the {} above), InfiniPot finds"
        " {} of {} in noise, question known or not; without catalyst, novelty and averaged scores {} ({:.1f}"
        " points fewer,"
        " {:.1f} to {:.1f}). In essays it finds {} of {} with the question known, without CR-RoPE {} ({:.1f}"
        " fewer, {:.1f} to {:.1f})."
    )
    cells = "infinipot 4096 question", "ccd 4096", "no-cr-rope 4096 question"
    less = [long[at].less(cells[1 + at], cells[0]) for at in (0, 1)]
    told = [(*long[at].right(cells[0]), long[at].right(cells[1 + at])[0]) for at in (0, 1)]
    numbers = [
        *(number for pair in zip(told, less, strict=True) for number in (*pair[0], *(-x for x in pair[1])))
    ]
    both = len(long[0].cell(cells[0]).by_example().keys() & noise.cell(cells[0]).by_example().keys())
    known = long[0].right(UNKNOWN) == long[0].right(cells[0])
    says(
        PAGE,
        words,
        both,
        told[0][1],
        noise.right(cells[0])[1],
        *numbers,
        holds=known and all(one[2] < 0 for one in less),
    )
    some = [sum(numbers) for numbers in zip(*far, strict=True)]
    known = [long[1].right("infinipot 4096 question", length=2**n) for n in (17, 18, 20)]
    every = [sum(numbers) for numbers in zip(*known, strict=True)]
    words = "of nine keys in essays four were found, with the question known all nine (one trial each,"
    says(PAGE, words, holds=some == [4, 9] and every == [9, 9])
    pairs = [(printed[0], "infinipot 4096 question"), (SLOTS, UNKNOWN), (printed[1], UNKNOWN)]
    counts = (essays.less, essays.by_place)
    apart = all(count(*pair)[2] < 0 for pair in pairs for count in counts)
    places = {(row["facts"]["length"], row["facts"]["depth"]) for row in essays.cell(UNKNOWN).rows}
    words = (
        "All differences in bold among the keys are more than chance, also when each of their {} places in"
    )
    says(PAGE, words, len(places), holds=apart)
    less = essays.less("full", "infinipot 4096 question")
    lost = [count - found for found, count in (essays.right("full"), essays.right("full", length=65536))]
    words = (
        "The four keys that the whole cache does not find are all of 64K, beyond the model's window, and may"
    )
    words += " be chance ({:.1f} points, {:.1f} lower to {:.1f} higher)."
    says(PAGE, words, -less[0], -less[1], less[2], holds=chance(less) and lost == [4, 4])
    found, most = noise.right("full"), noise.less("full", "infinipot 4096 question")[2]
    few = 100 * newcombe([(True, True)] * len(places)).high
    words = "Two methods that both find {} of {} keys may still differ by up to {:.0f} points, and by up to"
    says(PAGE, f"{words} {{:.0f}} if each place is counted once.", *found, most, few)

    bench = document("bench-llama-3-8b-h200-128k.json")["rows"]
    times = [value for row in bench for value in (row["first_token_s"], row["decode_ms"])]
    words = (
        "first token after 128K | {:.2f} s, then {:.1f} ms a token | plain transformers (dynamic "
        "cache, no graphs) {:.1f} s, {:.0f} ms, in the same run, once each |"
    )
    says(PAGE, words, *times)

    many = document("load-card-8b.json")["many"]
    quiet = document("load-card-8b.json")["fair"]["quiet"]
    held, rate, first = many["memory"]["most_bytes"] / 1e9, quiet["tokens_s"], quiet["first_p95_s"]
    words = "{} users' texts of 2K to 1M tokens, one run of earlier code | {:.1f} GB in all;"
    says(PAGE, words, many["texts"]["answered"], held)
    asking = clients(document("load-card-8b.json"))
    says(PAGE, "{} who ask short questions get {:,.0f} tokens/s,", asking, rate)
    says(PAGE, "for 95% of them the first within {:.2f} s; when all ask again in full pots at once,", first)
    says(PAGE, "half wait longer than {:.1f} s |", many["again_1"]["first_p50_s"])
    whole = document("load-card-8b-whole.json")["whole"]
    says(PAGE, "| in whole caches {} of the {}, then memory runs out |", whole["users"], whole["of"])

    served = document("load-card-qwen.json")
    quiet, alone_s = served["fair"]["quiet"], served["bench"]["documents"][-1]["tokens_s"]
    words = (
        "{} clients each ask short questions in a row, one run | {:,.0f} tokens/s over HTTP, the first within"
    )
    numbers = served["fair"]["clients"], quiet["tokens_s"], quiet["first_p95_s"], alone_s
    says(PAGE, f"{words} {{:.2f}} s (95%) | without a server {{:,.0f}} tokens/s |", *numbers)

    facts, by = asked("ways", "facts-report-128k"), "words.alone"
    words = "{} questions about facts planted in two texts of 128K tokens of novels, asked afterwards, {} are"
    words += " answered with it on a card and"
    more = facts.more(CARD, "pure.pot")
    words += " {} without ({:.1f} points more, {:.1f} to {:.1f})."
    numbers = facts.count, facts.right(CARD), facts.right("pure.pot")
    two = len({row["text"] for row in facts.rows}) == 2
    says(PAGE, words, *numbers, *more, holds=more[1] > 0 and two)
    words = "The passages alone, without a pot, answer {} (not told apart): for facts that a few words find,"
    says(PAGE, words, facts.right(by), holds=chance(facts.more(CARD, by)))

    qwen = next(row for row in document("needs.json")["rows"] if row["model"].startswith("qwen"))
    release = find("qwen2.5-coder-1.5b")
    words = "The model is a download of {:.1f} GB, once, and takes {:.1f} to {:.1f} GB of memory"
    longer = document("limited-qwen-100k.json")
    told = release.size, qwen["peak_memory_bytes"], longer["told"]["peak_memory_bytes"]
    says(PAGE, words, *(size / 1e9 for size in told))
    minutes = longer["told"]["seconds"]["read"] / 60
    says(
        PAGE,
        "and {:,} tokens of Moby Dick took {:.0f} minutes there;",
        longer["told"]["tokens_read"],
        minutes,
    )
    reading = [
        document(f"bench-cpu-{kind}-qwen.json")["side_by_side"]["reading"]["infinipot"]["tokens_s"]
        for kind in ("packed", "integers")
    ]
    words = "it read {:.0f} tokens a second on two CPU cores with AVX2 (AVX-512 switched off), {:.0f} on two"
    says(PAGE, f"{words} with", *reading)


def _longbench(says: partial[None]) -> None:
    """Rows of the half `report`, questions known and not, and what is told apart."""
    grid, seen = rows_of("report-half/longbench"), rows_of("grids/longbench").cell(KNOWN).by_example()
    rows, small = grid.cell(KNOWN).by_example(), grid.of_few(KNOWN)
    large = rows.keys() - small
    ten = sum(len(scores) >= FEW for scores in grid.by_task(KNOWN).values()) == 10
    words = "mean score of the {} rows of its ten tasks that have ten rows or more."
    says(words, len(large), holds=ten)
    blind = ("infinipot-paper 4096 general", "full", "truncate 4096", STREAMING, TOVA)
    cells = ("infinipot-paper 4096 by-task", *blind[1:])
    words = "| question known (in the {} rows of question answering) | {:.1f} (95%: {:.1f} to {:.1f}) |"
    numbers = len(large - grid.silent(KNOWN)), *grid.mean(KNOWN, small)
    words += " {:.1f} | {:.1f} | {:.1f} | {:.1f} | **{:.1f}** |"
    says(words, *numbers, *(grid.mean(cell, small)[0] for cell in cells))
    words = "| no question known | {:.1f} ({:.1f} to {:.1f}) | **{:.1f}** | {:.1f} | **{:.1f}** | {:.1f} |"
    words += " {:.1f} |"
    says(words, *grid.mean(UNKNOWN, small), *(grid.mean(cell, small)[0] for cell in blind))
    fit = sum(row["cycles"] == 0 for row in grid.cell(KNOWN).rows)
    says("LongBench: the {} rows kept for reporting", len(rows))
    says("{} of which fit the pot, so that nothing is dropped of them;", fit)

    whole = [grid.less("full", base, small) for base in (KNOWN, UNKNOWN)]
    words = "The whole cache is {:.1f} points above InfiniPot, which may be chance ({:.1f} below to {:.1f}"
    words += " above)."
    says(words, whole[0][0], -whole[0][1], whole[0][2], holds=chance(whole[0]))
    words = "the whole cache is {:.1f} above, which may be chance too ({:.1f} below to {:.1f} above)."
    says(words, whole[1][0], -whole[1][1], whole[1][2], holds=chance(whole[1]))
    known = {cell for cell in cells if not chance(grid.less(cell, KNOWN, small))}
    less, words = grid.less(TOVA, KNOWN, small), "TOVA is barely below it ({:.1f}, {:.1f} to just under 0),"
    says(words, -less[0], -less[1], holds=known == {TOVA} and -0.1 < less[2] < 0)
    row, rest = grid.but_one(TOVA, KNOWN, small)
    words = "and without a single row of narrativeqa not told apart ({:.1f}, {:.1f} lower to {:.1f} higher);"
    says(words, -rest[0], -rest[1], rest[2], holds=chance(rest) and grid.task(row) == "narrativeqa")
    cut, printed = "truncate 4096", "infinipot-paper 4096 general"
    apart = {cell: less for cell in blind if not chance(less := grid.less(cell, UNKNOWN, small))}
    words = (
        "Truncation is above ({:.1f}, {:.1f} to {:.1f}) and the method as printed below ({:.1f}, {:.1f} to"
    )
    words += " {:.1f}), but neither without a single row."
    one = all(chance(grid.but_one(cell, UNKNOWN, small)[1]) for cell in (cut, printed))
    numbers = *apart[cut], *(-number for number in apart[printed])
    says(words, *numbers, holds=one and apart.keys() == {cut, printed} and apart[printed][2] < 0)

    known = {cell: less for cell in cells if not chance(less := grid.less(cell, KNOWN))}
    level = all(chance(grid.less(cell, UNKNOWN)) for cell in blind)
    tasks = [scores for scores in grid.by_task(KNOWN).values() if len(scores) < FEW]
    words = (
        "All {} rows add {} of six tasks with fewer than ten rows each. By all of them TOVA ({:.1f}, {:.1f}"
    )
    words += " to {:.1f}) and StreamingLLM"
    words += " ({:.1f}, {:.1f} to {:.1f}) are below with questions known, and none is above; with no question"
    told = [-number for cell in (TOVA, STREAMING) for number in known[cell]]
    below = known.keys() == {TOVA, STREAMING} and all(less[2] < 0 for less in known.values())
    says(f"{words} known none of the five", len(rows), len(small), *told, holds=below and level)
    says("of six tasks with fewer than ten rows each", holds=len(tasks) == 6)
    partly = ("swa 4096 step=256 tail=fill", "h2o 4096 step=256 tail=fill", *POTS)
    says("other sizes of the pot: under ten of most tasks)", holds=all(map(grid.sparse, partly)))
    level = all(chance(grid.less(SLOTS, UNKNOWN, some)) for some in ((), small))
    words = "Slots chosen one by one are not told apart from whole sentences, by all rows or by those {}."
    says(words, len(large), holds=level)
    words = (
        "1 and 3 were chosen in part on {} of the {} rows of LongBench; 2 was taken on condition that it is"
    )
    words += " not below on all {}."
    says(words, len(seen.keys() & rows), len(rows), len(rows))
    says("and (4) up to {} last slots kept before a question.", RECENT)
    known = {cell for cell in cells if not chance(grid.less(cell, KNOWN, seen))}
    alone = known == {TOVA} and all(chance(grid.less(cell, UNKNOWN, seen)) for cell in blind)
    words = "On the {} rows that 1 and 3 were not chosen on, of the five only TOVA is told apart, with"
    words += " questions known, and not without one"
    rest = grid.but_one(TOVA, KNOWN, seen)[1]
    words += " row ({:.1f}, {:.1f} lower to {:.1f} higher)."
    says(words, len(rows.keys() - seen), -rest[0], -rest[1], rest[2], holds=alone and chance(rest))
