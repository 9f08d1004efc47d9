"""`closing`: the last slots that no distillation drops."""

from __future__ import annotations

import pytest
import torch

from infinipot import Generation, InfiniPotError, Recipe
from infinipot.reading.reader import Reader
from infinipot.testing import ByteTokenizer, ToyModel

TEXT = "".join(f"{n} " for n in range(200))
RECIPES = ("infinipot", "ccd", "tova", "sirllm", "h2o", "snapkv", "streaming-llm")


def read(name: str, closing: int) -> Reader:
    asks = {"catalyst": "a b"} if name == "infinipot" else {}
    options = {"tail": "distil"} if name in ("infinipot", "ccd", "tova", "sirllm") else {}
    one = Recipe.named(name, capacity=64, closing=closing, **asks, **options).reader(
        ToyModel(), ByteTokenizer()
    )
    one.read(TEXT)
    return one


@pytest.mark.parametrize("name", RECIPES)
def test_the_last_slots_stay_in_every_layer_and_head(name: str) -> None:
    one = read(name, 12)
    seen: list[torch.Tensor] = []
    before = one.pot.cycles
    one.session.recording = None
    keep = one.pot.keep

    def kept(slots: list[torch.Tensor | None]) -> None:
        seen.append(torch.stack([found[..., -12:] for found in slots if found is not None]))
        wanted = torch.arange(one.pot.fill - 12, one.pot.fill)
        assert torch.equal(seen[-1], wanted.expand_as(seen[-1]))
        keep(slots)

    one.pot.keep = kept  # type: ignore[method-assign]
    one.read(TEXT)
    list(one.chat("so?", Generation(4)))
    assert one.pot.cycles > before
    assert seen


def test_none_by_default() -> None:
    assert Recipe.named().config.closing == 0
    assert Recipe.named().describe()["closing"] == 0


def test_more_than_is_kept_is_refused() -> None:
    with pytest.raises(InfiniPotError, match=r"`closing` is 40.*use 0 to 32") as refused:
        Recipe.named(capacity=64, closing=40)
    assert refused.value.field == "closing"
    with pytest.raises(InfiniPotError, match="leave out `closing`"):
        Recipe.named("full", closing=4)
