"""The pot against plain transformers and against the slow float64 oracle, on every family."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers as tf

from families import FAMILIES, build
from infinipot.core.attention import attend
from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError, ModelError
from infinipot.hf.attention import infinipot_attention, register
from infinipot.hf.model import HFModel
from infinipot.hf.rope import still
from infinipot.policies.infinipot import InfiniPot
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer
from oracle import SlowPot
from slow_policies import infinipot

EVERY = sorted(FAMILIES)


def potted(family: str, dtype: torch.dtype = torch.float32) -> HFModel:
    return HFModel(copy.deepcopy(build(family, dtype)))


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 90, (1, count), generator=torch.Generator().manual_seed(seed))


def run(model: HFModel, pot, ids: torch.Tensor, catalyst: int = 0) -> torch.Tensor:
    with pot.writing(catalyst):
        return model.logits(model.forward(ids, pot))


@pytest.mark.parametrize("family", EVERY)
def test_with_room_to_spare_logits_are_those_of_plain_transformers(family: str) -> None:
    ids = tokens(100)
    with torch.no_grad():
        wanted = build(family)(ids).logits
    model = potted(family)
    # Dynamic RoPE depends on the length itself: the pot freezes the regime of its capacity.
    pot = model.new_pot(100 if family == "llama-dynamic" else 128, 64)
    found = torch.cat([run(model, pot, part) for part in ids.split((60, 1, 39), dim=1)], 1)
    assert (found - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("family", EVERY)
def test_the_attached_model_still_works_without_a_pot_and_with_padding(family: str) -> None:
    ids = tokens(60)
    mask = torch.ones(2, 30, dtype=torch.long)
    mask[0, :7] = 0
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    batch = {"input_ids": ids.view(2, 30), "attention_mask": mask, "position_ids": places}
    model = potted(family).model
    with torch.no_grad():
        wanted, found = build(family)(**batch).logits, model(**batch).logits
    assert (found - wanted)[mask.bool()].abs().max() <= 1e-5


@pytest.mark.parametrize("family", EVERY)
def test_entries_never_exceed_capacity(family: str) -> None:
    model = potted(family)
    reader = Reader(model, ByteTokenizer(), InfiniPot(), PotConfig(48, 24), catalyst="a b c")
    reader.session.catalyst = tokens(6, seed=3)[0].tolist()
    stream = tokens(400)[0].tolist()
    seen = []
    for step in reader.reading_tokens([stream[:150], stream[150:]]):
        held = [layer.entries for layer in reader.pot.layers]
        assert max(held) <= 48
        assert step.fill == reader.pot.fill <= 48
        seen.append(step.tokens_read)
    assert seen[-1] == 400
    assert reader.pot.cycles >= 15
    assert all(layer.keys.shape[2] <= 48 for layer in reader.pot.layers)


@pytest.mark.parametrize("family", ["llama-3.1", "llama-2"])
@pytest.mark.parametrize("share", [0.5, 0.0, 1.0])
def test_cycles_equal_the_slow_float64_reference(family: str, share: float) -> None:
    model = potted(family, torch.float64)
    pot_config = PotConfig(24, 10)
    catalyst = tokens(5, seed=9)[0].tolist()
    reader = Reader(model, ByteTokenizer(), InfiniPot(novelty=share), pot_config, catalyst="x y")
    if share < 1:
        reader.session.catalyst = catalyst
    slow = SlowPot(model.model)
    ids = tokens(60)[0].tolist()
    size = 24 - len(reader.session.catalyst)
    while len(ids) > size - reader.pot.fill:
        count = size - reader.pot.fill
        chunk, ids = ids[:count], ids[count:]
        reader.session.write(chunk, distil=True)
        slow.read(chunk)
        heard = slow.ask_catalyst(reader.session.catalyst) if reader.session.catalyst else None
        slow.keep(partial(infinipot, slow, budget=10, catalyst=heard, novelty=share))
        for index, layer in enumerate(reader.pot.pot_layers):
            for head in range(layer.keys.shape[1]):
                assert layer.source[0, head, :10].tolist() == slow.sources(index, head)
    hidden = reader.session.write(ids)
    wanted = slow.read(ids)
    assert reader.pot.cycles >= 3
    torch.testing.assert_close(model.logits(hidden)[0, -1], wanted, atol=2e-5, rtol=1e-4)
    for index, layer in enumerate(
        reader.pot.pot_layers if share else []
    ):  # without a share nobody computes it
        for head in range(layer.keys.shape[1]):
            entries = slow.entries[index][head]
            torch.testing.assert_close(
                layer.novelty[0, head, : layer.fill].double(),
                torch.tensor([e.novelty for e in entries], dtype=torch.float64),
                atol=1e-5,
                rtol=1e-4,
            )


def test_an_all_local_model_needs_a_pot_within_its_window() -> None:
    model = potted("mistral-v0.1")
    assert model.new_pot(256, 64).pot_layers
    with pytest.raises(ConfigError, match="`capacity` 256 or less"):
        model.new_pot(257, 64)


def test_a_model_with_other_positions_is_refused() -> None:
    model = copy.deepcopy(build("llama-2"))
    model.model.rotary_emb.forward = lambda x, position_ids: (  # interleaved pairs instead of halves
        lambda a: (a.cos().repeat_interleave(2, -1), a.sin().repeat_interleave(2, -1))
    )(position_ids[..., None].float() * model.model.rotary_emb.inv_freq)
    with pytest.raises(ModelError, match="do not follow plain RoPE"):
        HFModel(model)


def test_longrope_is_frozen_to_the_regime_of_the_capacity() -> None:
    model = potted("phi-3-longrope")
    short = model.new_pot(64, 32).pot_layers[0].rotation
    long = model.new_pot(65, 32).pot_layers[0].rotation
    assert not torch.equal(short.cos[:60], long.cos[:60])
    rotary, places = model.model.model.rotary_emb, torch.arange(10)[None]
    with torch.no_grad():  # positions below 64 are the short regime in plain transformers
        plain = rotary(torch.zeros(1), places)[1]
        with still(model.decoder, model.config, 65):
            held = rotary(torch.zeros(1), places)[1]
        after = rotary(torch.zeros(1), places)[1]
    width, scale = long.sin.shape[1], rotary.attention_scaling
    torch.testing.assert_close(held[0, :, :width], long.sin[:10] * scale)
    torch.testing.assert_close(plain[0, :, :width], short.sin[:10] * scale)
    assert torch.equal(plain, after)


def test_two_pots_of_one_model_may_have_different_regimes() -> None:
    model = potted("phi-3-longrope")
    alone, beside = model.new_pot(64, 32), model.new_pot(64, 32)
    wide = model.new_pot(128, 32)
    ids = tokens(30)
    first = run(model, alone, ids)
    run(model, wide, tokens(100))
    assert torch.equal(run(model, beside, ids), first)


@pytest.mark.parametrize("name", ["infinipot", "ccd", "h2o", "tova"])
def test_a_model_that_hides_its_attention_is_refused(name: str) -> None:
    model = potted("llama-2")
    reader = replace(Recipe.named(name, capacity=64), catalyst="a b").reader(model, ByteTokenizer())
    reader.model.forward = lambda ids, pot: HFModel.forward(model, ids, _Blind(pot))
    with pytest.raises(ModelError, match="does not show its attention"):
        reader.read("x" * 100)


class _Blind:
    """A pot to which nobody shows attention, as when a model drops the keyword on its way."""

    def __init__(self, pot) -> None:
        self.pot = pot

    def __getattr__(self, name: str):
        return self._attend if name == "attend" else getattr(self.pot, name)

    def _attend(self, _layer, queries, keys, values, spec):
        return attend(queries, keys, values, spec)


def test_an_architecture_without_rope_is_refused_in_one_line() -> None:
    config = tf.GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2)
    with pytest.raises(ModelError, match="RoPE"):
        HFModel(tf.GPT2LMHeadModel(config))


def test_attention_that_is_not_plain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(build("llama-2"))
    real = infinipot_attention

    def other(module, query, key, value, mask, **options):
        return real(module, query, key, value * 1.5, mask, **options)

    monkeypatch.setattr("infinipot.hf.attention.infinipot_attention", other)
    with pytest.raises(ModelError, match="not plain causal attention"):
        HFModel(model)
    monkeypatch.undo()
    register()


def test_one_text_on_which_a_model_differs_from_itself_does_not_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, seen = infinipot_attention, []

    def other(module, query, key, value, mask, **options):
        seen.append(query.shape[2])
        first = len(seen) <= module.config.num_hidden_layers  # of the layers on the first text
        return real(module, query, key, value * (1.5 if first else 1.0), mask, **options)

    monkeypatch.setattr("infinipot.hf.attention.infinipot_attention", other)
    model = HFModel(copy.deepcopy(build("llama-2")))
    monkeypatch.undo()
    register()
    assert seen.count(8) == 2 * model.config.num_hidden_layers  # a second text was tried, and no third
