"""Small random Llamas on a card, readers on them, and what two pots have in common.

What is here and in the tests beside it needs torch, transformers, Triton and infinipot's core, and nothing
else: a borrowed machine often has no more, not even pytest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from infinipot.core.cuda import dispatch
from infinipot.hf.model import HFModel
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer

DEVICE = "cuda"
VOCABULARY = 1024
CAPACITY, KEEP = 512, 256


class Endless(ByteTokenizer):
    """Never stops; every twentieth token ends a sentence."""

    stop_ids = frozenset()

    def decode(self, ids: Sequence[int]) -> str:
        """Return a word, or a full stop, for each id."""
        return "".join("." if token % 20 == 0 else " word" for token in ids)


def model(dtype: torch.dtype = torch.float32, head_dim: int = 64, layers: int = 4) -> HFModel:
    """A random Llama with grouped heads; the same weights every time, exact in bfloat16 too."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=8192,
    )
    torch.manual_seed(0)
    made = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).to(dtype)
    return HFModel(made.eval().requires_grad_(False))


def reader(
    on: HFModel, recipe: str = "infinipot", plain: bool = False, bits: int = 16, units: str | None = None
) -> Reader:
    """A reader, whose pot has so many bits; a plain one captures nothing."""
    catalyst = "summarize all above" if recipe == "infinipot" else None
    sizes: dict[str, Any] = {
        "capacity": CAPACITY,
        "keep": KEEP,
        "tail": "distil",
        "pot_bits": bits,
        "units": units,
    }
    made = Recipe.named(recipe, catalyst=catalyst, **sizes).reader(on, Endless())
    if plain:
        made.session.graphs = None
    return made


@contextmanager
def plain_torch() -> Iterator[None]:
    """Neither graphs nor our kernels."""
    dispatch.KERNELS = False
    try:
        yield
    finally:
        dispatch.KERNELS = True


def tokens(count: int, seed: int = 1) -> list[int]:
    """Random tokens; the same for the same seed."""
    chance = torch.Generator().manual_seed(seed)
    return [int(one) for one in torch.randint(0, VOCABULARY, (count,), generator=chance)]


def read(by: Reader, ids: list[int]) -> None:
    """Read tokens to the end."""
    for _ in by.reading_tokens([ids]):
        pass


def same_slots(one: Reader, other: Reader) -> bool:
    """Say whether two pots hold the very same slots."""
    pairs = zip(one.pot.pot_layers, other.pot.pot_layers, strict=True)
    return all(torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill]) for a, b in pairs)


def slots_in_common(one: Reader, other: Reader) -> float:
    """The share of slots that two pots both hold, over layers and heads."""
    shares = [
        len({*x.tolist()} & {*y.tolist()}) / len(x)
        for a, b in zip(one.pot.pot_layers, other.pot.pot_layers, strict=True)
        for x, y in zip(a.source[0, :, : a.fill], b.source[0, :, : b.fill], strict=True)
    ]
    return sum(shares) / len(shares)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The error of a tensor as a share of the wanted one's size."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())
