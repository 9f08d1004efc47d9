"""One chunk and one answer, side by side: our complete cycle, plain transformers, llama.cpp.

"New on cached" is a chunk of text on a cache that is already filled; ours does
all of a cycle: catalyst, scores, novelty, selection, gather, re-rotation. Plain
transformers computes one row of logits, the least it can do. Rounds alternate
in one run, so that a noisy machine hurts all alike, and ratios are medians of
each round's own.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from infinipot.bench.subject import Subject, open_subject
from infinipot.core.config import PotConfig
from infinipot.hf import plain
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from peers import llama
from peers.worker import PeerError
from speed.cycle_parts import WARM, snapshot, timed, write

if TYPE_CHECKING:
    from speed.comparison import Comparison

TOKENS = 17  # of an answer in each round; the first is not timed
Way = tuple[Callable[[], float], Callable[[], float]]  # seconds of a chunk, and of a token


def measure(plan: Comparison, subject: Subject) -> Generator[str, None, dict[str, Any]]:
    """Return seconds, tokens a second and ratios of every system."""
    assert plan.chunk is not None
    new, cached = plan.chunk
    chunks: dict[str, list[float]] = {}
    tokens: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    with ExitStack() as held:
        ways = _ways(plan, subject, held, failed)
        warm = 1 if subject.device.type == "cpu" else WARM
        for turn in range(warm + plan.rounds):
            names = list(ways)
            first = turn % len(names)  # nobody always runs after the same one
            for name in [*names[first:], *names[:first]]:
                yield f"side by side: {name}, {turn} of {warm + plan.rounds}"
                found = _once(ways[name])
                if isinstance(found, str):
                    failed[name] = found
                    del ways[name]
                elif turn >= warm:
                    chunks.setdefault(name, []).append(found[0])
                    tokens.setdefault(name, []).append(found[1])
    return {
        "chunk": f"{new} new on {cached} cached",
        "answer": f"decode at {new + cached}",
        "threads": torch.get_num_threads(),
        "reading": _summary(chunks, new),
        "decoding": _summary(tokens, 1),
        "failed": failed,
    }


def _once(way: Way) -> tuple[float, float] | str:
    try:
        return way[0](), way[1]()
    except PeerError as error:
        return str(error)


def _ways(plan: Comparison, subject: Subject, held: ExitStack, failed: dict[str, str]) -> dict[str, Way]:
    """How each system reads the chunk and writes a token."""
    ways: dict[str, Way] = {}
    if "transformers" in plan.peers:
        # A copy: ours may prepare the weights in its own way, or hold them in few bits.
        whole = open_subject(replace(plan, weights="full")).bare if subject.held else None
        bare = whole or copy.deepcopy(subject.bare)
        ways["transformers"] = _transformers(plan, replace(subject, bare=bare))
    if "llama.cpp" in plan.peers:
        try:
            ways["llama.cpp"] = _llama(plan, held)
        except PeerError as error:
            failed["llama.cpp"] = str(error)
    for name in plan.recipes:
        ways[name] = _ours(plan, subject, name)
    return ways


def _ours(plan: Comparison, subject: Subject, name: str) -> Way:
    new, cached = plan.chunk or (0, 0)
    ids = subject.text(new + cached)
    catalyst = len(subject.reader(Recipe.named(name, capacity=4 * (new + cached))).session.catalyst)
    sized = Recipe.named(name, capacity=new + cached + catalyst, keep=cached)
    reader = subject.reader(sized)
    write(reader, ids[:cached], distil=False)
    again = snapshot(reader)
    large = replace(sized, config=PotConfig(new + cached + catalyst + 2 * TOKENS, cached))
    filled = subject.reader(large)
    write(filled, ids, distil=False, scored=False)
    back = snapshot(filled)

    def chunk() -> float:
        again()
        took = timed(reader, lambda: write(reader, ids[cached:], distil=True))
        assert reader.pot.fill == cached
        return took

    return chunk, lambda: _decoding(filled, back)


def _decoding(reader: Reader, again: Callable[[], None]) -> float:
    """Median seconds of a token on the filled pot."""
    again()
    moments = []
    for _ in reader.generate([1], Generation(TOKENS), final=True):
        moments.append(time.perf_counter())
    return statistics.median(after - before for before, after in pairwise(moments))


@torch.no_grad()
def _transformers(plan: Comparison, subject: Subject) -> Way:
    new, cached = plan.chunk or (0, 0)
    model = subject.bare
    ids = torch.tensor([subject.text(new + cached)], device=subject.device)
    fresh = [_cached(model, ids[:, :cached]), _cached(model, ids)]

    @torch.no_grad()
    def chunk() -> float:
        cache = fresh[0]()
        subject.synchronize()
        started = time.perf_counter()
        model(ids[:, cached:], past_key_values=cache, logits_to_keep=1)
        subject.synchronize()
        return time.perf_counter() - started

    @torch.no_grad()
    def token() -> float:
        answer = plain.generate(model, ids[:, :1], fresh[1](), TOKENS)
        moments = [time.perf_counter() for _ in answer]
        return statistics.median(after - before for before, after in pairwise(moments))

    return chunk, token


def _cached(model: Any, ids: torch.Tensor) -> Callable[[], Any]:
    """Return what makes a cache that holds the ids already."""
    whole = plain.read(model, ids)
    saved = [(layer.keys, layer.values) for layer in whole.layers]

    def make() -> Any:
        cache = type(whole)(config=model.config)
        for index, (keys, values) in enumerate(saved):
            cache.update(keys, values, index)
        return cache

    return make


def _llama(plan: Comparison, held: ExitStack) -> Way:
    new, cached = plan.chunk or (0, 0)
    workers = []
    # One holds the chunk's past, one the filled context, each in the way that is faster for it.
    for flash in (False, True):
        worker = held.enter_context(llama.start(plan))
        llama.load(plan, worker, new + cached + TOKENS + llama.SPARE, flash)
        workers.append(worker)
    reads, says = workers

    def chunk() -> float:
        asked = {"do": "chunk", "new": new, "cached": cached}
        return float(reads.ask(asked, plan.limit)["seconds"])

    def token() -> float:
        asked = {"do": "decode", "filled": new + cached, "count": TOKENS - 1}
        return float(statistics.median(says.ask(asked, plan.limit)["steps_s"]))

    return chunk, token


def _summary(times: dict[str, list[float]], count: int) -> dict[str, Any]:
    """Seconds, tokens a second, and how many times as fast as each other system ours is."""
    found: dict[str, Any] = {}
    for name, taken in times.items():
        found[name] = {
            "seconds": [round(one, 6) for one in taken],
            "tokens_s": round(count / statistics.median(taken), 2),
            "times_as_fast_as": {
                other: round(statistics.median(b / a for a, b in zip(taken, theirs, strict=True)), 3)
                for other, theirs in times.items()
                if other != name and len(theirs) == len(taken)
            },
        }
    return found
