"""The parts of `benchmarks/card.py`: each is a function that returns numbers by name."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from infinipot.bench.plan import Plan
from infinipot.bench.subject import Subject, open_subject
from infinipot.bench.systems import Pots
from infinipot.core.config import UNITS
from infinipot.reading.answer import answer_all
from infinipot.reading.sampling import Generation
from infinipot.reading.step_group import GRAPHS
from infinipot.recipes.recipe import Recipe
from speed import card_kernels
from speed.ceilings import ceilings

GB = 1e9
Found = dict[str, Any]


class Setting:
    """What a part measures on."""

    def __init__(self, shape: str, device: str, length: int, longest: int) -> None:
        self.shape, self.device, self.length, self.longest = shape, device, length, longest
        self.capacity = 4096 if device == "cuda" else 256

    def subject(self, weights: str = "full") -> Subject:
        """The model."""
        dtype = "bfloat16" if self.device == "cuda" else "float32"
        plan = Plan(random=self.shape, device=self.device, dtype=dtype, weights=weights)
        return open_subject(plan)

    def recipe(self, **options: Any) -> Recipe:
        """The recipe that is measured."""
        return Recipe.named(capacity=self.capacity, **options)


def run(part: str, shape: str, device: str, length: int, longest: int) -> Found:
    """Measure one part."""
    setting = Setting(shape, device, length, longest)
    name, _, kind = part.partition("-")
    if name == "documents":
        return documents(setting, int(kind or 16))
    if name == "steps":
        return steps(setting, "full", 8, 64) if kind == "8" else steps(setting, kind or "full", 16, 1)
    return PARTS[name](setting, *((kind or "full",) if name in ("read", "decode", "variants") else ()))


def _timed(subject: Subject, recipe: Recipe, length: int, new_tokens: int = 64) -> Found:
    """One text: seconds to its first token, and of a decoded token; memory beyond the weights."""
    system = Pots(subject, recipe)
    system.warm_up(length, new_tokens)
    subject.sweep()
    found = _run(system, length, new_tokens)
    told = {name: found[name] for name in ("first_token_s", "reading_s", "decode_ms", "engine", "cycles")}
    told["pot_gb"] = found["cache_bytes"] / GB
    for name, value in subject.peak().items():
        told[name.replace("_bytes", "_gb")] = value / GB
    return told


def _run(system: Pots, length: int, new_tokens: int) -> Found:
    running = system.run(length, new_tokens)
    while True:
        try:
            next(running)
        except StopIteration as done:
            return dict(done.value)


def tests(_: Setting) -> Found:
    """Every test on a card, by the runner that needs no pytest."""
    runner = Path(__file__).parents[2] / "tests" / "gpu" / "run.py"
    done = subprocess.run([sys.executable, str(runner)], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("passed", "FAILED"))]
    failed = [line.split()[-1] for line in lines if line.startswith("FAILED")]
    return {"passed": len(lines) - len(failed), "failed_tests": ", ".join(failed)}


def limits(setting: Setting) -> Found:
    """What the card can do."""
    device = torch.device(setting.device)
    found: Found = ceilings(device, torch.bfloat16 if setting.device == "cuda" else torch.float32)
    if setting.device == "cuda" and torch.cuda.get_device_capability() >= (8, 9):
        found["fp8_tflops"] = card_kernels.fp8_ceiling(8192)
    return found


def read(setting: Setting, weights: str) -> Found:
    """A long text to its first token."""
    subject = setting.subject(weights)
    found = _timed(subject, setting.recipe(), setting.length)
    return {**found, "weights_gb": subject.weight_bytes / GB, "held": subject.held or "bfloat16"}


def sentences(setting: Setting, rounds: int = 7) -> Found:
    """A long text by turns in both ways to spend slots: seconds, and ratios of neighbours in time."""
    subject, length = setting.subject(), setting.length
    systems = {units: Pots(subject, setting.recipe(units=units)) for units in UNITS}
    for system in systems.values():
        system.warm_up(length, 16)
    found: Found = {units: [] for units in UNITS}
    for _ in range(rounds):
        for units, system in systems.items():
            subject.sweep()
            found[units].append(_run(system, length, 16)["first_token_s"])
    slots, whole = (found[units] for units in UNITS)
    ratios = [other / one for one, other in zip(slots, whole, strict=True)]
    return {**found, "ratios": ratios, "ratio": statistics.median(ratios)}


def decode(setting: Setting, weights: str) -> Found:
    """A decoded token, for pots of both kinds."""
    subject, found = setting.subject(weights), {}
    for bits in (16, 8):
        told = _timed(subject, setting.recipe(pot_bits=bits), 4 * setting.capacity, 128)
        found |= {f"{name}, pot of {bits} bits": told[name] for name in ("decode_ms", "pot_gb", "engine")}
    return {**found, "weights_gb": subject.weight_bytes / GB}


def documents(setting: Setting, bits: int, count: int = 64, new_tokens: int = 64) -> Found:
    """Many answers at once, as a share of what reading weights and pots takes at copy speed."""
    subject = setting.subject()
    recipe = setting.recipe(pot_bits=bits)
    first = subject.reader(recipe)
    for _ in first.reading_tokens([subject.text(4 * setting.capacity)]):
        pass
    prompts = [subject.text(16, seed=n) for n in range(count)]
    steps: list[float] = []
    fill = 0
    for _ in range(2):  # the first time is for capturing
        readers = [first.fork() for _ in range(count)]
        moments, last = [], time.perf_counter()
        for index, _token in answer_all(readers, prompts, Generation(new_tokens)):
            if index == count - 1:  # no waiting here: the next step is on its way already
                moments.append(time.perf_counter() - last)
                last = time.perf_counter()
        steps, fill = moments[8:], readers[0].pot.fill - new_tokens // 2
        del readers
    step = statistics.median(steps)
    layer = first.pot.pot_layers[0]
    entry = (
        layer.keys[0, :, 0].nbytes
        + layer.values[0, :, 0].nbytes
        + (8 * layer.keys.shape[1] if bits == 8 else 0)
    )
    embedding = subject.bare.get_input_embeddings().weight
    moved = subject.weight_bytes - embedding.nbytes + count * len(first.pot.pot_layers) * fill * entry
    copy = ceilings(subject.device, subject.dtype)["copy_gb_s"] * GB
    rate, bound = count / step, count / (moved / copy)
    told = {"tokens_s": rate, "bound_tokens_s": bound, "share_of_bound": rate / bound, "step_ms": 1000 * step}
    return {**told, "fill": fill, "pot_gb": first.pot.nbytes / GB}


def memory(setting: Setting) -> Found:
    """Memory beyond the weights, whatever the length."""
    subject, found = setting.subject(), {}
    for length in (16384, setting.length, setting.longest):
        told = _timed(subject, setting.recipe(), length, 16)
        for name in ("reserved_gb", "allocated_gb", "first_token_s"):
            if name in told:
                found[f"{name} at {length}"] = told[name]
    return found


def small(setting: Setting) -> Found:
    """A million tokens on a card of 8 GB, with weights in 4 bits."""
    if setting.device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(8 * GB / whole)
    subject, found = setting.subject("int4"), {}
    for bits in (16, 8):
        told = _timed(
            subject, setting.recipe(pot_bits=bits), setting.longest if bits == 16 else setting.length
        )
        found |= {f"{name}, pot of {bits} bits": value for name, value in told.items()}
    if setting.device == "cuda":
        free, whole = torch.cuda.mem_get_info()
        found["all_memory_gb"] = torch.cuda.max_memory_reserved() / GB
        found["card_used_gb"] = (whole - free) / GB
    return {**found, "weights_gb": subject.weight_bytes / GB}


@contextmanager
def _patched(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def suspects(setting: Setting) -> Found:
    """The same text, each time with one thing switched off or other than it is."""
    from infinipot.core import scores
    from infinipot.reading import held_words

    subject, found = setting.subject(), {}
    length = setting.length

    def timed(name: str, **options: Any) -> None:
        told = _timed(subject, setting.recipe(**options), length, 16)
        for what in ("reading_s", "first_token_s", "reserved_gb"):
            if what in told:
                found[f"{what}: {name}"] = told[what]

    timed("as it is")
    with _patched(held_words, "LEAST", 2**40):
        timed("words are not followed")
    timed("a text's end is distilled", tail="distil")
    timed("scores are not pooled", pool=1)
    timed("no novelty", novelty=0.0)
    timed("no catalyst", novelty=1.0)
    with _patched(scores, "DEVICE_LOGITS", scores.DEVICE_LOGITS // 2):
        timed("half as many logits at once")
    with _patched(scores, "DEVICE_LOGITS", scores.DEVICE_LOGITS * 4):
        timed("four times as many logits at once")
    timed("pot of 8 bits", pot_bits=8)
    timed("as it is, again")
    return found


def variants(setting: Setting, weights: str) -> Found:
    """The same text, each time with one thing done in another way; and where a cycle's time goes.

    Every variant is told as soon as it is known: the log has those of a run that was ended.
    """
    from torch._dynamo import config as dynamo
    from torch._inductor import config as inductor

    from infinipot.core import scores
    from infinipot.hf.cuda import fp8, load
    from infinipot.hf.speed import joint

    found: Found = {}
    length, recipe, card = setting.length // 4, setting.recipe(), setting.device == "cuda"

    def timed(name: str, subject: Subject, *patches: Any) -> None:
        try:
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(_patched(*patch))
                torch.compiler.reset()  # layers are compiled anew: a switch is a constant to the compiler
                GRAPHS.clear()
                told = _timed(subject, recipe, length, 48)
            for what in ("reading_s", "first_token_s", "decode_ms", "reserved_gb", "allocated_gb", "engine"):
                if what in told:
                    found[f"{what}: {name}"] = told[what]
                    print(f"{what}: {name}: {told[what]}", flush=True)
        except Exception as error:  # a variant that cannot run stops no other
            found[f"failed: {name}"] = f"{type(error).__name__}: {error}"[:200]
            print(found[f"failed: {name}"], flush=True)

    subject = setting.subject(weights)
    if card:
        found["weights in pieces of larger blocks, GB"] = _in_pieces(subject)
    timed("as it is", subject)
    if card:
        found |= _by_kernel(subject, recipe)
        if weights == "full":
            found["weights in pieces of larger blocks, joined, GB"] = _in_pieces(subject)
    graphs = card_kernels.with_arena(256 * 2**20)
    timed("graphs begin with a block of 256 MB", subject, graphs)
    for rows in (256, 512):
        some = (scores, "DEVICE_LOGITS", rows * subject.vocabulary)
        timed(f"{rows} tokens' logits at once", subject, some)
    if weights == "full":
        some = (scores, "DEVICE_LOGITS", 514 * subject.vocabulary)
        timed("514 tokens' logits at once, in no tiles", subject, some, (scores, "TILE", 1))
        timed("joint products for many tokens", subject, (joint, "FEW", 2**30))
        timed("joint products, and a block of 256 MB", subject, (joint, "FEW", 2**30), graphs)
        timed("kernels are tuned by the compiler", subject, (inductor, "coordinate_descent_tuning", True))
    else:
        timed("inputs are rounded by a kernel of their own", subject, (fp8, "FUSED", False))
        found |= card_kernels.eight_bit_floats() if card else {}
        if hasattr(dynamo, "nested_graph_breaks"):
            timed("norms compiled with what follows", subject, (dynamo, "nested_graph_breaks", True))
    timed("as it is, again", subject)
    if weights == "fp8":
        del subject
        plain = load.Filler._children
        every = (load.Filler, "_children", lambda self, module, prefix, _: plain(self, module, prefix, None))
        with _patched(*every):
            subject = setting.subject(weights)
        timed("the head in 8-bit floats too", subject)
    return found


def _in_pieces(subject: Subject) -> float:
    """Memory that torch holds beyond what is alive, though all that can be given back was: in GB."""
    GRAPHS.clear()
    subject.sweep()
    return (torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) / GB


def _by_kernel(subject: Subject, recipe: Recipe, cycles: int = 8, most: int = 30) -> Found:
    """Milliseconds of a cycle, and launches, by kernel: the costliest first."""
    reader = subject.reader(recipe)
    chunk = reader.config.chunk(len(reader.session.catalyst))
    session, ids = reader.session, subject.text(chunk)

    def cycle() -> None:
        session.write(ids, distil=True)

    session.write(ids, distil=False)
    for _ in range(4):  # seen, captured, replayed
        cycle()
    return _spent(subject, cycle, cycles, most)


def _spent(subject: Subject, run: Callable[[], None], times: int, most: int, each: int = 1) -> Found:
    """Milliseconds by kernel of a run, or of each of what it does so many times, and launches."""
    from torch.profiler import ProfilerActivity, profile

    subject.synchronize()
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(times):
                run()
            subject.synchronize()
        spent = [(one.self_device_time_total, one.count, one.key) for one in seen.key_averages()]
    except Exception as error:  # a card whose counters nobody may read
        return {"by kernel": f"{type(error).__name__}: {error}"[:200]}
    told, times = {}, times * each
    for rank, (us, count, name) in enumerate(sorted(spent, reverse=True)[:most]):
        told[f"{rank:02} ms: {name[:90]}"] = f"{us / 1000 / times:.4f} in {count / times:g}"
        print(name[:200], us / 1000 / times, count / times, flush=True)
    launches = sum(count for _, count, _ in spent) / times
    return {"ms, all kernels": sum(us for us, _, _ in spent) / 1000 / times, "launches": launches, **told}


def steps(setting: Setting, weights: str, bits: int, count: int, new_tokens: int = 40) -> Found:
    """A step of `count` answers: its time, and where it goes."""
    subject = setting.subject(weights)
    first = subject.reader(setting.recipe(pot_bits=bits))
    for _ in first.reading_tokens([subject.text(2 * setting.capacity)]):
        pass
    prompts = [subject.text(16, seed=n) for n in range(count)]
    taken: list[float] = []

    def answer() -> None:
        readers, last = [first.fork() for _ in range(count)], time.perf_counter()
        taken.clear()
        for index, _token in answer_all(readers, prompts, Generation(new_tokens)):
            if index == count - 1:
                taken.append(time.perf_counter() - last)
                last = time.perf_counter()

    for _ in range(2):  # the first time is for capturing
        answer()
    told: Found = {"step_ms": 1000 * statistics.median(taken[8:])}
    seen = setting.device == "cuda" and count == 1  # with many, their prompts would be most of what is seen
    return {**told, **(_spent(subject, answer, 1, 40, new_tokens) if seen else {})}


def forms(setting: Setting) -> Found:
    """Kernels of decoding in several forms."""
    from speed import card_units  # needs a Triton with Gluon

    return card_units.forms(torch.device(setting.device)) if setting.device == "cuda" else {}


def kernels(setting: Setting) -> Found:
    """Single kernels, with other tiles too."""
    return card_kernels.times(torch.device(setting.device)) if setting.device == "cuda" else {}


PARTS: dict[str, Callable[..., Found]] = {
    "tests": tests,
    "ceilings": limits,
    "read": read,
    "sentences": sentences,
    "decode": decode,
    "documents": documents,
    "memory": memory,
    "small": small,
    "suspects": suspects,
    "variants": variants,
    "kernels": kernels,
    "units": forms,
}
