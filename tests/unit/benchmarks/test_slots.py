"""Candidates for how a pot spends its slots: the default without settings, and every setting counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import budgets
import slots
from budgets import Budgeted
from candidates import Candidate, Unlike, by_maximum, see_values, take_maximum
from families import build
from infinipot.core import attention, pot_layer
from infinipot.core.attention import LogitSpec
from infinipot.core.evidence import Evidence
from infinipot.core.pot import Pot
from infinipot.core.rope import Rotation
from infinipot.core.scores import received
from infinipot.engine import Engine
from infinipot.hf.model import HFModel
from infinipot.policies.infinipot import InfiniPot
from infinipot.policies.registry import registry
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipes `candidate`, `unlike` and `budgeted`, for one test."""
    monkeypatch.setitem(registry(), "candidate", Candidate)
    monkeypatch.setitem(registry(), "unlike", Unlike)
    monkeypatch.setitem(registry(), "budgeted", Budgeted)


def seen() -> Evidence:
    chance = torch.Generator().manual_seed(0)
    novelty, catalyst = torch.rand(2, 1, 2, 64, generator=chance)
    return Evidence(0, torch.arange(64).expand(1, 2, 64), 9 * novelty, catalyst, opening=2, recent=4)


def kept(policy: Candidate | InfiniPot) -> list[int]:
    score = policy.score(seen(), 24)[0, 0]
    return sorted(score.topk(16).indices.tolist())


def test_without_settings_a_candidate_is_the_default() -> None:
    assert torch.equal(Candidate().score(seen(), 24), InfiniPot().score(seen(), 24))


OTHERS = {"across", "share", "units", "ends", "recipe"}  # want more than a layer's scores
SET = [one for one in slots.CANDIDATES.values() if set(one) - {"catalyst"} and not OTHERS & set(one)]


@pytest.mark.parametrize("told", SET)
def test_every_setting_changes_what_is_kept(told: dict[str, object]) -> None:
    made = Candidate(**{name: value for name, value in told.items() if name != "catalyst"})  # type: ignore[arg-type]
    assert kept(made) != kept(Candidate())


@pytest.mark.usefixtures("known")
def test_every_candidate_is_a_cell_of_its_own() -> None:
    names = [cell.name for cell in slots.Cells(list(slots.CANDIDATES), 512).cells()]
    assert len(set(names)) == len(slots.CANDIDATES)


def unlike(policy: Unlike, values: torch.Tensor) -> list[int]:
    """What a policy keeps of 16 slots, of which 12 are new; the catalyst likes none of them."""
    source = torch.cat((torch.arange(0, 8, 2), torch.arange(8, 20))).expand(1, 1, 16)
    evidence = Evidence(0, source, torch.zeros(1, 1, 16), torch.zeros(1, 1, 16), last=values)
    slots = policy.select(evidence, 4)
    assert torch.equal(policy.aged(torch.zeros(1, 1, 4)), policy_novelty(values).gather(-1, slots))
    return slots[0, 0].tolist()


def policy_novelty(values: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(16) < 4, 0.0, values)


def test_what_is_unlike_is_found_among_what_is_new_and_goes_with_its_slot() -> None:
    values = torch.zeros(1, 1, 16).index_fill(-1, torch.tensor([0, 1, 6, 7, 12, 13]), 1.0)
    assert unlike(Unlike(novelty=1.0), values) == [6, 7, 12, 13]  # slots 0 and 1 had their turn


def test_values_unlike_the_mean_of_new_ones_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pot_layer.PotLayer, "evidence", pot_layer.PotLayer.evidence)
    see_values()
    reader = Recipe.named(capacity=256, recall=0).reader(ToyModel(), ByteTokenizer())
    reader.read("abcdefgh" * 4)
    layer = reader.pot.pot_layers[0]
    layer.values[:, :, : layer.fill] = torch.tensor([1.0] + [0.0] * (layer.values.shape[-1] - 1))
    layer.values[:, :, 5] *= -1
    found = reader.pot.evidence()[0]
    assert found is not None
    assert found.last is not None
    assert found.last[..., 5].min() > 1.9
    assert found.last[..., 6].max() < 1e-6


@pytest.mark.usefixtures("known")
def test_a_table_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = f"--data {tmp_path} --part tune --only pooled --capacity 256 --depths 0.5 --lengths 600 --trials 6"
    args = slots.options().parse_args([*told.split(), "--out", str(tmp_path / "out")])
    (tmp_path / "essays").mkdir()
    (tmp_path / "essays" / "a.txt").write_text("The sea was calm and nobody spoke of the keeper. " * 200)
    slots.run("essays", Engine("toy", "plain", ToyModel(), ByteTokenizer()), args, float("inf"))
    said = capsys.readouterr().out
    assert "default" in said
    assert "pooled" in said


def halves(new: float) -> Evidence:
    """A pot of 24 that kept 12 slots before; what it read since is more novel by a factor."""
    chance = torch.Generator().manual_seed(0)
    novelty, catalyst = torch.rand(2, 1, 2, 24, generator=chance)
    source = torch.cat((torch.arange(0, 24, 2), torch.arange(24, 36))).expand(1, 2, 24)
    return Evidence(0, source, novelty * torch.where(torch.arange(24) < 12, 1.0, new), catalyst)


def test_dull_text_gets_few_slots_and_dense_text_many() -> None:
    policy = Candidate(share="nats")
    dull, dense = (policy.select(halves(new), 12) for new in (0.1, 10.0))
    assert (dull >= 12).sum(-1).max() <= 2
    assert (dense >= 12).sum(-1).min() >= 10
    seen = halves(1.0)
    share = float((seen.novelty[0, 0, 12:].sum() / seen.novelty[0, 0].sum() * 12).round())
    chosen = policy.select(seen, 12)[0, 0]
    assert int((chosen >= 12).sum()) == share
    old = seen.novelty[0, 0, :12].topk(round((12 - share) / 2)).indices  # half of either side by novelty
    assert set(old.tolist()) <= set(chosen.tolist())


def test_what_was_read_last_is_new_however_large_the_budget_is() -> None:
    policy, given = Candidate(share="nats"), halves(10.0)
    chosen = policy.select(given, 20)  # twelve of them are new, and their share would be more
    assert (chosen >= 12).sum(-1).tolist() == [[12, 12]]
    assert policy.select(halves(0.1), 20)[0, 0].lt(12).sum() == 12


def test_before_anything_was_dropped_all_text_is_new() -> None:
    assert torch.equal(Candidate(share="nats").select(seen(), 24), Candidate().select(seen(), 24))


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(budgets, "SPARE", 8)
    monkeypatch.setattr(Pot, "attend", budgets._attend)
    Budgeted.hidden.clear()
    return 8


def live(across: str, evidence: Evidence) -> torch.Tensor:
    """The slots [B, H, S] that are not hidden after a choice of 24."""
    policy = Budgeted(across=across)  # type: ignore[arg-type]  # one of its words
    slots = policy.select(evidence, 24)
    marked = [policy.aged(one.float()) for one in slots.chunk(len(slots))]
    assert not policy.hidden
    shown = ~torch.cat(marked).isneginf()
    return torch.zeros(evidence.novelty.shape, dtype=torch.bool).scatter(-1, slots, shown)


def test_even_budgets_are_the_default(spare: int) -> None:
    evidence = seen()
    wanted = torch.zeros(1, 2, 64, dtype=torch.bool).scatter(-1, Candidate().select(evidence, 16), True)
    assert torch.equal(live("none", evidence), wanted)


def test_heads_share_a_layers_budget_and_layers_share_all(spare: int) -> None:
    chance = torch.Generator().manual_seed(1)
    novelty, catalyst = torch.rand(2, 3, 2, 64, generator=chance)
    catalyst[:, 0] *= 3  # the first head of each layer sees more, and the last layer most of all
    catalyst[2] *= 9
    evidence = Evidence(0, torch.arange(64).expand(3, 2, 64), novelty, catalyst)
    by_head, by_layer = (live(across, evidence).sum(-1) for across in ("heads", "layers"))
    assert by_head.sum(-1).tolist() == [32] * 3
    assert (by_head[:, 0] > by_head[:, 1]).all()
    assert int(by_layer.sum()) == 96
    assert by_layer[2].sum() > by_layer[:2].sum(-1).max()
    assert by_layer.min() >= 8 + round(budgets.LEAST * 8)
    assert by_layer.max() <= 24


def test_shares_are_met_as_far_as_the_bounds_let_them() -> None:
    assert budgets.allotted([0.2, 0.2, 0.2], 16, 3, 24) == [16, 16, 16]
    assert budgets.allotted([1, 2, 3], 16, 3, 24) == [8, 16, 24]
    assert budgets.allotted([0, 1, 1, 98], 16, 3, 24) == [3, 18, 18, 24]


def test_each_layer_has_its_share(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budgeted, "shares", (1, 2, 3))
    novelty, catalyst = torch.rand(2, 3, 2, 64, generator=torch.Generator().manual_seed(1))
    evidence = Evidence(0, torch.arange(64).expand(3, 2, 64), novelty, catalyst)
    assert live("shares", evidence).sum(-1).tolist() == [[8 + 4] * 2, [8 + 8] * 2, [8 + 12] * 2]


def test_a_first_layers_keys_do_not_change_and_later_ones_do() -> None:
    engine = Engine("small", "plain", HFModel(build("llama-3.1")), ByteTokenizer())
    found = budgets.sensitivity(engine, "The quick brown fox jumps over the lazy dog. " * 12, 200)
    assert abs(found[0]) < 1e-6
    assert min(found[1:]) > 1e-4
    with pytest.raises(SystemExit, match="more than 200"):
        budgets.sensitivity(engine, "The quick brown fox.", 200)


def test_what_calibration_found_is_of_one_text_and_pot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budgeted, "shares", ())
    monkeypatch.setattr(budgets, "sensitivity", lambda engine, text, capacity: [0.1, 0.2])
    text = tmp_path / "text"
    text.write_text("one")
    words = ["--data", "x", "--part", "tune", "--out", str(tmp_path), "--calibration", str(text)]
    args, none = slots.options().parse_args(words), Engine("small", "plain", ToyModel(), ByteTokenizer())
    slots.calibrate(none, args)
    assert Budgeted.shares == [0.1, 0.2]
    slots.calibrate(none, args)
    text.write_text("another")
    with pytest.raises(SystemExit, match="another text, capacity or model"):
        slots.calibrate(none, args)


def test_all_candidates_are_those_that_need_no_calibration() -> None:
    assert "budgets by sensitivity" not in slots.named("")
    assert slots.named("budgets by sensitivity") == ["default", "budgets by sensitivity"]


def test_hidden_slots_are_not_seen(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry(), "budgeted", Budgeted)
    monkeypatch.setattr(budgets.dispatch, "KERNELS", True)
    model = HFModel(build("llama-3.1"))
    budgets.allow(Engine("small", "plain", model, ByteTokenizer()))
    recipe = Recipe.named("budgeted", capacity=72, keep=40, catalyst="and so?", across="heads")
    reader = recipe.reader(model, ByteTokenizer())
    reader.read("The quick brown fox jumps over the lazy dog. " * 6)
    hidden = [layer.novelty[:, :, : layer.fill].isneginf() for layer in reader.pot.pot_layers]
    assert all(int(one.sum()) == 8 * one.shape[1] for one in hidden)
    said = []
    for noise in (0.0, 50.0):
        for layer, gone in zip(reader.pot.pot_layers, hidden, strict=True):
            for held in (layer.keys, layer.values):
                held[:, :, : layer.fill] += noise * gone[..., None]
        said.append(reader.session.fork().write([5, 7]))
    assert torch.equal(*said)


def test_hidden_slots_are_never_read_in_bfloat16(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There logits come rounded out of the product, and a hidden slot's would drown the others."""
    monkeypatch.setitem(registry(), "budgeted", Budgeted)
    monkeypatch.setattr(attention, "MANY", 2)
    recipe = Recipe.named("budgeted", capacity=72, keep=40, catalyst="and so?", across="heads")
    read = []
    for mixed in (False, True):
        model = HFModel(build("llama-3.1"))
        budgets.allow(Engine("small", "plain", model, ByteTokenizer()))
        for module in model.decoder.modules():
            module.mixed = mixed  # type: ignore[assignment]  # torch types a module's attributes so
        reader = recipe.reader(model, ByteTokenizer())
        reader.read("The quick brown fox jumps over the lazy dog. " * 6)
        read.append(reader.session.fork().write([5, 7]))
    assert torch.equal(*read)


def test_a_frozen_score_stays_what_it_was() -> None:
    policy, first = Candidate(join="frozen"), replace(seen(), opening=0, recent=0)
    slots = policy.select(first, 24)
    scores = policy.score(first, 24).gather(-1, slots)
    held = policy.aged(first.novelty.gather(-1, slots))
    assert not policy.born
    chance = torch.Generator().manual_seed(3)
    novelty, catalyst = torch.rand(2, 1, 2, 40, generator=chance)
    later = Evidence(
        0, torch.arange(40).expand(1, 2, 40), torch.cat((held, 9 * novelty[..., 24:]), -1), catalyst
    )
    again = policy.score(later, 24)
    torch.testing.assert_close(again[..., :24], scores, atol=2e-3, rtol=0)
    new = policy.score(replace(later, novelty=9 * novelty[..., 24:], catalyst=catalyst[..., 24:]), 24)
    inner = slice(28, 40)  # beside the old ones attention is pooled with theirs
    assert torch.corrcoef(torch.stack((again[0, 0, inner], new[0, 0, 4:])))[0, 1] > 0.95
    policy.select(later, 24)
    policy.born.clear()


def test_the_maximum_over_a_groups_query_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys, spec = torch.randn(1, 6, 5, 8), torch.randn(1, 2, 12, 8), LogitSpec(0.3)
    found = by_maximum(queries, keys, spec)
    for head in range(2):
        each = [received(queries[:, [3 * head + one]], keys[:, [head]], 0.3) for one in range(3)]
        torch.testing.assert_close(found[:, head], torch.cat(each, 1).amax(1))
    monkeypatch.setattr(pot_layer, "_received", pot_layer._received)  # is put back
    take_maximum()
    layer = pot_layer.PotLayer(16, 8, Rotation(torch.ones(4), 16))
    layer.observe(queries, keys, spec, {"catalyst"}, 1, 5)
    assert layer.catalyst is not None
    torch.testing.assert_close(layer.catalyst, found[..., :-5])


def test_whole_sentences_are_those_of_the_policy() -> None:
    chance = torch.Generator().manual_seed(4)
    sentence = (torch.rand(1, 2, 64, generator=chance) < 0.2).cumsum(-1)
    evidence = replace(seen(), sentence=sentence)
    mine, theirs = Candidate(units="sentences"), InfiniPot(units="sentences")
    assert mine.needs == theirs.needs
    assert torch.equal(mine.select(evidence, 24), theirs.select(evidence, 24))
    assert not torch.equal(mine.select(evidence, 24), Candidate().select(evidence, 24))


def test_all_heads_may_keep_the_same() -> None:
    chance = torch.Generator().manual_seed(2)
    catalyst, novelty = torch.rand(3, 2, 64, generator=chance), torch.rand(64, generator=chance)
    source = torch.arange(64).expand(3, 2, 64)
    evidence = Evidence(0, source, novelty.expand(3, 2, 64), catalyst / catalyst.sum(-1, keepdim=True))
    kept = Candidate(heads="all", pool=1, novelty=0.0).select(evidence, 16)
    assert (kept == kept[0, 0]).all()
    assert evidence.catalyst is not None
    assert set(kept[0, 0].tolist()) == set(evidence.catalyst.mean((0, 1)).topk(16).indices.tolist())
