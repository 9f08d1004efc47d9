"""Every system of the paper's tables as plain data: prompt edit, position map, policy, sizes.

A policy of another package, found through the entry point `infinipot.policies`, is a preset of its own name
inside the CCD pipeline. The command's table, the docs and the property tests are all made from `presets()`.
"""

from __future__ import annotations

from infinipot.common import suggest
from infinipot.core.config import ReadingMode
from infinipot.policies.registry import registry
from infinipot.recipes.preset import Preset

CHUNKS = "one pass per chunk"
STEPS = "one pass per token once the pot is full; `step` N divides that by N"
GROWS = ReadingMode(distil="never")
OURS = "InfiniPot (EMNLP 2024)"
PRESETS = (
    Preset(
        "infinipot",
        "Catalyst Prompt + Novelty under Compression in Continual Context Distillation",
        f"{CHUNKS}, catalyst and vocabulary head included",
        policy="infinipot",
    ),
    Preset(
        "ccd", "InfiniPot without catalyst and novelty: what the last token attends to", CHUNKS, policy="ccd"
    ),
    Preset(
        "cap-only",
        "InfiniPot without novelty: the catalyst's attention alone",
        f"{CHUNKS}, catalyst included",
        policy="infinipot",
        fixed={"novelty": 0.0},
        paper=f"{OURS}, Table 3",
    ),
    Preset(
        "nuc-only",
        "InfiniPot without catalyst: the most novel tokens alone",
        f"{CHUNKS}, vocabulary head included",
        policy="infinipot",
        fixed={"novelty": 1.0, "pool": 1, "pooling": "mean"},
        paper=f"{OURS}, Table 3",
    ),
    Preset(
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
    Preset(
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
    Preset(
        "swa",
        "Sliding window attention: the most recent entries",
        "one pass per 64 tokens; exact, and 64 times as many, with `step` 1",
        policy="streaming-llm",
        fixed={"sinks": 0},
        step=64,
        tail="raw",
        paper="Longformer, Beltagy et al. 2020 (arXiv:2004.05150)",
        deviations=(
            "with `step` N a token sees the last |M| - N to |M| entries, where exact is always |M|; a "
            "question enters at once"
        ),
    ),
    Preset(
        "streaming-llm",
        "Four attention sinks and the most recent entries",
        STEPS,
        policy="streaming-llm",
        step=1,
        tail="raw",
    ),
    Preset(
        "h2o",
        "Heavy hitters by attention received so far, and the most recent entries",
        f"{STEPS}; every query's attention is summed",
        policy="h2o",
        step=1,
        tail="raw",
    ),
    Preset(
        "tova",
        "What the last token attends to, the same tokens for all heads of a layer",
        CHUNKS,
        policy="tova",
    ),
    Preset(
        "sirllm",
        "The most surprising tokens, the same for all layers and heads",
        f"{CHUNKS}, vocabulary head included",
        policy="sirllm",
    ),
    Preset(
        "full",
        "The whole text in a cache that grows with it",
        "one pass per 2,048 tokens; attention grows with the square of the length",
        mode=GROWS,
        paper="Plain attention",
        deviations="longrope and dynamic RoPE are held at the regime of the model's whole window",
    ),
    Preset(
        "snapkv",
        "The whole prompt first, then what its last tokens attend to",
        "as full while reading; short answers after it",
        policy="snapkv",
        mode=ReadingMode(distil="prompt", positions="kept"),
    ),
    Preset(
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


def presets() -> dict[str, Preset]:
    """Return every preset by name: the paper's, then those of installed packages."""
    known = {preset.name: preset for preset in PRESETS}
    ours = {preset.policy for preset in PRESETS}
    for name, cls in registry().items():
        if name not in ours and name not in known:
            known[name] = Preset(name, (cls.__doc__ or "").strip().split("\n")[0], CHUNKS, policy=name)
    return known


def find(name: str) -> Preset:
    """Return the preset of that name, or say which one was probably meant."""
    return suggest.find("recipe", name, presets(), field="recipe")
