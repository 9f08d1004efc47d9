"""Several readers answering together say what each says alone, whatever their fills and ends."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch

from families import build
from infinipot.core.cuda.graphs import Graphs
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rows import FixedRows
from infinipot.errors import InputError
from infinipot.hf.model import HFModel
from infinipot.reading import decode as decoding
from infinipot.reading import step_group
from infinipot.reading.answer import answer_all, ask_all
from infinipot.reading.reader import Reader
from infinipot.reading.room import TURNS
from infinipot.reading.sampling import Generation
from infinipot.reading.sequence import Sequence
from infinipot.reading.step_group import GRAPHS, POTS, prompt_parts
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXTS = ["A short one.", "The quick brown fox jumps over the lazy dog. " * 5, "One two three. " * 9, "x" * 64]


class Stops(ByteTokenizer):
    stop_ids = frozenset(range(0, 320, 7))  # answers end at different tokens


@cache
def model(family: str):
    return ToyModel() if family == "toy" else HFModel(copy.deepcopy(build(family)))


def readers(
    family: str,
    name: str = "infinipot",
    fixed: bool = False,
    tokenizer=ByteTokenizer,
    units: str | None = None,
) -> list[Reader]:
    recipe = replace(Recipe.named(name, capacity=64, units=units), catalyst="a b")
    made = [recipe.reader(model(family), tokenizer()) for _ in TEXTS]
    for reader, text in zip(made, TEXTS, strict=True):
        reader.read(text)
        if fixed:
            reader.session.graphs = Graphs(reader.pot, capture=False)
    return made


def recipe_reader() -> Reader:
    made = replace(Recipe.named(capacity=64), catalyst="a b").reader(model("toy"), ByteTokenizer())
    made.session.graphs = Graphs(made.pot, capture=False)
    return made


def share_rows(monkeypatch) -> None:
    """Let steps be written by address, as on a card, so that prompts get several rows."""
    monkeypatch.setattr(FixedRows, "serves", staticmethod(lambda _: True))
    monkeypatch.setitem(GRAPHS, model("toy"), Graphs(capture=False))


def together(made: list[Reader], prompts, wanted: Generation, final: bool) -> list[list[int]]:
    said: list[list[int]] = [[] for _ in made]
    for index, token in answer_all(made, prompts, wanted, final):
        said[index].append(token)
    return said


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("tokenizer", [ByteTokenizer, Stops])
@pytest.mark.parametrize("units", ["slots", "sentences"])
def test_the_same_tokens_and_pots_as_one_by_one(fixed: bool, final: bool, tokenizer, units: str) -> None:
    alone, joint = (readers("toy", fixed=fixed, tokenizer=tokenizer, units=units) for _ in range(2))
    prompts = [list(f"question {n}?".encode()) * (n + 1) for n in range(len(TEXTS))]
    wanted = Generation(30)
    one_by_one = [list(reader.generate(p, wanted, final)) for reader, p in zip(alone, prompts, strict=True)]
    assert together(joint, prompts, wanted, final) == one_by_one
    for a, b in zip(alone, joint, strict=True):
        assert (a.pot.fill, a.pot.tokens, a.pot.cycles) == (b.pot.fill, b.pot.tokens, b.pot.cycles)
        assert a.pot.pot_layers[0].dropped.item() == b.pot.pot_layers[0].dropped.item()
        for column in ("source", "novelty", "keys", *(["sentence"] if units == "sentences" else [])):
            left, right = (getattr(r.pot.pot_layers[1], column)[:, :, : a.pot.fill] for r in (a, b))
            torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)
        assert a.session.state.sentence == b.session.state.sentence
        assert a.ask("and?", Generation(6)) == b.ask("and?", Generation(6))


@pytest.mark.parametrize("way", ["plain", "fixed", "shared"])
@pytest.mark.parametrize("wanted", [Generation(30), Generation(9, temperature=0.8, seed=3, logprobs=2)])
def test_prompts_written_beside_other_answers_are_answered_as_those_written_at_once(
    way, wanted, monkeypatch
) -> None:
    """One token of a prompt or several at every step, whatever the others do; an empty pot and full ones."""
    if way == "shared":
        share_rows(monkeypatch)

    def speaking(later: bool) -> tuple[list[list[int]], list[Reader]]:
        made = readers("toy", fixed=way != "plain", tokenizer=Stops)
        made[0].clear()
        prompts = [list(f"question {n}?".encode()) * (n + 1) for n in range(len(made))]
        pairs = enumerate(zip(made, prompts, strict=True))
        begun = [reader.sequence(prompt, wanted, index=n, later=later) for n, (reader, prompt) in pairs]
        said: list[list[int]] = [[] for _ in made]
        batch = decoding.DecodeBatch(begun[:2])
        for step in range(120):
            for one in begun[2:] if step == 3 else ():
                batch.add(one)
            for one, token in batch.step():
                said[one.index].append(token)
        return said, made

    (found, after), (usual, before) = speaking(later=True), speaking(later=False)
    assert found == usual
    assert all(found)
    for a, b in zip(after, before, strict=True):
        assert a.pot.counters() == b.pot.counters()
        for column in ("source", "novelty", "keys"):
            left, right = (getattr(r.pot.pot_layers[1], column)[:, :, : a.pot.fill] for r in (a, b))
            torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)
        assert a.words() == b.words()
        assert a.ask("and?", Generation(6)) == b.ask("and?", Generation(6))


def test_prompts_take_the_rows_that_answers_leave_and_fewer_after_long_texts(monkeypatch) -> None:
    share_rows(monkeypatch)
    empty, full = (recipe_reader() for _ in range(2))
    full.read("The quick brown fox jumps over the lazy dog. " * 5)
    answering = recipe_reader().sequence([65], Generation(5))
    asked = [one.sequence([65] * 20, Generation(5), later=True) for one in (empty, full)]
    assert prompt_parts([answering]) == [[]]
    assert [len(part) for part in prompt_parts([answering, *asked])] == [
        0,
        21,
        1 + (POTS * 64 - 20 * 11) // (full.pot.fill + 11),
    ]
    monkeypatch.setattr(step_group, "SHARED", (8, 16))
    assert [len(part) for part in prompt_parts([answering, *asked])] == [0, 14, 1]
    monkeypatch.setattr(FixedRows, "may_share", staticmethod(lambda _: False))
    assert [len(part) for part in prompt_parts([answering, *asked])] == [0, 1, 1]


def test_few_rows_are_shared_where_pots_are_large(monkeypatch) -> None:
    share_rows(monkeypatch)
    pot = recipe_reader().pot
    assert step_group.shared_sizes(pot) == list(step_group.SHARED)
    pot.capacity = step_group.MOST_SLOTS // step_group.SHARED[1]
    assert step_group.shared_sizes(pot) == list(step_group.SHARED[:2])
    pot.capacity = step_group.MOST_SLOTS
    assert step_group.shared_sizes(pot) == []


@pytest.mark.parametrize("family", ["llama-3.1", "gemma-2", "gemma-3", "qwen3"])
def test_a_model_whose_attention_no_kernel_does_has_graphs_of_its_own(family: str, monkeypatch) -> None:
    """A graph for any pots would go on with the pots that it was captured with."""
    monkeypatch.setattr(PotLayer, "by_address", True)
    pot = model(family).new_pot(64, 32)
    assert FixedRows.serves(pot) == (family != "gemma-2")
    assert FixedRows.serves(pot.fork()) == (family != "gemma-2")


def test_what_a_graph_of_decoding_reads_is_held_beside_it(monkeypatch) -> None:
    share_rows(monkeypatch)
    reader = recipe_reader()
    list(reader.generate([65, 66], Generation(4)))
    held = GRAPHS[model("toy")].held
    assert reader.pot.pot_layers[0].rotation in [one for several in held.values() for one in several]


def test_a_prompt_is_written_in_one_step_and_given_up_half_way_leaves_its_pot_whole(monkeypatch) -> None:
    share_rows(monkeypatch)
    one, other = readers("toy", fixed=True)[1:3]
    before = other.pot.tokens
    batch = decoding.DecodeBatch([one.sequence([65], Generation(20))])
    asked = other.sequence(list(b"a question"), Generation(20), later=True)
    batch.add(asked)
    assert [told for told, _ in batch.step()] == [batch.sequences[0]]
    assert not asked.unwritten
    assert asked.session.state.pending == list(b"a question")  # on its way, and not known to be written
    batch.drop(asked)
    assert other.pot.tokens == before
    other.ask("fine?", Generation(3))
    batch.step()


def test_memory_that_runs_out_for_a_prompt_writes_it_token_by_token(monkeypatch) -> None:
    """The step that failed is not told: nothing of the prompt is lost, or written twice."""
    share_rows(monkeypatch)
    usual = list(readers("toy", fixed=True)[2].generate(list(b"a question"), Generation(6)))
    reader, step, failures = readers("toy", fixed=True)[2], decoding.StepGroup.step, iter([True, True, False])

    def failing(self, tokens):
        if self.shared and next(failures, False):
            raise torch.OutOfMemoryError("out of memory")
        return step(self, tokens)

    monkeypatch.setattr(decoding.StepGroup, "step", failing)
    batch = decoding.DecodeBatch([reader.sequence(list(b"a question"), Generation(6), later=True)])
    assert [token for _ in range(30) for _, token in batch.step()] == usual


def test_a_prompt_given_up_half_way_leaves_its_pot_whole() -> None:
    one, other = readers("toy", fixed=True)[1:3]
    before = other.pot.tokens
    batch = decoding.DecodeBatch([one.sequence([65], Generation(20))])
    half = other.sequence(list(b"a question"), Generation(20), later=True)
    batch.add(half)
    for _ in range(5):
        batch.step()
    batch.drop(half)
    assert 4 <= other.pot.tokens - before <= 5 < len(half.unwritten) + 5
    assert other.pot.pot_layers[0].dropped.item() == other.pot.tokens - other.pot.fill
    other.ask("fine?", Generation(3))
    batch.step()


@pytest.mark.parametrize("name", ["infinipot", "h2o", "tova", "swa", "full", "truncate", "no-cr-rope"])
def test_every_kind_of_recipe(name: str) -> None:
    questions = ["what?", "and who was it?", "where?", "why?"]
    wanted = [r.ask(q, Generation(12)) for r, q in zip(readers("toy", name), questions, strict=True)]
    assert ask_all(readers("toy", name), questions, Generation(12)) == wanted


@pytest.mark.parametrize("family", ["llama-3.1", "gemma-2", "gemma-3", "qwen3", "mistral-v0.1"])
def test_families(family: str) -> None:
    questions = ["what?", "and who was it?", "where?", "why?"]
    wanted = [r.ask(q, Generation(8)) for r, q in zip(readers(family), questions, strict=True)]
    assert ask_all(readers(family), questions, Generation(8)) == wanted


def test_sampling_is_repeatable_whoever_else_speaks() -> None:
    wanted = Generation(10, temperature=0.8, seed=3)
    alone = [list(r.generate([65, 66], wanted, True)) for r in readers("toy")]
    assert together(readers("toy"), [[65, 66]] * len(TEXTS), wanted, True) == alone


def test_an_answer_abandoned_half_way_leaves_every_pot_whole() -> None:
    made = readers("toy", fixed=True)
    speaking = answer_all(made, [[65]] * len(made), Generation(20), final=False)
    for _ in range(9):
        next(speaking)
    speaking.close()
    for reader, before in zip(made, readers("toy", fixed=True), strict=True):
        list(before.generate([65], Generation(2 if reader is made[0] else 1), final=False))
        assert 0 <= reader.pot.tokens - before.pot.tokens <= 2
        assert reader.pot.pot_layers[0].dropped.item() == reader.pot.tokens - reader.pot.fill
        reader.ask("fine?", Generation(3))


class SameOutputs(Graphs):
    """As a graph: whatever is computed comes out in the same tensors."""

    def run(self, key, inputs, compute, often=1):
        found = compute(*inputs)
        outputs = self.captured.setdefault(key, found)
        for output, new in zip(outputs, found, strict=True):
            output.copy_(new)
        return outputs


def test_answers_that_take_turns_do_not_disturb_each_other(monkeypatch) -> None:
    monkeypatch.setattr(FixedRows, "serves", staticmethod(lambda _: True))
    monkeypatch.setitem(GRAPHS, model("toy"), SameOutputs())
    alone = [list(r.generate([65, 66], Generation(12), True)) for r in readers("toy", fixed=True)]
    turns = zip(
        *(r.generate([65, 66], Generation(12), True) for r in readers("toy", fixed=True)), strict=True
    )
    assert [list(said) for said in zip(*turns, strict=True)] == alone


@pytest.mark.parametrize("name", ["full", "snapkv", "no-cr-rope", "ccd", "tova", "h2o"])
@pytest.mark.parametrize("many", [False, True])
def test_an_answer_to_the_brim_is_the_same_at_fixed_shapes(name: str, many: bool, monkeypatch) -> None:
    share_rows(monkeypatch)
    told = []
    for steady in (False, True):
        made = readers("toy", name)[: None if many else 1]
        for reader in made:
            reader.session.decodes_captured = steady
            assert reader.session.at_fixed_shapes(True) == steady
            assert not reader.session.at_fixed_shapes(False)
        said = together(made, [[65, 66]] * len(made), Generation(9), final=True)
        told.append((said, [reader.pot.fill for reader in made], [reader.pot.tokens for reader in made]))
    assert told[0] == told[1]
    assert all(len(one) == 9 for one in told[0][0])


def test_a_short_answer_goes_on_when_one_with_more_slots_joins_it(monkeypatch) -> None:
    share_rows(monkeypatch)

    def two() -> list[Reader]:
        made = [Recipe.named("full", capacity=16).reader(model("toy"), ByteTokenizer()) for _ in range(2)]
        for reader, text in zip(made, ("short", "a text that is a good deal longer " * 4), strict=True):
            reader.session.decodes_captured = True
            reader.read(text)
        return made

    alone = [list(reader.generate([65, 66], Generation(9), True)) for reader in two()]
    first, second = two()
    said: dict[Sequence, list[int]] = {}
    batch = decoding.DecodeBatch([first.sequence([65, 66], Generation(9), True)])
    for step in range(20):
        if step == 3:
            batch.add(second.sequence([65, 66], Generation(9), True, 1))
        for sequence, token in batch.step():
            said.setdefault(sequence, []).append(token)
    assert list(said.values()) == alone
    assert first.pot.pot_layers[0].capacity == second.pot.pot_layers[0].capacity


def test_what_cannot_be_done_together_is_said() -> None:
    made = readers("toy")
    with pytest.raises(InputError, match="one prompt a reader"):
        answer_all(made, [[1]], Generation(2))
    with pytest.raises(InputError, match=r"fork\(\)"):
        answer_all([made[0], made[0]], [[1], [1]], Generation(2))
    other = Recipe.named(capacity=256).reader(model("toy"), ByteTokenizer())
    with pytest.raises(InputError, match="one capacity"):
        answer_all([made[0], other], [[1], [1]], Generation(2))


def test_a_talk_that_goes_on_makes_room_for_several_turns_at_once() -> None:
    reader = recipe_reader()
    reader.read("The quick brown fox jumps over the lazy dog. " * 5)
    cycles = []
    for _ in range(6):
        list(reader.generate(list(b"?"), Generation(2)))
        cycles.append(reader.pot.cycles)
    assert cycles[0] == cycles[1] - 1  # the first answer has as much of the text as fits beside it
    assert len(set(cycles)) < len(cycles), "every turn distils"
    assert reader.pot.fill <= 64 - 64 // TURNS + 3 * 4
