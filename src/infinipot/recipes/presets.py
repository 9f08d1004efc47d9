"""Every system of the paper's tables, as plain data: prompt edit, position map, policy, sizes.

A policy of another package, found through the entry point `infinipot.policies`,
is a method of its own name inside the CCD pipeline. The command's table, the
docs and the property tests are all made from `methods()`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from infinipot.core.config import DEFAULT_MODE, ReadingMode, Tail
from infinipot.errors import ConfigError
from infinipot.policies.registry import registry

CHUNKS = "one pass per chunk"
STEPS = "one pass per token once the pot is full; --step N divides that by N"


@dataclass(frozen=True)
class Method:
    """A named system: what it does and how, beside the sizes a user chooses."""

    name: str
    summary: str
    cost: str
    policy: str = ""  # registered name; empty where nothing is ever chosen
    fixed: Mapping[str, Any] = field(default_factory=dict)  # knobs of the policy that make it this method
    mode: ReadingMode = DEFAULT_MODE
    step: int = 0  # entries dropped at a time, at most an eighth of the capacity; 0 means half of it
    tail: Tail = "fill"  # what becomes of a text's end before a question
    paper: str = ""
    deviations: str = ""

    @property
    def bounded(self) -> bool:
        """Say whether memory is known beforehand, whatever the text."""
        return not self.mode.grows

    @property
    def bounds(self) -> str:
        """What is bounded, in words."""
        if self.bounded:
            return "memory"
        return "nothing until the prompt ends" if self.policy else "nothing"

    @property
    def needs(self) -> str:
        """The evidence it chooses by, in words."""
        if not self.policy:
            return "nothing"
        policy = registry()[self.policy](**self.fixed)
        some = "the last token" if policy.last == 1 else f"the last {policy.last} tokens"
        words = {
            "catalyst": "attention of the catalyst",
            "last": f"attention of {some}",
            "running": "attention of every token",
            "novelty": "novelty",
        }
        return " + ".join(text for need, text in words.items() if need in policy.needs) or "nothing"

    @property
    def knobs(self) -> dict[str, Any]:
        """What `--set` may change, with its default."""
        if self.mode.positions == "grouped":
            return {"group": self.mode.group, "window": self.mode.window}
        if not self.policy:
            return {}
        plain = registry()[self.policy]()
        return {knob.name: getattr(plain, knob.name) for knob in fields(plain) if knob.name not in self.fixed}

    def knob(self, name: str) -> Any:
        """Return the default of a knob, or say why there is none of that name."""
        if name in self.fixed:
            raise ConfigError(
                f"{name} is what makes recipe '{self.name}': use --recipe {self.policy} to set it"
            )
        return _nearest(f"setting of recipe '{self.name}'", name, self.knobs)

    def describe(self) -> dict[str, Any]:
        """Everything the recipe states about itself, as JSON-ready data."""
        cls = registry().get(self.policy)
        return {
            "name": self.name,
            "summary": self.summary,
            "bounds": self.bounds,
            "needs": self.needs,
            "drops at a time": self.step or ("half" if self.mode.distil == "full" and cls else None),
            "cost": self.cost,
            "knobs": self.knobs,
            "paper": self.paper or (cls.paper if cls else ""),
            "deviations": self.deviations or (cls.deviations if cls else "none known"),
        }


GROWS = ReadingMode(distil="never")
OURS = "InfiniPot (EMNLP 2024)"
METHODS = (
    Method(
        "infinipot",
        "Catalyst Prompt + Novelty under Compression in Continual Context Distillation",
        f"{CHUNKS}, catalyst and vocabulary head included",
        policy="infinipot",
    ),
    Method(
        "ccd",
        "InfiniPot without catalyst and novelty: what the last token attends to",
        CHUNKS,
        policy="ccd",
    ),
    Method(
        "cap-only",
        "InfiniPot without novelty: the catalyst's attention alone",
        f"{CHUNKS}, catalyst included",
        policy="infinipot",
        fixed={"novelty": 0.0},
        paper=f"{OURS}, Table 3",
    ),
    Method(
        "nuc-only",
        "InfiniPot without catalyst: the most novel tokens alone",
        f"{CHUNKS}, vocabulary head included",
        policy="infinipot",
        fixed={"novelty": 1.0, "pool": 1, "pooling": "mean"},
        paper=f"{OURS}, Table 3",
    ),
    Method(
        "no-cr-rope",
        "InfiniPot whose positions run on instead of being reset",
        f"{CHUNKS}, catalyst and vocabulary head included",
        policy="infinipot",
        mode=ReadingMode(positions="kept"),
        paper=f"{OURS}, section 4.4.3",
        deviations=(
            "as infinipot; longrope and dynamic RoPE are held at the regime of the model's whole window"
        ),
    ),
    Method(
        "truncate",
        "Both ends of the prompt, half of the room each; the middle is never read",
        "one pass over one pot, again for every question",
        mode=ReadingMode(prompt="truncate"),
        paper="TR: LongBench, Bai et al. 2023 (arXiv:2308.14508)",
        deviations=(
            "room for the answer is left inside the capacity; the chat template's own tokens count in the "
            "halves, where LongBench cuts before it"
        ),
    ),
    Method(
        "swa",
        "Sliding window attention: the most recent entries",
        "one pass per 64 tokens; exact, and 64 times as many, with --step 1",
        policy="streaming-llm",
        fixed={"sinks": 0},
        step=64,
        tail="raw",
        paper="Longformer, Beltagy et al. 2020 (arXiv:2004.05150)",
        deviations=(
            "with --step N a token sees the last |M| - N to |M| entries, where exact is always |M|; a "
            "question enters at once"
        ),
    ),
    Method(
        "streaming-llm",
        "Four attention sinks and the most recent entries",
        STEPS,
        policy="streaming-llm",
        step=1,
        tail="raw",
    ),
    Method(
        "h2o",
        "Heavy hitters by attention received so far, and the most recent entries",
        f"{STEPS}; every query's attention is summed",
        policy="h2o",
        step=1,
        tail="raw",
    ),
    Method(
        "tova",
        "What the last token attends to, the same tokens for all heads of a layer",
        CHUNKS,
        policy="tova",
    ),
    Method(
        "sirllm",
        "The most surprising tokens, the same for all layers and heads",
        f"{CHUNKS}, vocabulary head included",
        policy="sirllm",
    ),
    Method(
        "full",
        "The whole text in a cache that grows with it",
        "one pass per 2,048 tokens; attention grows with the square of the length",
        mode=GROWS,
        paper="Plain attention",
        deviations="longrope and dynamic RoPE are held at the regime of the model's whole window",
    ),
    Method(
        "snapkv",
        "The whole prompt first, then what its last tokens attend to",
        "as full while reading; short answers after it",
        policy="snapkv",
        mode=ReadingMode(distil="prompt", positions="kept"),
    ),
    Method(
        "self-extend",
        "The whole text, distant positions in groups so that they stay within the trained window",
        "about twice full: its attention has no fused kernel",
        mode=ReadingMode(distil="never", positions="grouped"),
        paper="Self-Extend, Jin et al. 2024 (arXiv:2401.01325)",
        deviations=(
            "InfiniPot reports the best of (group, window) = (2, 1024), (2, 1536), (4, 2048); the first "
            "is the default here; local layers keep their own window, and where every layer is local that "
            "window is ignored"
        ),
    ),
)


def methods() -> dict[str, Method]:
    """Every method by name: the paper's, then those of installed packages."""
    known = {method.name: method for method in METHODS}
    ours = {method.policy for method in METHODS}
    for name, cls in registry().items():
        if name not in ours and name not in known:
            known[name] = Method(name, (cls.__doc__ or "").strip().split("\n")[0], CHUNKS, policy=name)
    return known


def find(name: str) -> Method:
    """Return the method of that name, or say which one was probably meant."""
    found: Method = _nearest("recipe", name, methods())
    return found


def _nearest(what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known) or 'none'}"
    raise ConfigError(f"unknown {what} '{name}'; {hint}")


def parse_knob(text: str, method: Method) -> tuple[str, Any]:
    """Read NAME=VALUE; the value takes the type of the knob's default."""
    name, found, value = (part.strip() for part in text.partition("="))
    if not found:
        raise ConfigError(f"'{text}' is no setting: use NAME=VALUE")
    kind = type(method.knob(name))
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{name} is '{value}'; use true or false")
        return name, value.lower() == "true"
    try:
        return name, kind(value) if kind in (int, float) else value
    except ValueError:
        word = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} is '{value}'; use {word}") from None
