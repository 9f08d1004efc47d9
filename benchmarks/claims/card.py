"""What docs/results.md and docs/serving.md say of one card: speed with today's code, a server of 64 slots."""

from __future__ import annotations

import re
from functools import partial
from statistics import median
from typing import Any

from claims.checks import Says
from claims.raw import clients, document

GB = 1e9


def claimed(says: Says) -> None:
    _today(partial(says, "docs/results.md"))
    _kernels(
        partial(says, "docs/adr/0022-pots-of-8-bits.md"), partial(says, "docs/adr/0023-few-bits-on-a-card.md")
    )
    _choosing(partial(says, "docs/choosing.md"))
    _served(partial(says, "docs/serving.md"))


def _choosing(says: partial[None]) -> None:
    alone, many = _part("decode-int4", "sums"), document("card/documents.json")
    token = [alone[f"decode_ms, pot of {bits} bits"] for bits in (8, 16)]
    words = (
        "a token of an 8B shape with weights in 4 bits takes {:.2f} ms instead of {:.2f}, and a step of 64"
    )
    step = _part("documents-8", "sums")["step_ms, layers"], many["step_ms"]
    says(f"{words} answers {{:.2f}} ms instead of {{:.1f}}", *token, *step)


def _today(says: partial[None]) -> None:
    both = [_part(name, "sums") for name in ("read-full", "read-fp8")]
    says("| first token | {:.2f} s | {:.2f} s |", *(one["first_token_s, all"] for one in both))
    says("#measured)) | {:.2f} s | {:.2f} s |", *(one["first_token_s, before"] for one in both))
    token = both[0]["decode_ms, all"]
    says("| a decoded token | {:.2f} ms | {:.2f} ms |", token, both[1]["decode_ms, all"])
    room = [_part(name)["reserved_gb"] for name in ("read", "read-fp8")]
    says("| memory reserved beyond the weights | {:.2f} GB | {:.2f} GB |", *room)
    weights = [document(f"card/{name}.json")["weights_gb"] for name in ("read", "read-fp8")]
    says("| the weights | {:.1f} GB | {:.1f} GB,", *weights)
    fixed, sizes = document("card/read-fixed-segments.json"), document("card/memory.json")
    says("of a fixed size {:.2f} GB and {:.2f} s.", fixed["reserved_gb"], fixed["first_token_s"])
    most = max(value for name, value in sizes.items() if "reserved" in name)
    says("At 16K, 128K and 512K tokens at most {:.2f} GB were reserved", most)
    many = document("card/documents.json")
    words = "64 documents answered at once in bfloat16: {:,.0f} tokens/s, {:.0f}% of what"
    says(words, many["tokens_s"], 100 * many["share_of_bound"])
    says("A step takes {:.1f} ms", many["step_ms"])
    half = _part("documents-8", "sums")
    step, share = half["step_ms, layers"], half["share_of_bound, layers"]
    words = "with pots of 8 bits it takes {:.2f} ms, {:,.0f} tokens/s, {:.1f}% of what half the"
    says(words, step, 64_000 / step, 100 * share)
    small, alone = document("card/small.json"), _part("decode-int4", "sums")
    says("reads 1M tokens in {:.1f} s; the card then", small["first_token_s, pot of 16 bits"])
    says("holds {:.2f} GB in all, {:.2f} GB of them weights.", small["card_used_gb"], small["weights_gb"])
    few = alone["decode_ms, pot of 16 bits"]
    words = (
        "A decoded token takes {:.2f} ms, {:.0f}% of bfloat16's ([sums.json](results/card/sums.json)), and"
    )
    says(f"{words} {{:.2f}} ms on a pot of 8 bits", few, 100 * few / token, alone["decode_ms, pot of 8 bits"])


def _part(name: str, run: str = "together") -> dict[str, Any]:
    """What `card_together.py` found of a part: medians of its rounds."""
    found = document(f"card/{run}.json")[name]
    return {key: median(value) if isinstance(value, list) else value for key, value in found.items()}


def _tried(start: str, end: str) -> float:
    """Microseconds of a line that was printed when kernels were tried."""
    (line,) = (
        one for one in document("card/tries.json")["chain"] if re.search(start, one) and one.endswith(end)
    )
    (found,) = re.findall(r"([\d.]+) us", line)
    return float(found)


def _printed(part: str, words: str) -> float:
    """The number before such words in what was printed when kernels were tried."""
    (found,) = (one for one in document("card/tries.json")[part] if re.search(words, one))
    return float(re.findall(r"([\d.]+) ms", found)[0])


def _form(what: str, form: str, run: str = "units") -> tuple[float, float, float]:
    """Microseconds, GB/s and relative error of a kernel's form."""
    (row,) = (
        text
        for name, text in document(f"card/{run}.json").items()
        if name.startswith(what) and text.endswith(f"  {form}")
    )
    us, rate, error = re.findall(r"[\d.]+", row)[:3]
    return float(us), float(rate), float(error)


def _kernels(pots: partial[None], products: partial[None]) -> None:
    many, alone, first = "64 pots of 8 bits", "1 pots of 8 bits", "units-first"
    read = _form("memory", "read")[1]
    forms = [_form(many, f"({slots}, None, True)") for slots in (512, 1024, 2048)]
    words = "{:.0f} us by the kernel without Gluon, {:.0f} us by the first one"
    pots(words, _form(many, "as it was", first)[0], _form(many, "(512, None)", first)[0])
    pots("{:.0f} us by the second: {:,.0f} GB/s, where reading alone reaches {:,.0f};", *forms[0][:2], read)
    tried = [_tried("^64 pots of 8 bits", f"  {slots}") for slots in (512, 1024, 2048)]
    pots("{:.0f} us by today's (below).", tried[2])
    pots("{:.1f}, {:.1f} and {:.1f} us with programs of 512, 1,024 and 2,048 slots", *tried)
    today, reading = (_part(name, "layers") for name in ("documents-8", "read-full"))
    latest = _part("documents-8", "sums")
    words = "with today's it takes {:.2f} ms ([sums.json](../results/card/sums.json)), {:.1f}% of"
    pots(words, latest["step_ms, layers"], 100 * latest["share_of_bound, layers"])
    turns = today["step_ms, layers"], today["step_ms, before"]
    products("64 documents on pots of 8 bits {:.2f} instead of {:.2f} ms a step;", *turns)
    late = today["step_ms, layers, early"]
    products("gained nothing ({:.2f} ms) and went.", late, holds=turns[0] < late)
    words = "bfloat16 128K tokens {:.2f} instead of\n{:.2f} s;"
    products(words, reading["first_token_s, all"], reading["first_token_s, before"])
    words = "a single token of bfloat16 {:.2f} instead of {:.2f} ms,"
    products(words, reading["decode_ms, all"], reading["decode_ms, before"])
    rounded = _part("read-fp8", "layers")
    words = "The second head alone: {:.2f} instead of {:.2f} s."
    products(words, rounded["first_token_s, all"], rounded["first_token_s, before"])
    _sums(products)
    common = document("bits-heads-smollm2.json")["slots_in_common_after_all_cycles"]
    shares = [100 * common[f"as it is | {what}"] for what in ("layers", "head", "layers and head")]
    words = "layers in 8-bit floats keep {:.1f}%, the head alone in them {:.1f}%, both {:.1f}%."
    products(words, *shares)
    steps = [document(f"card/{name}.json")["step_ms"] for name in ("documents-8", "steps-8", "documents")]
    pots("of 64 answers took {:.1f} ms with the kernel without Gluon", steps[0])
    pots("and {:.1f} ms with the first one with it", steps[1])
    pots("against {:.1f} ms", steps[2])
    ahead, behind = (_form(alone, f"(64, None, {one})")[0] for one in (True, False))
    usual = _form("1 pot of 16 bits", "128")[0]
    pots("A single pot takes {:.1f} us a layer, one of 16 bits {:.1f} us:", ahead, usual)
    pots("the error grew with the slots ({:.4f}, {:.4f}, {:.4f})", *(one[2] for one in forms))
    plain = _form(many, "(1024, None, False)")[0]
    pots("is worth {:.0f} instead of {:.0f} us for 64 pots", forms[1][0], plain)
    pots("loses by it, {:.1f} instead of {:.1f} us.", ahead, behind)
    chosen = {
        "gate and up int4": "(2, 4, False, None, 128)",
        "down int4": "(8, 1, False, 128, 128)",
        "qkv int4": "(4, 1, True, None, 64)",
        "o int4": "(4, 1, True, None, 64)",
    }
    wide, *others = (_form(what, form) for what, form in chosen.items())
    products("{:.0f} us by a kernel for one", sum(_form(what, "as it was", first)[0] for what in chosen))
    products("{:.0f} us now.", sum(one[0] for one in (wide, *others)))
    head = _form("head int8", "(4, 2, True, 168, 64)")[1]
    words = (
        "are read at {:,.0f} GB/s, the head in 8 bits at {:,.0f}, where reading alone reaches {:,.0f}; the"
    )
    products(words, wide[1], head, read)
    rates = [one[1] for one in others]
    products("smaller weights at {:,.0f} to {:,.0f}.", min(rates), max(rates))
    before = document("card/decode-int4.json")["decode_ms, pot of 16 bits"]
    products("A whole token then took {:.2f} ms", before)
    tokens = [_part("decode-int4")[f"decode_ms, pot of {bits} bits"] for bits in (16, 8)]
    products("a whole token takes {:.2f} ms, {:.2f} ms on a pot of", *tokens)
    for words, line in (
        ("has ended | {:.1f} |", "begins late"),
        ("before they wait | {:.1f} |", "begins early, sends for 64, wide 16"),
        ("send for nothing | {:.1f} |", "sends for nothing"),
        ("reads 128 slots instead of 64 | {:.1f} |", "pieces of 128"),
        ("8 warps for q, k, v and o instead of 4 | {:.1f} |", "small (8, 1)"),
    ):
        products(words, _tried("us a layer", line))
    read, early = (_part(name)["first_token_s"] for name in ("read-fp8", "read-fp8-early"))
    products("Reading 128K tokens in fp8 took {:.2f} s", read)
    products("{:.2f} s where the compiler's kernels begin early", early)
    cycle, kernels = (_printed("fp8", words) for words in ("ms a cycle.*as it is$", "ms, all kernels$"))
    products("a cycle took {:.1f} ms, of which kernels were {:.1f} ms", cycle, kernels)


def _sums(products: partial[None]) -> None:
    """Reading by our own layers with what they gained since."""
    rounded, full = (_part(name, "sums") for name in ("read-fp8", "read-full"))
    words = "128K tokens in fp8 take {:.2f} s instead of {:.2f} s by the compiled decoder with one head"
    products(words, rounded["first_token_s, all"], rounded["first_token_s, before"])
    words = "bfloat16 {:.2f} instead of {:.2f} s: that card was slower than the one before."
    products(words, full["first_token_s, all"], full["first_token_s, before"])
    without, alone = (_part("read-fp8", name) for name in ("layers-fp8", "sums-alone"))
    words = "fp8 took {:.2f} s without both ([layers-fp8.json](../results/card/layers-fp8.json))"
    products(words, without["first_token_s, all"])
    products("and {:.2f} s with the sums alone", alone["first_token_s, all"])
    compiled = [one["first_token_s, before"] for one in (without, alone)]
    products("the compiled decoder took {:.2f} and {:.2f} s there.", *compiled)
    spent = [_profiled(full, name) for name in ("nvjet", "cudnn", "")]
    words = "Of {:.1f} ms of kernels a cycle in bfloat16 products are {:.1f} and attention {:.1f};"
    products(words, spent[2], *spent[:2])


def _profiled(found: dict[str, Any], begins: str) -> float:
    """Milliseconds of kernels whose name begins so, or of all."""
    told = {name.partition("ms: ")[2]: value for name, value in found["profile"].items() if "ms: " in name}
    if not begins:
        return float(found["profile"]["ms, all kernels"])
    return sum(float(value.split()[0]) for name, value in told.items() if name.startswith(begins))


def _served(says: partial[None]) -> None:
    both = [document(f"load-card-{name}.json") for name in ("qwen", "8b")]
    older = [document("load-card-qwen-texts.json"), both[1]]  # texts were not read again since then
    texts, again = ([one["many"][part] for one in older] for part in ("texts", "again_1"))
    says("| from the start to ready | {:.0f} s | {:.0f} s |", *(one["start_s"] for one in both))
    counts = [number for one in texts for number in (one["answered"], one["requests"], one["seconds"])]
    says("| texts read and answered | {} of {} in {:.0f} s | {} of {} in {:.0f} s |", *counts)
    words = "| all 64 ask again in one moment: first token, median | {:.1f} s | {:.1f} s |"
    says(words, *(one["first_p50_s"] for one in again))
    _fair(says, both)
    held = [both[0]["fair"]["memory"], both[1]["many"]["memory"]]
    sizes = [one[name] / GB for one in held for name in ("most_bytes", "memory_bound_bytes")]
    words = "| memory at most, of the bound printed | {:.1f} of {:.1f} GB | {:.1f} of {:.1f} GB |"
    says(words, *sizes, holds=all(one["within_bound"] for one in held))
    whole = document("load-card-8b-whole.json")["whole"]
    says("holds {} of the {} texts, then memory runs out", whole["users"], whole["of"])
    says("all would take {:.0f} GB.", whole["needed_for_all_bytes"] / GB)


def _fair(says: partial[None], both: list[dict[str, Any]]) -> None:
    """Short questions by themselves, and while a text of a million tokens is read."""
    fair = [one["fair"] for one in both]
    quiet, busy, short = ([one[name] for one in fair] for name in ("quiet", "busy", "short_questions"))
    alone = [one["bench"]["documents"][-1]["tokens_s"] for one in both]
    rates = [one["tokens_s"] for one in quiet]
    apart = fair[0]["apart"]
    words = "wait {:.2f} s for their first token in the median and get {:,.0f} tokens/s together, {:.0f}% of"
    says(words, apart["first_p50_s"], rate := apart["steady_tokens_s"], 100 * rate / alone[0])
    many = [clients(one) for one in both]
    words = "| {} clients (8B: {}) ask short questions, one after the other: tokens/s | {:,.0f} | {:,.0f} |"
    says(words, *many, *rates)
    shares = [x for rate, bench in zip(rates, alone, strict=True) for x in (100 * rate / bench, bench)]
    words = (
        "| of `infinipot bench --documents 64`, without a server | {:.0f}% of {:,.0f} | {:.0f}% of {:,.0f} |"
    )
    says(words, *shares)
    waits = [one[name] for one in quiet for name in ("first_p50_s", "first_p95_s")]
    says("| first token then, median and p95 | {:.2f} s, {:.2f} s | {:.2f} s, {:.2f} s |", *waits)
    says("| tokens in a piece of an answer then | {:.1f} | {:.1f} |", *_tokens(quiet))
    words = "| time between two pieces then, p95 | {:.1f} ms | {:.1f} ms |"
    says(words, *(one["gap_p95_ms"] for one in quiet))
    words = "| the same while a million tokens are read for one more client, p95 | {:.1f} ms | {:.1f} ms |"
    says(words, *(one["gap_p95_ms"] for one in busy))
    says("| as many times the quiet one | {:.1f} x | {:.1f} x |", *(one["p95_times_quiet"] for one in fair))
    words = "| first token of a short question meanwhile, p95 | {:.2f} s | {:.2f} s |"
    says(words, *(one["first_p95_s"] for one in short))
    says("| tokens/s and tokens in a piece then | {:,.0f}, {:.1f} | {:,.0f}, {:.1f} |", *_rates(busy))
    says("| the million tokens read in | {:.0f} s | {:.0f} s |", *(one["text_read_s"] for one in fair))


def _tokens(found: list[dict[str, Any]]) -> list[float]:
    return [one["tokens"] / one["pieces"] for one in found]


def _rates(found: list[dict[str, Any]]) -> list[float]:
    return [x for one in found for x in (one["tokens_s"], one["tokens"] / one["pieces"])]
