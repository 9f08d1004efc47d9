"""What docs/results.md and docs/serving.md say of one card: speed with today's code, a server of 64 slots."""

from __future__ import annotations

from functools import partial
from typing import Any

from claims.checks import Says
from claims.raw import document

GB = 1e9


def claimed(says: Says) -> None:
    _today(partial(says, "docs/results.md"))
    _served(partial(says, "docs/serving.md"))


def _today(says: partial[None]) -> None:
    both = [document(f"card/{name}.json") for name in ("read", "read-fp8")]
    for words, name in (
        ("| first token | {:.2f} s | {:.2f} s |", "first_token_s"),
        ("| a decoded token | {:.2f} ms | {:.2f} ms |", "decode_ms"),
        ("| memory reserved beyond the weights | {:.2f} GB | {:.2f} GB |", "reserved_gb"),
        ("| the weights | {:.1f} GB | {:.1f} GB |", "weights_gb"),
    ):
        says(words, *(one[name] for one in both))
    fixed, sizes = document("card/read-fixed-segments.json"), document("card/memory.json")
    says("of a fixed size {:.2f} GB and {:.2f} s.", fixed["reserved_gb"], fixed["first_token_s"])
    most = max(value for name, value in sizes.items() if "reserved" in name)
    says("At 16K, 128K and 512K tokens at most {:.2f} GB were reserved", most)
    many = document("card/documents.json")
    words = "64 documents answered at once in bfloat16: {:,.0f} tokens/s, {:.0f}% of what"
    says(words, many["tokens_s"], 100 * many["share_of_bound"])
    few = document("card/documents-8.json")
    words = "pots of 8 bits: {:,.0f} tokens/s, {:.0f}% of what half the bytes would allow."
    says(words, few["tokens_s"], 100 * few["share_of_bound"], holds=few["tokens_s"] < many["tokens_s"])
    small, alone = document("card/small.json"), document("card/decode-int4.json")
    says("reads 1M tokens in {:.1f} s; the card then", small["first_token_s, pot of 16 bits"])
    says("holds {:.2f} GB in all, {:.2f} GB of them weights.", small["card_used_gb"], small["weights_gb"])
    token = alone["decode_ms, pot of 16 bits"]
    says("A decoded token takes {:.2f} ms:", token, holds=token < both[0]["decode_ms"])


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
    says("| 62 clients ask short questions, one after the other: tokens/s | {:,.0f} | {:,.0f} |", *rates)
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
