"""What is measured on texts of any length: a recipe, or plain transformers. Warm up, read, ask, answer."""

import statistics
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

import torch

from infinipot.bench.plan import SKIP, Plan
from infinipot.bench.subject import Subject
from infinipot.common.out_of_memory import out_of_memory
from infinipot.common.sizes import short
from infinipot.hf import plain
from infinipot.models import memory
from infinipot.reading.plan import BLOCK
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.step_group import GRAPHS
from infinipot.recipes.recipe import Recipe

About = dict[str, Any]  # columns of a system's rows that are known before anything is measured
PIECE = 65536  # tokens handed to a reader at a time, as a tokenizer would
PULSE = 0.5  # seconds between two signs of life: drawing them must not be what is measured
QUESTION = 16  # tokens of the question
WARM = 3  # capacities of text that warm up a recipe: a first cycle, a steady one, a partial one
WARM_TOKENS = 2048  # of text that warm up plain transformers


@dataclass(frozen=True)
class Measurement:
    """What one system did with a text of one length; a system that `failed` has no figures."""

    system: str
    ours: bool
    length: int
    capacity: int | None = None
    keep: int | None = None
    failed: str = ""
    note: str = ""
    engine: str = ""  # `captured`, or `plain` and why
    warm_up_s: float | None = None
    first_token_s: float | None = None
    reading_s: float | None = None
    decode_ms: float | None = None
    cycles: int | None = None
    cache_bytes: int | None = None  # of keys and values; the next two are beyond the weights
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_peak_bytes: int | None = None

    def describe(self, beside: Self | None = None) -> dict[str, Any]:
        """Return the row as JSON-ready data, with how many times as fast as `beside` the system is."""
        found = asdict(self) | {"tokens_s": None, "reading_ratio": None, "decode_ratio": None}
        if self.reading_s:
            found["tokens_s"] = self.length / self.reading_s
        # What torch has taken of the card, where there is one; torch counts nothing else of graphs.
        found["memory_bytes"] = self.cache_bytes if self.reserved_bytes is None else self.reserved_bytes
        if beside and self.reading_s and beside.reading_s and self.decode_ms and beside.decode_ms:
            found["reading_ratio"] = beside.reading_s / self.reading_s
            found["decode_ratio"] = beside.decode_ms / self.decode_ms
        # Six digits are all a clock can tell.
        return {name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in found.items()}


def rows(system: "Pots | Transformers", plan: Plan) -> Generator[str | Measurement, None, None]:
    """Yield a row for each length, shortest first, and words about what is being done."""
    about, failed, pace = system.about, "", 0.0
    for length in sorted(plan.lengths):
        yield f"{about['system']}: {short(length)}"
        failed = failed or _obstacle(system, length, pace, plan.limit)  # longer texts take no less
        try:
            if not failed:
                started = time.perf_counter()
                system.warm_up(length, plan.new_tokens)
                warm = time.perf_counter() - started
                system.subject.sweep()
                figures = yield from system.run(length, plan.new_tokens)
                pace = figures["reading_s"] / length
                found = {**about, **figures, **system.subject.peak()}
                yield Measurement(length=length, warm_up_s=warm, **found)
        except Exception as error:  # a row must not end a long run; foreign code may trip over anything
            if about["ours"] and not out_of_memory(error):
                raise
            failed = reason(error)
        if failed:
            yield Measurement(length=length, failed=failed, **about)


def reason(error: BaseException) -> str:
    """Say in a few words why something failed."""
    text = " ".join(str(error).split())
    return "out of memory" if out_of_memory(error) else f"{type(error).__name__}: {text}"[:160]


def _obstacle(system: "Pots | Transformers", length: int, pace: float, limit: float) -> str:
    """Why a length is not even begun; reading gets slower with length, so the pace so far is the least."""
    needed, free = system.subject.entry_bytes * length, memory.available(str(system.subject.device))
    if system.grows and needed > free:
        return f"out of memory: its cache needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
    if not system.about["ours"] and pace * length > limit:
        return f"skipped: would take {pace * length:,.0f} s or more, the limit is {limit:g} s"
    return ""


def figures(started: float, read: float, moments: list[float], cache: int) -> dict[str, Any]:
    """Return times from the moments at which reading began, the text was read and tokens came."""
    steps = [after - before for before, after in pairwise(moments)]
    found = {"first_token_s": moments[0] - started, "reading_s": read - started, "cache_bytes": cache}
    return {**found, "decode_ms": 1000 * statistics.median(steps[SKIP - 1 :])}


class Pots:
    """A recipe of ours; each text gets a reader of its own."""

    def __init__(self, subject: Subject, recipe: Recipe) -> None:
        self.subject, self.recipe, self.grows = subject, recipe, not recipe.preset.bounded
        preset, config = recipe.preset, recipe.config
        self.about: About = {"system": preset.name, "ours": True, "note": recipe.note}
        self.about["capacity"] = config.capacity if preset.sized else None
        self.about["keep"] = config.kept if preset.drops else None

    def warm_up(self, length: int, new_tokens: int) -> None:
        """Read a short text that ends like a long one, and answer, twice where anything is captured."""
        self.reader = self.subject.reader(self.recipe)
        compiles = self.subject.device.type == "cuda"
        ids = self.subject.text(warming_length(self.reader, length))
        for _ in range(2 if compiles else 1):
            read(self.reader, ids)
            list(self.reader.generate(ids[:QUESTION], Generation(new_tokens if compiles else SKIP), True))
        self.reader.clear()

    def run(self, length: int, new_tokens: int) -> Generator[str, None, dict[str, Any]]:
        """Read, ask, answer."""
        ids, question = self.subject.text(length), self.subject.text(QUESTION, seed=2)
        pieces = (ids[start : start + PIECE] for start in range(0, length, PIECE))
        started = last = time.perf_counter()
        for progress in self.reader.reading_tokens(pieces):
            if time.perf_counter() - last > PULSE:
                yield f"{self.about['system']}: {short(length)}, {progress.tokens_read / length:.0%} read"
                last = time.perf_counter()
        self.subject.synchronize()
        read, answer = time.perf_counter(), Generation(new_tokens)
        moments = [time.perf_counter() for _ in self.reader.generate(question, answer, final=True)]
        found = figures(started, read, moments, self.reader.pot.nbytes)
        return {**found, "engine": engine(self.reader), "cycles": self.reader.pot.cycles}


def read(reader: Reader, ids: list[int]) -> None:
    """Read a text from the beginning."""
    reader.clear()
    for _ in reader.reading_tokens([ids]):
        pass


def warming_length(reader: Reader, length: int) -> int:
    """Return the length of the shortest text of three capacities or more that ends like one of `length`."""
    drops = reader.session.policy is not None and not reader.session.mode.grows
    chunk = reader.config.chunk(len(reader.session.catalyst)) if drops else BLOCK
    least = WARM * reader.config.capacity
    return min(length, least + (length - least) % chunk)


def engine(reader: Reader) -> str:
    """Return `captured`, or `plain` and why."""
    if reader.session.capture_obstacle or reader.session.graphs is None:
        return f"plain: {reader.session.capture_obstacle}"
    if reader.session.graphs.reason:
        return f"reading plain: {reader.session.graphs.reason}"
    why = GRAPHS[reader.model].reason if reader.model in GRAPHS else ""
    return f"decoding plain: {why}" if why else "captured"


class Transformers:
    """Plain transformers: the text in one forward, the question in a second, then token by token."""

    grows = True

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.about: About = {"system": "transformers", "ours": False, "engine": "dynamic cache, sdpa"}

    def warm_up(self, length: int, new_tokens: int) -> None:
        """Read a short text and answer."""
        list(self.run(min(length, WARM_TOKENS), new_tokens))

    def run(self, length: int, new_tokens: int) -> Generator[str, None, dict[str, Any]]:
        """Read, ask, answer."""
        yield from ()
        texts = (self.subject.text(length), self.subject.text(QUESTION, seed=2))
        ids, question = (torch.tensor([text], device=self.subject.device) for text in texts)
        self.subject.synchronize()
        started = time.perf_counter()
        cache = plain.read(self.subject.bare, ids)
        self.subject.synchronize()
        read, answer = time.perf_counter(), plain.generate(self.subject.bare, question, cache, new_tokens)
        moments = [time.perf_counter() for _ in answer]
        found = figures(started, read, moments, plain.cache_bytes(cache))
        beyond = f"beyond its trained window of {short(self.subject.trained)}"
        return {**found, "note": beyond if length > self.subject.trained > 0 else ""}
