"""What `grids.py` measures, and in which order: the parts of every plan, the most wanted first.

paper      the paper's tables and figures, with one model
models     the few recipes that stand beside InfiniPot, with further models
defaults   one option changed at a time, on the half `tune`, which defaults are chosen on; its grids' folders
           end in `-tune`
unasked    InfiniPot where no question is known, in all grids
units      whole sentences and single slots, question known and unknown, on the half `tune`
steps      what it costs to drop several entries at a time, in a pot of 1,024: so small that a CPU does it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from infinipot.eval.evaluate import Evaluation
from infinipot.eval.grid import BY_TASK, Grid
from infinipot.eval.tasks.task import ALL, REPORT, TUNE, make
from infinipot.recipes.presets import find
from slots import CANDIDATES

K = 1024
STEPS = {"swa": 256, "streaming-llm": 256, "h2o": 256, "h2o-half": 256}  # token by token is too slow here
SOME = 6  # rows of each part of LongBench where a table needs many cells
FEW = 2  # where a row takes as long as dozens of others
SHORT, SHORTER = 20_000, 9_000  # letters of a text that is read token by token; on a CPU
GROWING, KEYS = (
    8,
    1,
)  # rows answered at once where a cache grows with its text; where answers are a few tokens
LENGTHS = "4k,8k,16k,32k,64k"
FAR = f"{LENGTHS},128k,256k,1m"
OURS, PRINTED, QUESTION, GENERAL = "infinipot", "infinipot-paper", "question", "general"
BOTH = (QUESTION, GENERAL)
CATALYSTS = ("general-1", "general-2", "unrelated", "padding")
BY_SLOTS = {"units": "slots"}  # where no question is known: what a table compares with the paper's, or before
BESIDE = (OURS, PRINTED, "truncate", "full", "snapkv", "streaming-llm", "tova")
ABLATED = ("ccd", "cap-only", "nuc-only", "sirllm", "no-cr-rope")
FURTHER = (*BESIDE, "h2o-half")
SPENT = (  # of `slots.py`
    *("one ranking, catalyst facts", "pooled, catalyst facts"),
    *("one ranking, two catalysts", "pooled, two catalysts"),
)
TEXTS = 4  # that facts are planted in, of each half


@dataclass(frozen=True)
class Part:
    """One cell of a grid, on all rows or on some of each task; `tail` is `fill` where none is given."""

    grid: str  # its name, and the folder's
    recipe: str
    catalyst: str = BY_TASK
    capacity: int = 4 * K
    knobs: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None  # of each part of LongBench
    step: int | None = None
    longest: float = inf  # letters of a text
    half: str = ""  # of LongBench's rows and of short keys; what the command says where none is given
    share: tuple[int, int] = (0, 1)  # which of so many, where several workers have a cell's rows

    @property
    def place(self) -> str:
        """The folder of the grid."""
        return f"{self.grid}-{self.half}" if self.half else self.grid

    @property
    def name(self) -> str:
        words = [self.recipe, self.catalyst, str(self.capacity), *(f"{n}={v}" for n, v in self.knobs.items())]
        words += [f"step={self.step}"] if self.step else []
        words += [f"rows={self.rows}"] if self.rows else []
        words += [f"share={self.share[0] + 1}of{self.share[1]}"] if self.share[1] > 1 else []
        return "_".join(words).replace(" ", "-")

    def shares(self, of: int) -> Iterator[Part]:
        """Yield the same in parts for several workers: a table is whole sooner, and the next begun later."""
        yield from (replace(self, share=(number, of)) for number in range(of))

    @property
    def cells(self) -> Grid:
        """The recipe with its options; what drops step by step treats a text's end as the others do."""
        options = {name: (value,) for name, value in self.knobs.items()}
        preset = find(self.recipe)
        if preset.step:
            options = {"step": (str(self.step or STEPS[self.recipe]),), "tail": ("fill",), **options}
        return Grid((self.recipe,), (self.capacity,), (self.catalyst,), options)

    def batch(self, most: int) -> int:
        """How many answers are given at once."""
        if self.grid not in ("longbench", "facts"):
            return KEYS
        return min(most, GROWING) if find(self.recipe).mode.grows else most

    def evaluation(self, args: argparse.Namespace) -> Evaluation:
        task, given = tasks(args)[self.grid]
        parted = task == "longbench" or self.grid.endswith("-short")
        out, half = args.out / "parts" / self.place / self.name, self.half or args.part
        made = make(task, {**given, "part": half} if task == "facts" else given, args.seed)
        return Evaluation(made, self.cells, out, args.seed, part=half if parted else ALL)


def tasks(args: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is read for each grid: a task and its options."""
    essays, short = str(args.essays), {"lengths": "4k,8k,16k,32k", "trials": 4}
    facts = {"data": args.facts, "hay": str(args.books), "lengths": "16k", "texts": TEXTS}
    return {
        "passkey": ("passkey", {"lengths": FAR, "trials": 1}),
        "passkey-512k": ("passkey", {"lengths": "512k", "trials": 1}),
        "essays": ("needle", {"lengths": FAR, "trials": 1, "hay": essays}),
        "passkey-more": ("passkey", {"lengths": LENGTHS, "trials": 4}),
        "essays-more": ("needle", {"lengths": LENGTHS, "trials": 4, "hay": essays}),
        "passkey-short": ("passkey", short),
        "essays-short": ("needle", {**short, "hay": essays}),
        "longbench": ("longbench", {"data": args.longbench, "tasks": "all"}),
        **({"facts": ("facts", facts)} if args.facts else {}),
    }


def paper() -> Iterator[Part]:
    """Tables 1 to 4, figure 6, and how slots are spent; what is long or slow comes on few rows first."""
    texts, essays, noise = (partial(Part, grid) for grid in ("longbench", "essays-more", "passkey-more"))
    yield from (texts(recipe) for recipe in BESIDE[:3])
    for part in (*(texts(recipe) for recipe in BESIDE[3:]), texts(PRINTED, GENERAL), texts(OURS, GENERAL)):
        yield from part.shares(2)
    yield from slots("essays-more", "facts")
    yield from (essays(recipe, one) for recipe in (PRINTED, OURS) for one in BOTH)
    yield from (essays("full", QUESTION), essays("cap-only", GENERAL))
    yield from (texts(recipe, rows=SOME) for recipe in ABLATED)  # tables 1 and 3
    yield from (texts(OURS, knobs={"novelty": share}, rows=SOME) for share in ("0.25", "0.75"))
    for catalyst in CATALYSTS:  # table 2
        yield texts(OURS, catalyst, knobs=BY_SLOTS, rows=SOME)
    yield from slots("longbench", rows=SOME)
    for capacity in (1 * K, 2 * K, 8 * K):  # figure 6
        yield from (texts(recipe, capacity=capacity, rows=SOME) for recipe in (OURS, "truncate"))
    yield from (noise(recipe, one) for recipe in (OURS, PRINTED) for one in BOTH)
    for recipe in (OURS, "cap-only", "ccd"):  # table 4
        yield from Part("passkey", recipe, QUESTION).shares(3)
    yield from (Part("passkey-512k", recipe, QUESTION) for recipe in (OURS, "cap-only", "ccd"))
    yield from Part("essays", OURS, QUESTION).shares(3)
    yield from (texts(recipe, rows=FEW) for recipe in ("h2o-half", "h2o", "swa", "self-extend"))
    yield noise("full", QUESTION)
    yield from (essays(recipe, QUESTION) for recipe in ("cap-only", "no-cr-rope", "ccd"))
    yield from Part("essays", OURS, GENERAL).shares(3)
    plain = (OURS, GENERAL, BY_SLOTS)  # was there with the slots
    changed = islice(defaults(SOME), 10)  # LongBench's
    yield from (part for part in changed if (part.recipe, part.catalyst, part.knobs) != plain)
    yield from slots("longbench")
    for recipe in ABLATED:
        yield from texts(recipe).shares(2)
    yield from (noise(recipe, QUESTION) for recipe in ("ccd", "no-cr-rope", "cap-only"))
    for recipe in ("streaming-llm", "tova-tokenwise"):  # what the step costs
        yield texts(recipe, step=1, rows=FEW, longest=SHORT)
    for recipe in ("cap-only", "no-cr-rope", "ccd"):
        yield from Part("essays", recipe, QUESTION).shares(3)
    for share in ("0.25", "0.75"):
        yield from texts(OURS, knobs={"novelty": share}).shares(2)
    yield from Part("passkey", OURS, GENERAL).shares(3)
    yield from Part("passkey", "no-cr-rope", QUESTION).shares(3)
    yield from (texts(recipe, rows=SOME) for recipe in ("self-extend", "swa", "h2o-half", "h2o"))
    for catalyst in CATALYSTS:
        yield from texts(OURS, catalyst, knobs=BY_SLOTS).shares(2)


def slots(*grids: str, rows: int | None = None) -> Iterator[Part]:
    """Ways to spend a pot's slots that went on (ADR 24), and two catalysts at once; no question is known."""
    for grid in grids:
        halves = (TUNE, REPORT) if grid == "facts" else ("", TUNE) if rows else ("",)
        for half in halves:
            usual = Part(grid, OURS, GENERAL, half=half, rows=rows)
            yield from [usual] if half else []
            yield replace(usual, knobs=BY_SLOTS)
            # Two catalysts at once lost the keys that one has: LongBench's many rows are not spent on them.
            for told in map(CANDIDATES.__getitem__, SPENT[:2] if grid == "longbench" else SPENT):
                knobs = {name: value for name, value in told.items() if name != "catalyst"}
                part = Part(grid, "candidate", told["catalyst"], knobs=knobs, half=half, rows=rows)
                yield from part.shares(1 if rows or grid == "facts" else 2)


def models() -> Iterator[Part]:
    """The same few recipes for further models, question known and unknown; again the most wanted first."""
    for recipes in (BESIDE[:4], BESIDE[4:]):
        for grid in ("longbench", "essays-short", "passkey-short"):
            known = BY_TASK if grid == "longbench" else QUESTION
            for recipe in recipes:
                catalysts = (known, GENERAL) if recipe in (OURS, PRINTED) else (known,)
                yield from (Part(grid, recipe, catalyst) for catalyst in catalysts)
    yield Part("longbench", "h2o-half", rows=FEW)
    yield from (Part(grid, "h2o-half", QUESTION) for grid in ("essays-short", "passkey-short"))


def defaults(rows: int | None = None) -> Iterator[Part]:
    """InfiniPot's defaults, and one of them changed; printed is two changed at once."""
    changes: tuple[dict[str, str], ...] = (
        *({"pool": "1"}, {"tail": "raw"}, {"tail": "distil"}),
        *({"opening": "4"}, {"closing": "64"}, {"pool": "3"}, {"novelty": "0.25"}),
    )
    texts = partial(Part, "longbench", rows=rows, half=TUNE)
    for known in (BY_TASK, GENERAL):
        yield from _changed(texts, known, changes[:3])
    for keys in (partial(Part, hay, half=TUNE) for hay in ("essays-short", "passkey-short")):
        for known in BOTH:
            yield from _changed(keys, known, changes[:3])
    yield from (texts(OURS, knobs=change) for change in changes[3:])


def _changed(part: Callable[..., Part], known: str, changes: tuple[dict[str, str], ...]) -> Iterator[Part]:
    """InfiniPot, as printed, and one default changed at a time: slot by slot, whatever is known."""
    own = BY_SLOTS if known == GENERAL else {}
    yield part(OURS, known, knobs=own)
    yield part(PRINTED, known)
    yield from (part(OURS, known, knobs={**change, **own}) for change in changes)


def unasked() -> Iterator[Part]:
    """What no question is known in, the tables' own cells; what is long or slow comes last."""
    yield from Part("longbench", OURS, GENERAL).shares(4)
    yield from Part("essays-more", OURS, GENERAL).shares(3)
    yield from (Part("facts", OURS, GENERAL, half=half) for half in (REPORT, TUNE))
    yield from (Part(grid, OURS, GENERAL) for grid in ("essays-short", "passkey-short"))
    yield from Part("passkey-more", OURS, GENERAL).shares(3)
    yield Part("essays-more", "cap-only", GENERAL)
    for grid in ("essays", "passkey"):
        yield from Part(grid, OURS, GENERAL).shares(3)


def units() -> Iterator[Part]:
    """Both ways to spend slots, on the half that defaults are chosen on."""
    for catalyst in (GENERAL, QUESTION):
        for knobs in ({"units": "sentences"}, {"units": "slots"}):
            known = BY_TASK if catalyst == QUESTION else GENERAL
            yield from Part("longbench", OURS, known, knobs=knobs, half=TUNE).shares(4)
            yield from (
                Part(grid, OURS, catalyst, knobs=knobs, half=TUNE)
                for grid in ("essays-short", "passkey-short")
            )


def steps() -> Iterator[Part]:
    """Token by token; a sixteenth of the pot at a time, as StreamingLLM here, and half of it, as TOVA."""
    for recipe in ("streaming-llm", "tova-tokenwise"):
        for step in (1, K // 16):
            yield Part("longbench", recipe, capacity=K, step=step, longest=SHORTER)
    yield Part("longbench", "tova", capacity=K, longest=SHORTER)


PLANS: dict[str, Callable[[], Iterator[Part]]] = {
    "paper": paper,
    "models": models,
    "defaults": defaults,
    "unasked": unasked,
    "units": units,
    "steps": steps,
}


def chosen(args: argparse.Namespace) -> list[Part]:
    """Return the parts that were asked for, in their order."""
    wanted = set(args.grids.split(",")) if args.grids else set(tasks(args))
    if unknown := wanted - set(tasks(args)):
        raise SystemExit(f"unknown grid '{min(unknown)}'; use {', '.join(tasks(args))}")
    names = args.plan.split(",")
    if unknown := set(names) - set(PLANS):
        raise SystemExit(f"unknown plan '{min(unknown)}'; use {', '.join(PLANS)}")
    return [part for name in names for part in PLANS[name]() if part.grid in wanted]
