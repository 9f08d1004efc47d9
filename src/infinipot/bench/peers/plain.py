"""Plain transformers with a cache that holds the whole text: dynamic, or static and compiled."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from infinipot.bench.clock import decode_ms, reason, settle
from infinipot.bench.plan import Plan, shown
from infinipot.bench.rows import Row
from infinipot.bench.steps import Step
from infinipot.bench.subject import QUESTION, Subject, text
from infinipot.models import memory

WARM = 2048  # tokens that warm up
Timed = tuple[float, float, list[float], int]  # start, text read, moments of the tokens, bytes of the cache


def measure(plan: Plan, subject: Subject, name: str) -> Generator[Step | Row, None, None]:
    """Yield a row for each length, shortest first; what would take too long or too much is not begun."""
    run = static if name == "transformers-static" else dynamic
    yield Step(f"{name}: warming up")
    started = time.perf_counter()
    pace, warm, failed = 0.0, 0.0, ""
    for length in sorted(plan.lengths):
        failed = failed or _obstacle(plan, subject, length, pace)
        if failed:
            yield Row(name, False, length, failed=failed)
            continue
        yield Step(f"{name}: {shown(length)}")
        try:
            if not warm or run is static:  # a static cache of another size is compiled anew
                run(subject, length if run is static else min(length, WARM), plan.new_tokens)
                warm = time.perf_counter() - started
            row = _row(plan, subject, name, length, warm)
        except Exception as error:  # foreign code: whatever it trips over belongs into its row
            failed = reason(error)
            yield Row(name, False, length, failed=failed)
            continue
        finally:
            subject.memory.sweep()
        pace = (row.reading_s or 0.0) / length
        yield row


def _row(plan: Plan, subject: Subject, name: str, length: int, warm: float) -> Row:
    subject.memory.start()
    run = static if name == "transformers-static" else dynamic
    started, read, moments, size = run(subject, length, plan.new_tokens)
    beyond = f"beyond its trained window of {shown(subject.trained)}" if length > subject.trained > 0 else ""
    return Row(
        name,
        False,
        length,
        note=beyond,
        engine=_engine(subject, run is static),
        warm_up_s=warm,
        first_token_s=moments[0] - started,
        reading_s=read - started,
        decode_ms=decode_ms(moments),
        cache_bytes=size,
        weight_bytes=subject.weight_bytes,
        **subject.memory.peak(),
    )


def _engine(subject: Subject, fixed: bool) -> str:
    if not fixed:
        return "dynamic cache, sdpa"
    compiled = subject.device.type == "cuda"
    return "static cache, " + (
        "decoding compiled" if compiled else "plain: generate() compiles on CUDA alone"
    )


def _obstacle(plan: Plan, subject: Subject, length: int, pace: float) -> str:
    """Why a length is not even begun; reading gets slower with length, so the pace so far is the least."""
    needed, free = subject.entry_bytes * length, memory.available(str(subject.device))
    if needed > free:
        return f"out of memory: its cache needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
    if pace * length > plan.peer_limit:
        return f"skipped: would take {pace * length:,.0f} s or more (--peer-limit {plan.peer_limit:g})"
    return ""


@torch.no_grad()
def dynamic(subject: Subject, length: int, new_tokens: int) -> Timed:
    """The whole text in one forward, the question in a second, then token by token."""
    from transformers import DynamicCache

    model, device = subject.bare, subject.device
    ids = tensor(subject, length)
    question = tensor(subject, QUESTION, seed=2)
    settle(device)
    started = time.perf_counter()
    cache = DynamicCache(config=model.config)
    model(ids, past_key_values=cache, logits_to_keep=1)
    settle(device)
    read = time.perf_counter()
    moments = generate(model, question, cache, new_tokens)
    return started, read, moments, cache_bytes(cache)


def generate(model: Any, ids: Tensor, cache: Any, count: int) -> list[float]:
    """Moments at which greedy tokens came."""
    moments = []
    for _ in range(count):
        logits = model(ids, past_key_values=cache, logits_to_keep=1).logits
        token = int(logits[0, -1].argmax())  # as a streaming answer needs it: on the host
        moments.append(time.perf_counter())
        ids = torch.full((1, 1), token, dtype=torch.long, device=ids.device)
    return moments


@torch.no_grad()
def static(subject: Subject, length: int, new_tokens: int) -> Timed:
    """`generate` with its static cache, which compiles decoding; the prompt is one forward."""
    from transformers import StoppingCriteria, StoppingCriteriaList

    moments: list[float] = []

    class Clock(StoppingCriteria):  # type: ignore[misc]  # transformers is not typed
        def __call__(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
            settle(input_ids.device)
            moments.append(time.perf_counter())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    model = subject.bare
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    ids = tensor(subject, length + QUESTION)
    settle(subject.device)
    started = time.perf_counter()
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        do_sample=False,
        cache_implementation="static",
        stopping_criteria=StoppingCriteriaList([Clock()]),
        return_dict_in_generate=True,
    )
    read = started + (moments[0] - started) * length / (length + QUESTION)  # text and question are one here
    return started, read, moments, cache_bytes(out.past_key_values)


def tensor(subject: Subject, count: int, seed: int = 1) -> Tensor:
    """The text everybody reads."""
    return torch.tensor([text(count, subject.vocabulary, seed)], device=subject.device)


def cache_bytes(cache: Any) -> int:
    """What a cache of transformers holds."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
