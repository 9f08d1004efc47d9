"""What the documentation says of speed and memory: docs/results.md, docs/how-it-works.md, ADR 9, ADR 10."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from claims.checks import Says
from claims.raw import RESULTS, document, rows_of

K, GB = 1024, 1e9


def claimed(says: Says) -> None:
    _card(partial(says, "docs/results.md"))
    _again(partial(says, "docs/results.md"))
    _kernels(partial(says, "docs/adr/0009-kernels-and-tables-of-addresses.md"))
    _processor(says)
    _products(partial(says, "docs/adr/0010-products-in-bfloat16-on-a-cpu.md"))
    _memory(says)
    _needs(partial(says, "docs/models.md"))
    _start(partial(says, "docs/models.md"))
    _packed(partial(says, "docs/models.md"))
    pairs = document("bits-chunks-qwen-avx2.json")
    slots = 100 * pairs["slots_in_common_after_all_cycles"], pairs["tokens"]
    says("docs/footguns.md", "{:.1f}% after {:,} in 8 bits without VNNI", *slots)
    _busy(partial(says, "docs/models.md"))
    _eight_bits(partial(says, "docs/adr/0022-pots-of-8-bits.md"))


def _bench(name: str, system: str, length: int) -> dict[str, Any]:
    rows = document(f"bench-{name}.json")["rows"]
    return next(row for row in rows if (row["system"], row["length"]) == (system, length))


def _card(says: partial[None]) -> None:
    card = partial(_bench, "llama-3-8b-h200")
    ours = {k: card("infinipot", k * K) for k in (16, 128, 1024)}
    theirs = {k: card("transformers", k * K) for k in (16, 128, 1024)}
    first = "first_token_s"
    says("| first token after 16K tokens | {:.2f} s | {:.2f} s |", ours[16][first], theirs[16][first])
    says("| first token after 128K | {:.2f} s | {:.1f} s |", ours[128][first], theirs[128][first])
    needs = re.search(r"its cache needs ([\d.]+) GB", theirs[1024]["failed"])
    assert needs
    says(
        "| first token after 1M | {:.1f} s | does not fit: its cache needs {:.0f} GB |",
        ours[1024][first],
        float(needs[1]),
    )
    both = ours[128], theirs[128]
    says("| reading at 128K | {:,.0f} tokens/s | {:,.0f} tokens/s |", *(row["tokens_s"] for row in both))
    says("| a decoded token after 128K | {:.2f} ms | {:.1f} ms |", *(row["decode_ms"] for row in both))
    reserved = (row["reserved_bytes"] / GB for row in both)
    says("| memory reserved beyond the weights at 128K | {:.2f} GB | {:.1f} GB |", *reserved)
    eight = document("bench-llama-3-8b-h200.json")["documents"][1]
    says("| eight documents answered at once, against one | {:.2f} x | |", eight["times_one"])
    said = _bench("qwen-h200", "infinipot", 1024 * K)[first]
    says("has its first token after 1M tokens in {:.1f} s", said)


def _again(says: partial[None]) -> None:
    later = document("bench-llama-3-8b-h200-128k.json")
    ours, theirs = later["rows"]
    words = (
        "first token after {:.2f} s against {:.1f} s, {:.1f}% of the card's matmul ceiling, {:.2f} "
        "ms a token,"
    )
    says(words, ours["first_token_s"], theirs["first_token_s"], 100 * ours["matmul_share"], ours["decode_ms"])
    words = (
        "eight documents {:.2f} x one, and {:.2f} GB reserved beyond the weights, {:.2f} GB of them "
        "in use at most"
    )
    used = ours["reserved_bytes"] / GB, ours["allocated_bytes"] / GB
    says(words, later["documents"][1]["times_one"], *used)

    for name, words in (
        (
            "llama-3-8b-h200",
            "reading {:.3f} x ({:.3f} to {:.3f}), decoding {:.4f} x ({:.4f} to {:.4f}), first token {:.3f} x "
            "({:.3f} to {:.3f}), medians of {}",
        ),
        (
            "cpu",
            "gave {:.3f} x reading ({:.2f} to {:.2f} over {} rounds), {:.2f} x the time of a decoded token "
            "({:.2f} to {:.2f}) and {:.3f} x",
        ),
    ):
        found = document(f"compare-{name}.json")
        times = {what: one["after_over_before"] for what, one in found["speed"].items()}
        read, token, first = times["tokens_s"], times["decode_ms"], times["first_token_s"]
        rounds, reading = len(found["rounds"]), (read["median"], read["least"], read["most"])
        if name == "cpu":
            says(words, *reading, rounds, token["median"], token["least"], token["most"], first["median"])
        else:
            same = {one[what] for one in found["same"].values() for what in ("answer", "slots", "logits")}
            others = [one[what] for one in (token, first) for what in ("median", "least", "most")]
            says(words, *reading, *others, rounds)
            faster = sum(one["after"]["decode_ms"] < one["before"]["decode_ms"] for one in found["rounds"])
            level = all(one["least"] < 1 < one["most"] for one in (read, first))
            says("decoding was faster afterwards in {} of them, by half a thousandth;", faster, holds=level)
            says("logits, kept slots, answers and saved pots were identical", holds=same == {"identical"})


def _kernels(says: partial[None]) -> None:
    found = document("bench-llama-3-8b-h200.json")
    ours, theirs = (_bench("llama-3-8b-h200", who, 128 * K) for who in ("infinipot", "transformers"))
    first, peer = ours["first_token_s"], theirs["first_token_s"]
    words = (
        "first token after 128K tokens {:.2f} s, {:.2f} x sooner than transformers with full KV in "
        "the same run ({:.1f} s);"
    )
    says(words, first, peer / first, peer)
    ceiling = found["ceilings"]
    words = (
        "reading at {:.1f}% of the matmul ceiling of the run ({:.0f} TFLOP/s; {:.0f}% of what the "
        "card sustains for seconds, {:.0f});"
    )
    shares = 100 * ours["matmul_share"], ceiling["matmul_tflops"], 100 * ours["matmul_share_sustained"]
    says(words, *shares, ceiling["matmul_tflops_sustained"])
    every = [_bench("llama-3-8b-h200", "infinipot", k * K) for k in (16, 128, 1024)]
    token = {f"{row['decode_ms']:.2f}" for row in every}
    words = "1M tokens {:.1f} s; {:.2f} ms a decoded token after 16K, 128K and 1M;"
    says(words, every[2]["first_token_s"], ours["decode_ms"], holds=len(token) == 1)
    share = found["shares"][0]
    words = (
        "distillation with the catalyst's tokens {:.1f}% of a cycle, novelty {:.1f}%; eight "
        "documents at once {:.2f} x"
    )
    parts = 100 * share["distillation_share"], 100 * share["novelty_share"]
    says(words, *parts, found["documents"][1]["times_one"])
    qwen = _bench("qwen-h200", "infinipot", 1024 * K)
    says("weights: {:.0f}K tokens/s, 1M tokens in {:.1f} s.", qwen["tokens_s"] / 1000, qwen["first_token_s"])
    says("The pot is {:.2f} GB.", ours["cache_bytes"] / GB)
    reserved = [row["reserved_bytes"] for row in every]
    words = "torch keeps {:.2f} GB reserved at 16K, 128K and 1M alike (within {:.1f}%)"
    says(words, reserved[1] / GB, 0.5, holds=max(reserved) / min(reserved) < 1.005)
    says("A cycle of {:.0f} ms has", 56, holds=55 < share["complete_ms"] < 57)
    says("of {:.2f} ms a token", ours["decode_ms"])


def _processor(says: Says) -> None:
    found = document("bench-cpu-mixed.json")["side_by_side"]
    read, token = found["reading"]["infinipot"], found["decoding"]["infinipot"]
    peers = "transformers", "llama.cpp"
    reading = read["tokens_s"], *(read["times_as_fast_as"][who] for who in peers)
    decoding = token["tokens_s"], *(token["times_as_fast_as"][who] for who in peers)
    words = "cached | {:.0f} tokens/s: {:.2f} x transformers (float32; {:.2f} to {:.2f}), {:.2f} x llama.cpp"
    ratios = [n for who in peers for n in _times(found["reading"], who)]
    says("docs/results.md", f"{words} (Q4_1; {{:.2f}} to {{:.2f}}) |", read["tokens_s"], *ratios)
    words = (
        "| decoding at 4,096 | {:.1f} tokens/s: {:.2f} x transformers ({:.2f} to {:.2f}), {:.2f} x llama.cpp"
    )
    ratios = [n for who in peers for n in _times(found["decoding"], who)]
    says("docs/results.md", f"{words} ({{:.2f}} to {{:.2f}}) |", token["tokens_s"], *ratios)
    adr = "docs/adr/0010-products-in-bfloat16-on-a-cpu.md"
    says(adr, "cached {:.0f} tokens/s, {:.2f} x plain transformers in float32", *reading[:2])
    says(adr, "and {:.2f} x llama.cpp (Q4_1);", reading[2])
    says(adr, "decoding at 4,096 {:.1f} tokens/s, {:.2f} x transformers and {:.2f} x llama.cpp.", *decoding)
    mixed = document("mixed.json")
    slots = 100 * mixed["slots_in_common_after_all_cycles"]
    says("docs/results.md", "| kept slots in common with float32 after 16K tokens | {:.1f}% |", slots)
    says("docs/footguns.md", "{:.1f}% of slots in common after 16K tokens", slots)
    says("docs/models.md", "16K tokens {:.1f}% of the kept slots are the same", slots)
    says(adr, "thousand tokens in a pot of 2,048 {:.1f}% of all kept slots are those of float32.", slots)
    words = (
        "by {:.3f} of a mean {:.2f} (correlation {:.4f}) and the likeliest next token is the same "
        "for {:.1f}% of tokens"
    )
    novelty = mixed["novelty_mean_difference"], mixed["novelty_mean"], mixed["novelty_correlation"]
    says(adr, words, *novelty, 100 * mixed["same_likeliest_token"])
    bits = document("bits-smollm2.json")
    words = "Of {} tokens written one by one, as in an answer, {:.1f}% have the same likeliest next token,"
    says("docs/models.md", words, bits["answer_tokens"], 100 * bits["same_likeliest_token"])
    words = "the mean divergence is {:.4f} nats ({:.2f} at most)"
    says("docs/models.md", words, bits["divergence_mean_nats"], bits["divergence_most_nats"])
    kept = 100 * bits["slots_in_common_after_all_cycles"]
    says("docs/models.md", "{:.1f}% of the kept slots are those of full weights", kept)


def _needs(says: partial[None]) -> None:
    rows = {row["model"]: row for row in document("needs.json")["rows"]}
    for name, size in (("SmolLM2", 98), ("Qwen2.5-Coder", 1117), ("Gemma-3", 253)):
        (one,) = (row for model, row in rows.items() if model[:5] == name.lower()[:5])
        says(f"| {size:,} MB | {{:.1f}} GB |", one["peak_memory_bytes"] / GB)
    read = min(row["tokens_read"] for row in rows.values())
    says("while it read some {:,} tokens in a pot of 4,096", round(read, -2))
    held = document("limited-qwen-packed.json")
    says("under a limit of {:.1f} GB that the kernel enforced", held["limit_bytes"] / GB)
    says("and took {:.2f} GB ([raw](results/limited-qwen-packed", held["told"]["peak_memory_bytes"] / GB)
    held = document("limited-qwen-100k.json")
    same = held["limit_bytes"] == document("limited-qwen-packed.json")["limit_bytes"] and not held["killed"]
    says("it read {:,} tokens of a novel under the", held["told"]["tokens_read"], holds=same)
    says("same limit and took {:.2f} GB", held["told"]["peak_memory_bytes"] / GB)


def _start(says: partial[None]) -> None:
    told = re.findall(r"([\d.]+) s in all, (\d+) KB", (RESULTS / "start-qwen-later.txt").read_text("utf-8"))
    seconds, size = [float(one) for one, _ in told], max(int(size) for _, size in told) * 1024
    words = "took {:.1f} to {:.1f} s from the command to its end on two quiet cores"
    says(words, min(seconds), max(seconds))
    says("start-qwen-later.txt)), and {:.2f} GB.", size / GB)


def _packed(says: partial[None]) -> None:
    for name in ("smollm2", "qwen"):
        found = document(f"bench-cpu-packed-{name}.json")["side_by_side"]
        both = [found[part] for part in ("reading", "decoding")]
        ratios = [n for one in both for peer in ("llama.cpp", "transformers") for n in _times(one, peer)]
        cells = "{:.2f} times ({:.2f} to {:.2f})" + 3 * " | {:.2f} ({:.2f} to {:.2f})" + " |"
        says(f"([raw](results/bench-cpu-packed-{name}.json)) | {cells}", *ratios)
    words = "qwen's gave {:.2f}, {:.2f} and {:.2f} times transformers,"
    says(words, *_rounds(found["reading"], "transformers"))
    _chunks(says)


def _busy(says: partial[None]) -> None:
    """The shares of the quiet speed that are left beside a busy process."""
    found = document("busy-cpu.json")
    both = [found["share_of_the_quiet_speed"][name] for name in ("reading", "decoding")]
    read, token = ([100 * one["busy"][name] for name in ("median", "least", "most")] for one in both)
    says("reads at {:.0f}% of its quiet speed ({:.0f} to {:.0f}%)", *read)
    says("makes a token at {:.0f}% ({:.0f} to {:.0f}%; medians of", *token)
    says("five rounds in turns", holds=len(found["seconds"]["reading"]["busy"]) == 5)
    says("since it leaves one core to the other program", holds=set(found["chosen_threads"]) == {1})
    says("with two threads named, {:.0f}% and {:.0f}%", *(100 * one["held"]["median"] for one in both))


def _chunks(says: partial[None]) -> None:
    chunks, narrow = document("bits-chunks-qwen.json"), document("bits-chunks-smollm2.json")
    same = 100 * chunks["same_likeliest_token"]
    says("over {:,} tokens of *Moby Dick* read by", chunks["answer_tokens"])
    far = chunks["divergence_mean_nats"], chunks["divergence_most_nats"]
    says("{:.1f}% have the same likeliest next token, they diverge by", same)
    says("they diverge by {:.4f} nats in the mean ({:.2f} at most),", *far)
    right = [100 * share for share in chunks["next_token_right"]]
    off = right[0] - right[1], 100 * chunks["next_token_right_error_of_difference"]
    words = "is right for {:.2f}% in float32 and for {:.2f}% (a difference of {:.2f} points, with a standard"
    words += " error of {:.2f}),"
    says(words, *right, *off, holds=off[0] < off[1])
    kept = 100 * chunks["slots_in_common_after_all_cycles"], chunks["tokens"], chunks["capacity"]
    says("and {:.1f}% of the slots kept after {:,} tokens in a pot of {:,} are the same.", *kept)
    pairs = document("bits-chunks-qwen-avx2.json")
    alike = pairs["same_likeliest_token"], pairs["slots_in_common_after_all_cycles"]
    shares = [100 * one for one in (alike[0], *pairs["next_token_right"], alike[1])]
    words = "the same text): {:.1f}%, {:.4f} nats, {:.2f}% and {:.2f}%, and {:.1f}% of the slots."
    says(words, shares[0], pairs["divergence_mean_nats"], *shares[1:], holds=pairs["text"] == chunks["text"])
    says("smollm2.json): {:.1f}% the same token)", 100 * narrow["same_likeliest_token"])
    rounded = document("bits-chunks-smollm2-bfloat16.json")
    says("its small heads): {:.1f}% the same token,", 100 * rounded["same_likeliest_token"])
    right = [100 * share for share in rounded["next_token_right"]]
    words = "{:.4f} nats, the next token right for {:.2f}% and {:.2f}%, {:.1f}% of the slots"
    far, kept = rounded["divergence_mean_nats"], 100 * rounded["slots_in_common_after_all_cycles"]
    says(words, far, *right, kept)
    found = document("bench-cpu-integers-qwen.json")["side_by_side"]["reading"]
    ours, theirs = found["infinipot"], found["transformers"]
    rounds = [slow / fast for slow, fast in zip(theirs["seconds"], ours["seconds"], strict=True)]
    says("{:.2f} times as fast as transformers in float32", ours["times_as_fast_as"]["transformers"])
    says("({:.2f} to {:.2f} in three rounds): {:.0f} tokens/s;", min(rounds), max(rounds), ours["tokens_s"])
    _beside_llama(says)


def _beside_llama(says: partial[None]) -> None:
    names = "qwen", "smollm2", "token-smollm2", "token-qwen", "token-smollm2-ggml", "token-qwen-ggml"
    runs = [document(f"bench-cpu-llama-{name}.json")["side_by_side"] for name in names]
    token = [_times(run["decoding"], "llama.cpp") for run in runs]
    rounds = [len(run["decoding"]["infinipot"]["seconds"]) for run in runs]
    words = (
        "it read {:.2f} times as fast as llama.cpp with the same file and threads ({:.2f} to {:.2f} in three"
    )
    three = len(runs[0]["reading"]["infinipot"]["seconds"]) == 3
    says(words, *_times(runs[0]["reading"], "llama.cpp"), holds=three)
    words = "{:.2f} times as fast as llama.cpp ({:.2f} to {:.2f}) and {:.2f} times as fast as transformers"
    ratios = [n for peer in ("llama.cpp", "transformers") for n in _times(runs[1]["reading"], peer)]
    says(f"{words} ({{:.2f}} to {{:.2f}}) in reading", *ratios)
    says("`smollm2` in four rounds", holds=rounds[1] == 4)
    says("`smollm2` {:.2f} times as fast ({:.2f} to {:.2f} in {} rounds;", *token[2], rounds[2])
    says("`qwen2.5-coder-1.5b` {:.2f} ({:.2f} to {:.2f} in five;", *token[3], holds=rounds[3] == 5)
    words = "catalyst and distillation in it, is slower: {:.2f} times ({:.2f} to {:.2f}) and {:.2f} ({:.2f}"
    short = [_times(run["reading"], "llama.cpp") for run in runs[2:4]]
    says(f"{words} to {{:.2f}}) as fast.", *short[0], *short[1], holds=max(short[0][2], short[1][2]) < 1)
    compiled = ["llvmlite" in document(f"bench-cpu-llama-{name}.json")["versions"] for name in names[2:]]
    says("with the extra `compiled`: `smollm2`", holds=compiled == [True, True, False, False])
    says("attention is ggml's: {:.2f} ({:.2f} to {:.2f};", *token[4])
    says("and {:.2f} ({:.2f} to {:.2f}; [raw](results/bench-cpu-llama-token-qwen-ggml", *token[5])
    words = "above {:.2f} ({:.2f} to {:.2f}) and {:.2f} ({:.2f} to {:.2f}, not told apart): rounds"
    says(words, *token[1], *token[0], holds=token[0][1] < 1 < token[0][2])


def _rounds(found: dict[str, Any], peer: str) -> list[float]:
    """How many times as fast as a peer ours was, round by round."""
    pairs = zip(found[peer]["seconds"], found["infinipot"]["seconds"], strict=True)
    return [slow / fast for slow, fast in pairs]


def _times(found: dict[str, Any], peer: str) -> tuple[float, float, float]:
    """How many times as fast as a peer ours was: in the median of the rounds, at least and at most."""
    ratios = _rounds(found, peer)
    return found["infinipot"]["times_as_fast_as"][peer], min(ratios), max(ratios)


def _eight_bits(says: partial[None]) -> None:
    found = document("bits-pots-smollm2.json")
    slots, same = found["slots_in_common_after_all_cycles"], found["same_likeliest_token"]
    words = "{:.1f}% of the kept slots are the same; of {} tokens {:.1f}% have the same likeliest next one,"
    says(words, 100 * slots, found["answer_tokens"], 100 * same)
    nats = found["divergence_mean_nats"], found["divergence_most_nats"]
    says("a mean divergence of {:.4f} nats ({:.3f} at most)", *nats)
    eight, full = (found["pots"][bits]["pot_bytes"] / 1e6 for bits in ("8", "16"))
    says("The pot takes {:.1f} MB instead of {:.1f} MB in float32;", eight, full)
    qwen = document("bits-pots-qwen.json")
    answers, same = qwen["answer_tokens"], round(qwen["same_likeliest_token"] * qwen["answer_tokens"])
    kept = 100 * qwen["slots_in_common_after_all_cycles"], same, answers
    nats = qwen["divergence_mean_nats"], qwen["divergence_most_nats"]
    words = "{:.1f}% of the slots, {} of {} likeliest tokens, {:.4f} nats ({:.3f} at most)"
    says(words, *kept, *nats)


def _products(says: partial[None]) -> None:
    found = document("cpu.json")
    products, attention = found["products_gflops, 2048 x 576 x 1536"], found["attention_gflops"]
    words = "{:.0f} GFLOP/s in torch's own layout, {:.0f} by oneDNN, {:.0f} by oneDNN in bfloat16."
    says(words, *(products[name] for name in ("float32, torch", "float32, oneDNN", "bfloat16, oneDNN")))
    flash, causal = attention["float32"], attention["float32, causal, half of the work"]
    says("is no faster ({:.0f} against {:.0f})", attention["bfloat16"], flash)
    says("kernel gives {:.0f} GFLOP/s ({:.0f} where it is causal)", flash, causal)
    profile = (RESULTS / "cpu-profile.txt").read_text("utf-8").split("Ten tokens")
    share = [re.search(r"flash_attention_for_cpu +([\d.]+)% +([\d.]+)", part) for part in profile]
    products_ms = re.search(r"mkldnn::_linear_pointwise +[\d.]+% +([\d.]+)ms", profile[1])
    assert share[0]
    assert share[1]
    assert products_ms
    says("attention in float32 is now {:.0f}% of a cycle", float(share[0][1]))
    decoded = document("bench-cpu-mixed.json")["side_by_side"]["decoding"]["infinipot"]["seconds"]
    took = 1000 * sorted(decoded)[0]
    spent = float(products_ms[1]) / 10, float(share[1][2]) / 10
    says("Of a decoded token's {:.0f} ms products take {:.0f} and attention {:.0f};", took, *spent)
    says("the rest, some {:.0f} ms,", took - sum(spent))
    one = found["one_token_products_ms"]
    says("Weights in int8 would save {:.0f} ms.", one["bfloat16"] - one["int8"])


def _demo(says: Says) -> None:
    demo = document("demo.json")
    cache = demo["pot_bytes"] / GB, demo["full_kv_bytes"] / GB
    words = "{:,} tokens read | pot {:.2f} GB; the whole cache would be {:.2f} GB"
    says("docs/how-it-works.md", words, demo["tokens_read"], *cache)
    recalled, alone, cut, found = (
        sum(row[name] for row in demo["questions"])
        for name in ("recall_right", "pot_right", "truncated_right", "found")
    )
    words = "{:,} tokens of Moby Dick in a pot of 2,048 | {:.0f} s;"
    says("docs/results.md", words, demo["tokens_read"], demo["seconds"])
    words = "right with recall {} of {}, from the pot alone {}, truncated {}; the passage was found for {}"
    says("docs/results.md", words, recalled, len(demo["questions"]), alone, cut, found)
    adr = "docs/adr/0015-what-fits-where-a-text-ends.md"
    settled, fitted = (document(f"{name}.json")["facts"] for name in ("demo-logbook", "demo-fit"))
    right = [sum(fact["pot_right"] for fact in facts) for facts in (fitted, settled)]
    says(adr, "it told {} of {} facts fitted", right[0], len(fitted))
    says(adr, "and {} of {} settled", right[1], len(settled))


def _memory(says: Says) -> None:
    short, long = document("memory.json")["rows"]
    peaks = long["peak_memory_bytes"] / GB, short["peak_memory_bytes"] / GB
    says(
        "docs/results.md",
        "| peak memory, 104K tokens against 10K, float32 | {:.2f} GB against {:.2f} GB |",
        *peaks,
    )
    says("docs/how-it-works.md", "104K tokens against 10K | {:.2f} GB against {:.2f} GB at the peak", *peaks)
    _demo(says)
    rows = [_bench("llama-3-8b-h200", "infinipot", k * K)["reserved_bytes"] / GB for k in (16, 128, 1024)]
    words = "16K to 1M tokens | {:.2f} to {:.2f} GB reserved beyond the weights"
    says("docs/how-it-works.md", words, min(rows), max(rows))
    pot = _bench("llama-3-8b-h200", "infinipot", 128 * K)["cache_bytes"] / GB
    says("docs/serving.md", "{:.2f} GB for an 8B model with 8 KV heads at 4,096 entries", pot)
    says("docs/adr/0022-pots-of-8-bits.md", "{:.2f} GB for an 8B shape at 4,096 entries", pot)
    says("docs/adr/0021-a-server-on-a-card.md", "that is {:.1f} GB each way,", pot)
    share = document("bench-llama-3-8b-h200.json")["shares"][0]
    words = "The catalyst and the choice of slots take {:.1f}% of a cycle on an H200, novelty {:.1f}%"
    says("docs/how-it-works.md", words, 100 * share["distillation_share"], 100 * share["novelty_share"])
    run, limit = rows_of("cpu-128k").cell("infinipot 2048 question").rows, document("cpu-128k/limit.json")
    found, count = rows_of("cpu-128k").right("infinipot 2048 question")
    speed = sum(row["tokens_read"] for row in run) / sum(row["seconds"]["read"] for row in run)
    words = (
        "under a kernel limit of {:.0f} GB, the key at 10%, 50%, 90% | **{} of {} found**; {:.0f} "
        "tokens/s, {:.2f} GB at the peak |"
    )
    says("docs/results.md", words, limit["limit_bytes"] / GB, found, count, speed, limit["peak_bytes"] / GB)
    lost, peak = (
        rows_of("cpu-1m-fit").right("infinipot 2048 question"),
        document("cpu-1m-fit/limit.json")["peak_bytes"],
    )
    says("docs/results.md", "| **not found**; {:.2f} GB at the peak |", peak / GB, holds=lost == (0, 1))
