"""What to measure: plain data, parsed from what a person types and checked before anything is loaded.

Knows no tensors, so that bad input is refused at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infinipot.bench.shapes import SHAPES
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import ConfigError

if TYPE_CHECKING:
    from infinipot.recipes.recipe import Recipe

PEERS = ("transformers", "transformers-static", "kvpress-snapkv", "llama.cpp")
SKIP = 8  # first tokens of an answer that are not timed: they warm up what decoding alone uses
LEAST_ROUNDS = 7
_NUMBER = re.compile(r"(\d+)([km]?)")
_TIMES = {"": 1, "k": 1024, "m": 1024 * 1024}


@dataclass(frozen=True)
class Plan:
    """Everything a run depends on."""

    model: str = ""  # name, folder, hub id or .gguf file; or else
    random: str = ""  # one of SHAPES, with random weights
    recipes: tuple[str, ...] = ("infinipot",)
    lengths: tuple[int, ...] = ()
    capacities: tuple[int, ...] = (DEFAULT_CAPACITY,)
    keep: int | None = None
    new_tokens: int = 64
    documents: tuple[int, ...] = ()
    chunk: tuple[int, int] | None = None  # new tokens on cached ones, side by side with peers
    rounds: int = LEAST_ROUNDS
    shares: bool = True  # take a cycle apart too
    peers: tuple[str, ...] = ()
    peer_limit: float = 600.0  # seconds a peer may be expected to take for one length
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    fuse: bool = True  # on CUDA
    kvpress: str = ""  # an interpreter that has kvpress
    llama: str = ""  # an interpreter that has llama-cpp-python; ours if empty
    gguf: str = ""  # the file llama.cpp reads
    command: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.random):
            raise ConfigError("give --model NAME or --random SHAPE, one of the two")
        if self.random:
            nearest("shape", self.random, SHAPES)
        if self.new_tokens < SKIP + 2:
            raise ConfigError(f"new-tokens is {self.new_tokens}; use at least {SKIP + 2}: {SKIP} warm up")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}; use at least 1")
        if self.rounds < 1 or self.peer_limit <= 0:
            raise ConfigError("rounds and peer-limit must be above 0")
        for name in self.peers:
            nearest("peer", name, PEERS)
        if not (self.lengths or self.documents or self.chunk):
            raise ConfigError("nothing to measure: give --lengths, --documents or --chunk")
        self._check_lengths()
        self._check_cycles()

    def _check_cycles(self) -> None:
        cycle = [bool(recipe.preset.policy) and recipe.preset.bounded for recipe in self.made()]
        if (self.chunk and not all(cycle)) or (self.documents and not any(cycle)):
            raise ConfigError(
                f"recipe '{self.made()[cycle.index(False)].preset.name}' has no cycle to measure"
            )

    def _check_lengths(self) -> None:
        largest = max((recipe.config.capacity for recipe in self.made() if recipe.preset.bounded), default=0)
        for length in self.lengths:
            if length <= largest:
                raise ConfigError(
                    f"a text of {length} tokens fits into a pot of {largest}, so nothing would be distilled: "
                    f"use --lengths {shown(2 * largest)} or more, or a smaller --capacity"
                )

    def made(self) -> list[Recipe]:
        """Every recipe at every capacity; methods that drop nothing take no --keep."""
        from infinipot.recipes.presets import find
        from infinipot.recipes.recipe import Recipe

        found: list[Recipe] = []
        for name in self.recipes:
            method = find(name)
            drops = bool(method.policy) and method.bounded
            sized = method.policy or method.bounded  # else one capacity is like another
            found += [
                Recipe.named(name, capacity=capacity, keep=self.keep if drops else None)
                for capacity in (self.capacities if sized else self.capacities[:1])
            ]
        return found

    @property
    def name(self) -> str:
        """The model, in one word."""
        return self.model or self.random


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Read 4096, 32k or 1m, or several with commas between."""
    found = []
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        match = _NUMBER.fullmatch(part)
        value = int(match[1]) * _TIMES[match[2]] if match else 0
        if not value:
            raise ConfigError(f"{what} is '{part}'; use numbers such as 4096, 32k or 1m")
        found.append(value)
    if not found:
        raise ConfigError(f"{what} is empty: use numbers such as 4096, 32k or 1m")
    return tuple(dict.fromkeys(found))


def chunk(text: str) -> tuple[int, int]:
    """Read NEW+CACHED, as in 2048+2048."""
    parts = text.split("+")
    if len(parts) != 2:
        raise ConfigError(f"chunk is '{text}'; use NEW+CACHED, as in 2048+2048")
    (new,), (cached,) = numbers(parts[0], "chunk"), numbers(parts[1], "chunk")
    return new, cached


def words(text: str) -> tuple[str, ...]:
    """Read names with commas between."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError("a list is empty: use names with commas between")
    return found


def peers(text: str, cpu: bool) -> tuple[str, ...]:
    """Read all, none, or names; `all` is what makes sense on the device."""
    if text == "none":
        return ()
    if text != "all":
        return words(text)
    # Compiling for a CPU takes minutes; llama.cpp is compared where people run it.
    return tuple(name for name in PEERS if name != ("transformers-static" if cpu else "llama.cpp"))


def shown(count: int) -> str:
    """A number of tokens as people write it: 32K, 1M."""
    for unit, size in (("M", 1024 * 1024), ("K", 1024)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"


def nearest(what: str, name: str, known: Iterable[str]) -> str:
    """Return the name if it is known; else say which one was probably meant."""
    names: Sequence[str] = list(known)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
    raise ConfigError(f"unknown {what} '{name}'; {hint}")
