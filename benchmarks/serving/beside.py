"""What stands beside a server, each in a process of its own: `infinipot bench`'s documents, and whole caches.

python benchmarks/serving/beside.py bench '{"random": "llama-3-8b", "documents": 64}'
python benchmarks/serving/beside.py whole '{"random": "llama-3-8b", "lengths": [2048, 4096]}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]
PIECE = 4096  # tokens a forward of plain transformers takes: bounds its activations


def plan_of(told: dict[str, Any]) -> Any:
    from infinipot.bench.plan import Plan

    named = {name: told.get(name, "") for name in ("model", "random")}
    return Plan(**named, device=told.get("device", "auto"), fuse=told.get("fuse", True))


def bench(told: dict[str, Any]) -> dict[str, Any]:
    """`infinipot bench --documents N`, and one document beside it."""
    from dataclasses import replace

    from infinipot.bench.benchmark import run

    plan = replace(
        plan_of(told),
        documents=(told["documents"],),
        capacities=(told["capacity"],),
        new_tokens=told["tokens"],
        transformers=False,
    )
    measured = run(plan)
    while True:
        try:
            next(measured)
        except StopIteration as last:
            return {name: last.value[name] for name in ("machine", "versions", "model", "documents")}


def whole(told: dict[str, Any]) -> dict[str, Any]:
    """Texts in whole caches of plain transformers, one beside the other, until memory runs out.

    Texts up to `read_up_to` are read; of longer ones the cache is made at its size and not read, since its
    memory is what counts here and reading takes minutes.
    """
    import torch
    from transformers import DynamicCache

    from infinipot.bench.subject import open_subject
    from infinipot.common.out_of_memory import out_of_memory
    from infinipot.models.memory import available

    subject = open_subject(plan_of(told))
    model, end = subject.bare, time.perf_counter() + told["limit"]
    held: list[Any] = []
    why, tokens, read = "all fit", 0, 0
    for length in told["lengths"]:
        if subject.device.type != "cuda" and subject.entry_bytes * length > available() // 2:
            why = "memory would run out"  # without a card the machine itself would
            break
        try:
            if length <= told["read_up_to"] and time.perf_counter() < end:
                cache = DynamicCache(config=model.config)
                ids = torch.tensor([subject.text(length)], device=subject.device)
                with torch.no_grad():
                    for start in range(0, length, PIECE):
                        model(ids[:, start : start + PIECE], past_key_values=cache, logits_to_keep=1)
                read += 1
            else:
                cache = torch.empty(subject.entry_bytes * length, dtype=torch.uint8, device=subject.device)
            subject.synchronize()
        except Exception as error:  # out of memory has no common type; all else goes on
            if not out_of_memory(error):
                raise
            why = "out of memory"
            break
        held.append(cache)
        tokens += length
    kept = subject.entry_bytes * tokens
    return {
        "users": len(held),
        "of": len(told["lengths"]),
        "read": read,
        "tokens": tokens,
        "cache_bytes": kept,
        "weight_bytes": subject.weight_bytes,
        "ended": why,
        "needed_for_all_bytes": subject.entry_bytes * sum(told["lengths"]),
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps({"bench": bench, "whole": whole}[sys.argv[1]](json.loads(sys.argv[2]))))
