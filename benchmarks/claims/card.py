"""What docs/results.md and docs/serving.md say of one card: speed with today's code, a server of 64 slots."""

from __future__ import annotations

import lzma
import re
from datetime import datetime, timedelta
from functools import partial
from statistics import median

from claims.checks import Says
from claims.raw import RESULTS, document

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
    texts, again = ([one["many"][part] for one in both] for part in ("texts", "again_1"))
    says("| from the start to ready | {:.0f} s | {:.0f} s |", *(one["start_s"] for one in both))
    counts = [number for one in texts for number in (one["answered"], one["requests"], one["seconds"])]
    says("| texts read and answered | {} of {} in {:.0f} s | {} of {} in {:.0f} s |", *counts)
    words = "| all ask again: tokens/s while all answer | {:,.0f} | {:,.0f} |"
    says(words, *(one["tokens_s_all_answering"] for one in again))
    words = "| time between two tokens then, p95 | {:.1f} ms | {:.1f} ms |"
    says(words, *(one["gap_p95_ms"] for one in again))
    says("| first token then, median | {:.1f} s | {:.1f} s |", *(one["first_p50_s"] for one in again))
    held = [one["many"]["memory"] for one in both]
    sizes = [one[name] / GB for one in held for name in ("most_bytes", "memory_bound_bytes")]
    words = "| memory at most, of the bound printed | {:.1f} of {:.1f} GB | {:.1f} of {:.1f} GB |"
    says(words, *sizes, holds=all(one["within_bound"] for one in held))
    each = [one["first_p50_s"] / one["requests"] for one in again]
    says("some {:.2f} s each, one after the other", round(sum(each) / 2 * 20) / 20)
    _beside(says)


def _beside(says: partial[None]) -> None:
    """A text of a million tokens beside answers, by the server's log; and whole caches."""
    line = re.compile(r"(\S+ \S+) POST (\S+) 20[01] (\d+) ms")
    with lzma.open(RESULTS / "load-card-8b-fair.log.xz", "rt") as file:
        found = [(datetime.fromisoformat(m[1]), m[2], int(m[3])) for m in map(line.match, file) if m]
    ((end, _, took),) = (one for one in found if "pots" in one[1])
    begin = end - timedelta(milliseconds=took)
    asked = [(at - timedelta(milliseconds=ms), at, ms / 1000) for at, name, ms in found if "chat" in name]
    before = median(seconds for _, at, seconds in asked if at < begin)
    meanwhile = median(seconds for start, at, seconds in asked if start > begin and at < end)
    says("were read in {:.1f} s;", took / 1000)
    says("took {:.1f} s before and {:.1f} s meanwhile,", before, meanwhile)
    whole = document("load-card-8b-whole.json")["whole"]
    says("holds {} of the {} texts, then memory runs out", whole["users"], whole["of"])
    says("all would take {:.0f} GB.", whole["needed_for_all_bytes"] / GB)
