"""Several documents answered at once against one: tokens a second, all of them together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Iterator
from typing import Any

from infinipot.bench.clock import reason, settle
from infinipot.bench.ours import WARM, read
from infinipot.bench.plan import SKIP, shown
from infinipot.bench.steps import Step
from infinipot.bench.subject import QUESTION, Subject, text
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe

Found = Generator[Step, None, list[dict[str, Any]]]
REPEATS = 2  # the first answer compiles and captures


def measure(subject: Subject, recipe: Recipe, counts: tuple[int, ...], new_tokens: int) -> Found:
    """Return one entry for each number of documents; one by itself always comes first, to compare with."""
    rows: list[dict[str, Any]] = []
    for count in sorted({1, *counts}):
        yield Step(f"{recipe.preset.name} {shown(recipe.config.capacity)}: {count} documents")
        row: dict[str, Any] = {
            "system": recipe.preset.name,
            "capacity": recipe.config.capacity,
            "documents": count,
        }
        try:
            row["tokens_s"] = _tokens_s(subject, recipe, count, new_tokens)
            row["times_one"] = row["tokens_s"] / rows[0]["tokens_s"] if rows else 1.0
        except Exception as error:  # out of memory, or a model that cannot: told in its row
            row["failed"] = reason(error)
        subject.memory.sweep()
        rows.append(row)
        if count == 1 and "failed" in row:
            return rows
    return rows


def _tokens_s(subject: Subject, recipe: Recipe, count: int, new_tokens: int) -> float:
    """Tokens a second after the first few of every answer, from the median time for one token each."""
    readers = [subject.reader(recipe) for _ in range(count)]
    prompts = [text(QUESTION, subject.vocabulary, seed=2 + which) for which in range(count)]
    steps: list[float] = []
    for _ in range(REPEATS if subject.device.type == "cuda" else 1):
        for which, reader in enumerate(readers):
            read(reader, text(WARM * recipe.config.capacity, subject.vocabulary, seed=100 + which))
        settle(subject.device)
        steps = _rounds(readers, prompts, new_tokens)
    return count / statistics.median(steps[SKIP:])


def _rounds(readers: list[Reader], prompts: list[list[int]], new_tokens: int) -> list[float]:
    """Seconds of each round, in which every document got a token."""
    steps, last = [], time.perf_counter()
    for seen, _ in enumerate(_tokens(readers, prompts, Generation(new_tokens)), start=1):
        if seen % len(readers) == 0:
            now = time.perf_counter()
            steps.append(now - last)
            last = now
    return steps


def _tokens(readers: list[Reader], prompts: list[list[int]], generation: Generation) -> Iterator[int]:
    """Every token of every answer; one document by itself takes the way it always takes."""
    if len(readers) == 1:
        yield from readers[0].generate(prompts[0], generation, final=True)
        return
    from infinipot.reading.batch import answer_all

    yield from (token for _, token in answer_all(readers, prompts, generation))
