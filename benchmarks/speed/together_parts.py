"""The parts of `benchmarks/card_together.py`: each warms up, yields, and then yields what it finds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

from infinipot.bench.systems import Pots, engine
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.layers import CardLayers
from infinipot.reading.answer import answer_all
from infinipot.reading.sampling import Generation
from infinipot.reading.step_group import GRAPHS
from speed.card_parts import _spent
from speed.ceilings import ceilings
from speed.cycle_parts import steady, write

Found = dict[str, Any]
SKIP = 8  # steps before those that are timed
CYCLES = 16  # that are timed together
# How a model computes: by our layers (else by the decoder, compiled), with a rough head.
WAYS = {
    "before": (False, False),
    "layers": (True, False),
    "all": (True, True),
}


class Ways:
    """A model that computes in several ways, each with graphs of its own."""

    def __init__(self, subject: Any) -> None:
        self.model, self.kept = subject.ready(), dict[str, Any]()
        self.layers: CardLayers | None = self.model.layers

    def take(self, way: str) -> None:
        """Compute this way from now on."""
        ours, fp8.ROUGH_HEAD = WAYS[way]
        self.model.layers = self.layers if ours else None
        GRAPHS.pop(self.model, None)
        if way in self.kept:
            GRAPHS[self.model] = self.kept[way]

    def keep(self, way: str) -> None:
        """Remember what was captured while the model computed this way."""
        if self.model in GRAPHS:
            self.kept[way] = GRAPHS[self.model]


def read(setting: Any, weights: str) -> Iterator[Found]:
    """A long text to its first token, a steady cycle in every way, and where its time goes."""
    subject = setting.subject(weights if setting.device == "cuda" else "full")
    ways, systems, cycles = Ways(subject), dict[str, Pots](), dict[str, Callable[[], None]]()
    names = [way for way in WAYS if weights == "fp8" or way != "layers"]  # in bf16 `all` is the same
    for way in names[::-1]:
        ways.take(way)
        if way in ("before", "all"):
            systems[way] = Pots(subject, setting.recipe())
            systems[way].warm_up(setting.length, 16)
        cycles[way] = cycle(subject, setting)
        ways.keep(way)
        print("warm:", way, flush=True)
    yield {"our layers": ways.layers is not None}
    for way in names:
        ways.take(way)
        yield {f"cycle_ms, {way}": [1000 * timed(subject, cycles[way]) / CYCLES for _ in range(2)]}
    for way in ("all", "before", "all"):
        ways.take(way)
        told = once(systems[way], setting.length)
        for name in ("first_token_s", "decode_ms"):
            yield {f"{name}, {way}": told[name]}
        yield {f"engine, {way}": told["engine"]}
    ways.take("all")
    if setting.device == "cuda":
        yield {"profile": _spent(subject, cycles["all"], 1, 45, CYCLES)}


def cycle(subject: Any, setting: Any) -> Callable[[], None]:
    """Return what carries out `CYCLES` steady cycles; they are captured already."""
    reader = subject.reader(setting.recipe())
    ids = subject.text(reader.config.capacity)
    steady(reader, ids)
    chunk = ids[: reader.config.chunk(len(reader.session.catalyst))]
    for _ in range(3):  # seen, captured, replayed
        write(reader, chunk, distil=True)

    def several() -> None:
        for _ in range(CYCLES):
            write(reader, chunk, distil=True)

    return several


def timed(subject: Any, run: Callable[[], None]) -> float:
    """Seconds until the device is done."""
    subject.synchronize()
    started = time.perf_counter()
    run()
    subject.synchronize()
    return time.perf_counter() - started


def once(system: Pots, length: int) -> Found:
    """Read a text, and answer."""
    system.reader.clear()
    running = system.run(length, 16)
    try:
        while True:
            next(running)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # a generator's result is untyped


def decode(setting: Any, weights: str) -> Iterator[Found]:
    """A decoded token on nearly full pots of 16 and of 8 bits: what was captured first is timed later."""
    subject = setting.subject(weights)
    readers = {bits: filled(subject, setting.recipe(pot_bits=bits), 160) for bits in (16, 8)}
    for reader in readers.values():
        token_ms(subject, reader, 32)
    yield {}
    for bits, reader in readers.items():
        rounds = [token_ms(subject, reader, 128 if setting.device == "cuda" else 24) for _ in range(3)]
        yield {f"decode_ms, pot of {bits} bits": rounds, f"engine, pot of {bits} bits": engine(reader)}
    yield {"steps": type(subject.model.steps).__name__, "fill": readers[16].pot.fill}


def filled(subject: Any, recipe: Any, room: int) -> Any:
    """A reader whose pot has that much room; no layer is compiled for it."""
    reader = subject.reader(recipe)
    wanted = reader.config.capacity - room
    with torch.compiler.set_stance("force_eager"):
        while reader.pot.fill < wanted:
            reader.session.write(subject.text(min(2048, wanted - reader.pot.fill)), distil=False)
    subject.synchronize()
    return reader


def token_ms(subject: Any, reader: Any, new_tokens: int) -> float:
    """Milliseconds of a token of an answer, by a fork: graphs serve any pot."""
    answer = reader.fork().generate(subject.text(1), Generation(new_tokens), final=True)
    moments = [time.perf_counter() for _ in answer]
    return 1000 * statistics.median([b - a for a, b in pairwise(moments)][SKIP:])


def documents(setting: Any, bits: str) -> Iterator[Found]:
    """A step of 64 documents, as a share of what moving weights and pots takes at copy speed."""
    subject, count = setting.subject(), 64 if setting.device == "cuda" else 2
    ways = Ways(subject)
    ways.take("layers")
    first = filled(subject, setting.recipe(pot_bits=int(bits)), 100)
    prompts = [subject.text(1, seed=n) for n in range(count)]

    alive: list[Any] = []  # a graph that is replayed writes to them

    def step(new_tokens: int) -> float:
        alive.clear()
        alive.extend(first.fork() for _ in range(count))
        readers, moments = list(alive), list[float]()
        for index, _token in answer_all(readers, prompts, Generation(new_tokens)):
            if index == count - 1:
                moments.append(time.perf_counter())
        return statistics.median([b - a for a, b in pairwise(moments)][SKIP:])

    names = ("layers", "before")
    for way in names:
        ways.take(way)
        step(16)
        ways.keep(way)
    yield {"our layers": ways.layers is not None}
    layer, fill = first.pot.pot_layers[0], first.pot.fill + 24
    entry = layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes + 8 * layer.keys.shape[1]
    embedding = subject.bare.get_input_embeddings().weight
    moved = subject.weight_bytes - embedding.nbytes + count * len(first.pot.pot_layers) * fill * entry
    copy = ceilings(subject.device, subject.dtype, (1024, 2**31 if count > 2 else 2**20, 0.1))["copy_gb_s"]
    yield {"copy_gb_s": copy, "fill": fill}
    for way in names[::-1]:
        ways.take(way)
        rounds = [step(48) for _ in range(2)]
        shares = [moved / (copy * 1e9) / one for one in rounds]
        yield {f"step_ms, {way}": [1000 * one for one in rounds], f"share_of_bound, {way}": shares}
    if setting.device == "cuda":  # a graph of one step, replayed
        graph = list(ways.kept["layers"].captured.values())[-1].graph  # the latest is the last
        yield {"profile": _spent(subject, graph.replay, 8, 30)}
