"""A recipe of ours on texts of any length: warm up, read, ask, answer; time and memory of it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from typing import Any

from infinipot.bench.clock import Pulse, decode_ms, reason, settle
from infinipot.bench.plan import SKIP, shown
from infinipot.bench.rows import Row
from infinipot.bench.steps import Step
from infinipot.bench.subject import QUESTION, Subject, pieces, text
from infinipot.models import memory
from infinipot.reading.decode import uncaptured
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.session import BLOCK
from infinipot.recipes.recipe import Recipe

WARM = 3  # capacities of text that warm up: a first cycle, a steady one, a partial one


def measure(
    subject: Subject, recipe: Recipe, lengths: Iterable[int], new_tokens: int
) -> Generator[Step | Row, None, None]:
    """Yield a row for each length, each from a reader of its own."""
    failed = ""
    for length in sorted(lengths):
        subject.memory.sweep()
        if failed:  # longer texts take no less
            yield _blank(recipe, length, failed)
            continue
        try:
            yield (yield from _row(subject, recipe, length, new_tokens))
        except Exception as error:  # out of memory has no common type; a row must not end a long run
            failed = reason(error)
            if failed != "out of memory":
                raise
            yield _blank(recipe, length, failed)


def _row(subject: Subject, recipe: Recipe, length: int, new_tokens: int) -> Generator[Step, None, Row]:
    name = f"{recipe.preset.name} {shown(recipe.config.capacity)}"
    needed = subject.entry_bytes * length
    if not recipe.preset.bounded and needed > memory.available(str(subject.device)):
        return _blank(recipe, length, f"out of memory: its cache needs {needed / 1e9:.1f} GB")
    yield Step(f"{name}: warming up")
    reader = subject.reader(recipe)
    warm = _warm_up(subject, reader, length, new_tokens)
    reader.clear()
    subject.memory.start()
    ids, question = text(length, subject.vocabulary), text(QUESTION, subject.vocabulary, seed=2)
    label, pulse = f"{name}: {shown(length)}", Pulse()
    settle(subject.device)
    started = time.perf_counter()
    for progress in reader.reading_tokens(pieces(ids)):
        if pulse.due():
            yield Step(label, progress.tokens_read, length)
    settle(subject.device)
    read = time.perf_counter()
    moments = []
    for _ in reader.generate(question, Generation(new_tokens), final=True):
        moments.append(time.perf_counter())
    return Row(
        **_sizes(recipe),
        length=length,
        note=recipe.note,
        engine=engine(reader),
        warm_up_s=warm,
        first_token_s=moments[0] - started,
        reading_s=read - started,
        decode_ms=decode_ms(moments),
        cycles=reader.pot.cycles,
        cache_bytes=reader.pot.nbytes,
        weight_bytes=subject.weight_bytes,
        **subject.memory.peak(),
    )


def _warm_up(subject: Subject, reader: Reader, length: int, new_tokens: int) -> float:
    """Seconds of reading a short text with the last chunk of a long one, and of answering, twice.

    So every shape that will be timed has been compiled and captured. Nothing is compiled
    for a CPU: there it is done once.
    """
    started = time.perf_counter()
    compiles = subject.device.type == "cuda"
    ids = text(short_of(reader, length), subject.vocabulary)
    for _ in range(2 if compiles else 1):
        read(reader, ids)
        answer = Generation(new_tokens if compiles else SKIP)
        for _ in reader.generate(ids[:QUESTION], answer, final=True):
            pass
    settle(subject.device)
    return time.perf_counter() - started


def short_of(reader: Reader, length: int) -> int:
    """The shortest text of three capacities or more whose last chunk is that of a text of this length."""
    drops = reader.policy is not None and not reader.mode.grows
    chunk = reader.config.chunk(len(reader.catalyst)) if drops else BLOCK
    least = WARM * reader.config.capacity
    return min(length, least + (length - least) % chunk)


def read(reader: Reader, ids: list[int]) -> None:
    """Read a text from the beginning."""
    reader.clear()
    for _ in reader.reading_tokens(pieces(ids)):
        pass


def engine(reader: Reader) -> str:
    """`captured`, or `plain` and why."""
    if reader.capture_obstacle or reader._static is None:
        return f"plain: {reader.capture_obstacle}"
    if why := reader._static.reason:
        return f"reading plain: {why}"
    why = uncaptured(reader.model)
    return f"decoding plain: {why}" if why else "captured"


def _sizes(recipe: Recipe) -> dict[str, Any]:
    drops = recipe.preset.bounded and recipe.preset.policy
    sized = recipe.preset.bounded or recipe.preset.policy
    return {
        "system": recipe.preset.name,
        "ours": True,
        "capacity": recipe.config.capacity if sized else None,
        "keep": recipe.config.kept if drops else None,
    }


def _blank(recipe: Recipe, length: int, failed: str) -> Row:
    return Row(**_sizes(recipe), length=length, failed=failed, note=recipe.note)
