"""Decoding at fixed shapes gives the plain path's tokens and pots; no GPU needed, graphs are only replays."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from families import FAMILIES, build
from infinipot.attention import attend, attend_fixed
from infinipot.hf.model import HFModel
from infinipot.reader import Generation, Reader
from infinipot.recipes import Recipe
from infinipot.static import Static
from infinipot.testing import ByteTokenizer
from infinipot.toy import ToyModel

TEXT = "The quick brown fox jumps over the lazy dog. "


class Endless(ByteTokenizer):
    stop_ids = frozenset()


@cache
def model(family: str) -> HFModel:
    return HFModel(copy.deepcopy(build(family)))


def pair(engine, name: str = "infinipot", **options) -> tuple[Reader, Reader]:
    """The same reader twice, the second decoding at fixed shapes."""
    options = {"capacity": 64, "catalyst": "a b", **options}
    plain, static = (Recipe.named(name, **options).reader(engine, Endless()) for _ in range(2))
    static._static = Static(static.pot, capture=False)
    return plain, static


def same_pots(a: Reader, b: Reader) -> None:
    for one, two in zip(a.pot.pot_layers, b.pot.pot_layers, strict=True):
        assert (one.fill, one.tokens, one.anchored) == (two.fill, two.tokens, two.anchored)
        assert one.clock.item() == two.clock.item() == one.tokens
        for column in ("source", "novelty", "keys", "values"):
            left, right = (getattr(layer, column)[:, :, : layer.fill] for layer in (one, two))
            torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama-2", "llama-3.1", "phi-3", "qwen3", "llama-dynamic"])
def test_families_decode_the_same_at_fixed_shapes(family: str) -> None:
    plain, static = pair(model(family))
    for one in (plain, static):
        one.read(TEXT * 4)
    wanted = Generation(max_new_tokens=90)  # longer than the pot: distilled on the way
    first = [list(one.generate(one._closing("go on"), wanted)) for one in (plain, static)]
    assert first[0] == first[1]
    assert static._decoder is not None
    same_pots(plain, static)
    second = ["".join(one.chat("and then?", Generation(20))) for one in (plain, static)]
    assert second[0] == second[1]
    same_pots(plain, static)


@pytest.mark.parametrize("name", ["infinipot", "cap-only", "nuc-only", "sirllm", "streaming-llm", "swa"])
def test_recipes_decode_the_same_at_fixed_shapes(name: str) -> None:
    plain, static = pair(ToyModel(), name)
    for one in (plain, static):
        one.read(TEXT * 4)
        one.said = ["".join(one.chat("so?", Generation(30))) for _ in range(3)]
    assert plain.said == static.said
    same_pots(plain, static)


def test_asking_leaves_no_trace_and_an_abandoned_answer_is_known() -> None:
    plain, static = pair(ToyModel())
    for one in (plain, static):
        one.read(TEXT * 3)
        one.asked = [one.ask("what?", Generation(9)) for _ in range(2)]
    assert plain.asked == static.asked
    assert static.asked[0] == static.asked[1]
    same_pots(plain, static)
    for one in (plain, static):
        answer = one.chat("tell me", Generation(20))
        for _ in range(5):
            next(answer)
        answer.close()
    same_pots(plain, static)


def test_a_policy_that_watches_every_token_decodes_plainly() -> None:
    _, static = pair(ToyModel(), "h2o")
    static.read(TEXT * 3)
    list(static.chat("so?", Generation(5)))
    assert static._decoder is None


def test_what_cannot_be_captured_says_why() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    pot = ToyModel().new_pot(32, 16)
    assert "CUDA" in Static.obstacle(pot, cpu)
    assert Static.obstacle(pot, cuda) == ""
    assert "shapes" in Static.obstacle(Recipe.named("full").reader(ToyModel(), ByteTokenizer()).pot, cuda)
    assert "local layers" in Static.obstacle(model("gemma-2").new_pot(32, 16), cuda)
    assert len(FAMILIES) > 10


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("slots", [48, 31])
def test_fixed_attention_is_attention_on_the_filled_slots(slots: int, softcap: float | None) -> None:
    query, keys, values = torch.randn(2, 6, 1, 8), torch.randn(2, 2, slots, 8), torch.randn(2, 2, slots, 5)
    for fill in (1, 7, slots - 1):
        found = attend_fixed(query, keys, values, 0.4, torch.tensor([fill]), softcap)
        wanted = attend(query, keys[:, :, : fill + 1], values[:, :, : fill + 1], 0.4, None, softcap)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
