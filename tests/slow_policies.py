"""Each policy's choice for one layer and head, in plain Python lists, as its paper says it."""

from __future__ import annotations

from typing import Any

from oracle import Entry, SlowPot, best

Catalyst = list[list[list[float]]] | None  # [layer][kv head][slot]


def infinipot(
    pot: SlowPot,
    layer: int,
    head: int,
    held: list[Entry],
    budget: int,
    catalyst: Catalyst,
    novelty: float = 0.5,
    pool: int = 7,
    recent: int = 0,
    sentences: list[int] | None = None,
) -> list[int]:
    """T most novel first, then the best by catalyst score (section 3.3.3), pooled over neighbours.

    The `recent` last ones stay before all others. With `sentences`, the number of each token's, both scores
    are means over what is left of a sentence.
    """
    everything = list(range(len(held)))
    last = everything[len(held) - recent :]
    score = catalyst[layer][head] if catalyst else [0.0] * len(held)
    surprise = [e.novelty for e in held]
    around = [everything[max(0, i - pool // 2) : i + pool // 2 + 1] for i in everything]
    if sentences is not None:
        same = [sentences[e.source] for e in held]
        around = [[j for j in everything if same[j] == same[i]] for i in everything]
        surprise = [sum(surprise[j] for j in some) / len(some) for some in around]
    score = [sum(score[j] for j in some) / len(some) for some in around]
    novel = best(surprise, round(novelty * budget), everything[: len(held) - recent])
    novel = last + novel[: budget - recent]
    rest = [i for i in everything if i not in novel]
    return sorted(novel + best(score, budget - len(novel), rest))


def ccd(pot: SlowPot, layer: int, head: int, held: list[Entry], budget: int, catalyst: Catalyst) -> list[int]:
    return sorted(best(pot.received(layer, head, 1), budget, list(range(len(held)))))


def tova(
    pot: SlowPot, layer: int, head: int, held: list[Entry], budget: int, catalyst: Catalyst
) -> list[int]:
    rows = [pot.received(layer, other, 1) for other in range(pot.kv_heads)]
    mean = [sum(row[i] for row in rows) / len(rows) for i in range(len(held))]
    return sorted(best(mean, budget, list(range(len(held)))))


def streaming(
    pot: SlowPot, layer: int, head: int, held: list[Entry], budget: int, catalyst: Catalyst, sinks: int = 4
) -> list[int]:
    return [*range(sinks), *range(len(held) - (budget - sinks), len(held))]


def h2o(
    pot: SlowPot,
    layer: int,
    head: int,
    held: list[Entry],
    budget: int,
    catalyst: Catalyst,
    heavy: int = 4,
    share: float = 0.0,
) -> list[int]:
    heavy = max(heavy, round(share * budget))
    recent = list(range(len(held) - (budget - heavy), len(held)))
    older = list(range(len(held) - (budget - heavy)))
    return sorted(best([e.running for e in held], heavy, older) + recent)


def sirllm(
    pot: SlowPot,
    layer: int,
    head: int,
    held: list[Entry],
    budget: int,
    catalyst: Catalyst,
    sinks: int = 4,
    recent: int = 0,
    decay: float = 1.0,
) -> list[int]:
    ends = [*range(sinks), *range(len(held) - recent, len(held))]
    between = [i for i in range(len(held)) if i not in ends]
    chosen = sorted(ends + best([e.novelty for e in held], budget - len(ends), between))
    for i in chosen:
        held[i].novelty *= decay
    return chosen


def snapkv(
    pot: SlowPot,
    layer: int,
    head: int,
    held: list[Entry],
    budget: int,
    catalyst: Catalyst,
    window: int = 32,
    kernel: int = 7,
    pooling: str = "max",
) -> list[int]:
    past = len(held) - window
    score = pot.received(layer, head, window)[:past]
    reach = kernel // 2
    around = [score[max(0, i - reach) : i + reach + 1] for i in range(past)]
    pooled = [max(some) if pooling == "max" else sum(some) / kernel for some in around]
    return sorted(best(pooled, budget - window, list(range(past)))) + list(range(past, len(held)))


def random(
    pot: SlowPot, layer: int, head: int, held: list[Entry], budget: int, catalyst: Catalyst, seed: int = 0
) -> list[int]:
    def number(place: int) -> int:
        mixed = (place + 1 + 0x9E3779B9 * seed) % 2**32
        for factor in (0x85EBCA6B, 0xC2B2AE35):
            mixed = (mixed ^ mixed >> 16) * factor % 2**32
        return mixed ^ mixed >> 16

    return sorted(best([float(number(e.source)) for e in held], budget, list(range(len(held)))))


SLOW: dict[str, Any] = {
    "infinipot": infinipot,
    "ccd": ccd,
    "tova": tova,
    "streaming-llm": streaming,
    "h2o": h2o,
    "random": random,
    "sirllm": sirllm,
    "snapkv": snapkv,
}
