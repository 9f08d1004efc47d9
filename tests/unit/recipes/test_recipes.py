"""Whole recipes against slow pipelines in float64, and what bad sizes and names are told."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata

import pytest
import torch

import slow_policies
from families import build
from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError, InputError
from infinipot.hf.generate import generate_inputs
from infinipot.hf.model import HFModel
from infinipot.policies.registry import GROUP, registry
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.state import HeadAndTail
from infinipot.recipes.presets import find, parse_knob, presets
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from oracle import SlowPot

CAPACITY = 40
TEXT = torch.randint(3, 250, (150,), generator=torch.Generator().manual_seed(8)).tolist()
QUESTION = [77, 21, 140, 9, 60, 31, 200, 11, 5, 18]


def model() -> HFModel:
    return HFModel(copy.deepcopy(build("llama-3.1", torch.float64)))


def answered(name: str, **options) -> tuple[Reader, torch.Tensor]:
    """A reader that has read TEXT and QUESTION, and the logits after them."""
    recipe = replace(Recipe.named(name, capacity=CAPACITY, **options), catalyst="a b")
    if recipe.config.tail == "distil":  # the slow twin stops where the text does
        recipe = replace(recipe, config=replace(recipe.config, tail="raw"))
    one = recipe.reader(model(), ByteTokenizer())
    one.frame = replace(one.frame, opening=[])
    for _ in one.reading_tokens([TEXT]):
        pass
    said: list[torch.Tensor] = []
    logits = one.model.logits
    one.model.logits = lambda hidden: said.append(logits(hidden)) or said[-1]
    list(one.generate(QUESTION, Generation(1), final=True))
    return one, said[-1][0]


def slow_cycles(slow: SlowPot, keep: int, choose, catalyst: list[int], fit: bool = False) -> None:
    """Fill, choose, go on; then make room for the question, write it.

    To `fit`, the last choice leaves what has room beside the rest of the text.
    """
    ids = list(TEXT)
    space = CAPACITY - len(catalyst)
    while ids:
        count = space - len(slow.entries[0][0])
        slow.read(ids[:count])
        del ids[:count]
        if ids:
            heard = slow.ask_catalyst(catalyst) if catalyst else None
            left = CAPACITY - len(catalyst) - len(ids) if fit else 0
            slow.keep(partial(choose, budget=max(keep, left), catalyst=heard))
    room = len(QUESTION) + 1 + len(catalyst)
    if fit:
        budget = CAPACITY - len(QUESTION) - 1 - 1 - len(catalyst)
        heard = slow.ask_catalyst(catalyst) if catalyst else None
        slow.keep(partial(choose, budget=budget, catalyst=heard, recent=budget // 4))
    if len(slow.entries[0][0]) + len(QUESTION) + 1 > CAPACITY:
        heard = slow.ask_catalyst(catalyst) if catalyst else None
        slow.keep(partial(choose, budget=min(keep, CAPACITY - room), catalyst=heard))
    slow.read(QUESTION)


def same_pot(one: Reader, slow: SlowPot) -> None:
    for index, layer in enumerate(one.pot.pot_layers):
        for head in range(layer.source.shape[1]):
            assert layer.source[0, head, : layer.fill].tolist() == slow.sources(index, head), (index, head)


CYCLING = {
    "infinipot": ("infinipot", {"novelty": 0.5}),
    "cap-only": ("infinipot", {"novelty": 0.0}),
    "nuc-only": ("infinipot", {"novelty": 1.0}),
    "no-cr-rope": ("infinipot", {"novelty": 0.5}),
    "ccd": ("ccd", {}),
    "tova": ("tova", {}),
    "sirllm": ("sirllm", {}),
    "swa": ("streaming-llm", {"sinks": 0}),
    "streaming-llm": ("streaming-llm", {}),
    "h2o": ("h2o", {}),
    "h2o-half": ("h2o", {"heavy": 0, "share": 0.5}),
    "tova-tokenwise": ("tova", {}),
    "infinipot-paper": ("infinipot", {"novelty": 0.5, "pool": 1}),
}


def by_slots(name: str) -> dict[str, str]:
    """What a recipe is to be told where the slow twin knows no sentences; they have a twin of their own."""
    return {"units": "slots"} if "units" in find(name).knobs else {}


@pytest.mark.parametrize("name", sorted(CYCLING))
def test_a_bounded_recipe_is_its_slow_pipeline(name: str) -> None:
    one, logits = answered(name, tail="distil", **by_slots(name))
    policy, knobs = CYCLING[name]
    slow = SlowPot(one.model.model, reset=name != "no-cr-rope")
    choose = partial(slow_policies.SLOW[policy], slow, **knobs)
    slow_cycles(slow, one.config.kept, choose, one.session.catalyst)
    same_pot(one, slow)
    torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["infinipot", "cap-only", "nuc-only", "no-cr-rope"])
def test_fitting_where_a_text_ends_is_its_slow_pipeline(name: str) -> None:
    one, logits = answered(name, **by_slots(name))
    assert one.config.tail == "fill"
    slow = SlowPot(one.model.model, reset=name != "no-cr-rope")
    choose = partial(slow_policies.infinipot, slow, **CYCLING[name][1])
    slow_cycles(slow, one.config.kept, choose, one.session.catalyst, fit=True)
    assert one.pot.fill == CAPACITY - 1 - 1 - len(
        one.session.catalyst
    )  # all but an answer's token and the next cycle's
    same_pot(one, slow)
    torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)


PROSE = (
    'One came. "Who is it?" she asked!\nIt was\nthe keeper, at 3.15 or so.\n\nHe said (no more.) Then (so) '
)


def slowly_numbered(text: str) -> list[int]:
    """The number of each letter's sentence: it begins after a mark and a space, or an empty line."""
    numbers, number = [], 0
    for place, letter in enumerate(text):
        before = text[:place].rstrip()
        gap = text[len(before) : place]
        ended = re.search(r"[.!?][\"')]*$", before) and gap
        number += bool(place and letter.strip() and (gap.count("\n") > 1 or ended))
        numbers.append(number)
    return numbers


@pytest.mark.parametrize("tail", ["distil", "fill"])
def test_whole_sentences_are_their_slow_pipeline(monkeypatch: pytest.MonkeyPatch, tail: str) -> None:
    numbers = slowly_numbered(PROSE * 2)
    assert numbers[-1] == 10
    monkeypatch.setitem(globals(), "TEXT", list((PROSE * 2).encode()))
    one, logits = answered("infinipot", tail=tail)
    slow = SlowPot(one.model.model)
    choose = partial(slow_policies.infinipot, slow, sentences=numbers)
    slow_cycles(slow, one.config.kept, choose, one.session.catalyst, fit=tail == "fill")
    same_pot(one, slow)
    torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)
    kept = one.pot.pot_layers[0]
    assert kept.sentence[0, 0, :5].tolist() == [numbers[at] for at in kept.source[0, 0, :5]]


def test_full_is_plain_attention_and_self_extend_groups_what_is_far() -> None:
    for name, options in (("full", {}), ("self-extend", {"group": 4, "window": 24})):
        one, logits = answered(name, **options)
        slow = SlowPot(one.model.model, **options)
        slow.read(TEXT + QUESTION)
        assert one.pot.fill == len(TEXT + QUESTION)
        torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)


def test_snapkv_holds_the_whole_prompt_then_keeps_what_its_end_attends_to() -> None:
    knobs = {"window": 16, "kernel": 5, "pooling": "mean"}
    one, logits = answered("snapkv", **knobs)
    slow = SlowPot(one.model.model, reset=False)
    slow.read(TEXT + QUESTION)
    torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)
    slow.keep(partial(slow_policies.snapkv, slow, budget=CAPACITY, catalyst=None, **knobs))
    same_pot(one, slow)
    next_token = one.session.state.pending[0]  # positions run on: the answer's tokens follow the whole prompt
    hidden = one.session.write([next_token])
    slow.read([next_token])
    torch.testing.assert_close(one.model.logits(hidden)[0, -1], slow.last_logits, atol=2e-5, rtol=1e-4)


def test_truncation_reads_both_ends_of_the_prompt_and_nothing_else() -> None:
    one, logits = answered("truncate")
    half = (CAPACITY - 1) // 2
    prompt = TEXT + QUESTION
    slow = SlowPot(one.model.model)
    slow.read(prompt[:half] + prompt[-half:])
    assert one.tokens_read == len(TEXT)
    torch.testing.assert_close(logits, slow.last_logits, atol=2e-5, rtol=1e-4)


def test_a_truncated_talk_is_cut_afresh_at_every_turn() -> None:
    one = Recipe.named("truncate", capacity=64).reader(ToyModel(), ByteTokenizer())
    one.read("x" * 500)
    for turn in range(4):
        before = one.session.state.head_tail.total
        said = list(one.generate(list(b"and then?"), Generation(10)))
        assert one.session.state.head_tail.total == before + 9 + len(said)
        assert one.pot.fill <= 64, turn
    assert list(one.session.state.head_tail.last)[-len(said) :] == said
    with pytest.raises(InputError, match=r"too long for a pot of 64: .*`capacity` \d+"):
        list(one.answer("q" * 30, Generation(10)))


class Broken(ToyModel):
    """Fails once, as when memory runs out."""

    fails = False

    def forward(self, tokens, pot):
        if self.fails:
            self.fails = False
            raise MemoryError
        return super().forward(tokens, pot)


def test_a_truncated_turn_that_failed_is_not_said() -> None:
    one = Recipe.named("truncate", capacity=64).reader(Broken(), ByteTokenizer())
    one.read("x" * 100)
    before = one.session.state.head_tail.total
    one.model.fails = True
    with pytest.raises(MemoryError):
        list(one.chat("hello", Generation(4)))
    assert one.session.state.head_tail.total == before
    assert "".join(one.chat("hello", Generation(4))) is not None


def test_a_first_message_that_fits_is_not_cut() -> None:
    one = Recipe.named("truncate", capacity=128).reader(ToyModel(), ByteTokenizer())
    assert len(list(one.generate(list(b"q" * 90), Generation(10)))) <= 10
    one.check("q" * 40, max_new_tokens=16)
    with pytest.raises(InputError, match="too long"):
        one.check("q" * 90, max_new_tokens=16)  # now it would be cut


def snap() -> Reader:
    return Recipe.named("snapkv", capacity=64, window=8).reader(ToyModel(), ByteTokenizer(), None)


def test_tokens_held_back_for_the_question_are_never_lost() -> None:
    one = snap()
    one.read("x" * 100)
    assert one.session.state.pending == list(b"x" * 8)
    steps = one.reading("y" * 5000)
    next(steps)
    steps.close()  # abandoned: what was counted is in the pot or still held
    assert one.pot.tokens + len(one.session.state.pending) >= 100 + len(one.frame.opening)
    recipe = Recipe.named("snapkv", capacity=128, window=100, format="chat")  # all of this is held back
    talk = recipe.reader(ToyModel(), ByteTokenizer())
    list(talk.chat("hi", Generation(3)))
    talk.read("note")
    talk.read("more")
    frame = talk.frame
    held = [*talk.session.state.pending, *talk.turn("q")]
    text = bytes(token for token in held if token < 256)
    assert text.count(b"note") == text.count(b"more") == 1
    marker = list(frame.turn_before)
    found = sum(held[i : i + len(marker)] == marker for i in range(len(held)))
    assert found == 1  # one turn of the user, not two


def test_ends_hold_no_more_than_they_must() -> None:
    ends = HeadAndTail(10)
    ends.push(range(7))
    assert ends.cut(7) == list(range(7))
    assert ends.cut(6) == [0, 1, 2, 4, 5, 6]
    ends.push(range(7, 100))
    assert ends.cut(9) == [0, 1, 2, 3, 96, 97, 98, 99]  # int(limit / 2) from each end
    assert len(ends.first) == len(ends.last) == 10
    twin = ends.copy()
    twin.push([5])
    assert (ends.total, twin.total) == (100, 101)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: find("infinpot"), "unknown recipe 'infinpot': did you mean 'infinipot'"),
        (lambda: find("zzz"), "use one of infinipot, infinipot-paper, ccd"),
        (lambda: Recipe.named("h2o", sinks=3), "unknown setting of recipe 'h2o' 'sinks': use one of heavy"),
        (lambda: Recipe.named("sirllm", sink=3), "did you mean 'sinks'"),
        (lambda: Recipe.named("full", novelty=0.1), "there is none"),
        (lambda: Recipe.named("cap-only", novelty=0.5), "use `recipe` infinipot to set it"),
        (lambda: Recipe.named("h2o", capacity=64, heavy=70), "use `capacity` 72 or more"),
        (lambda: Recipe.named("sirllm", capacity=64, recent=40), "use `capacity` 90 or more"),
        (lambda: Recipe.named("streaming-llm", capacity=4), "use `capacity` 6 or more"),
        (lambda: Recipe.named("snapkv", capacity=32), "use `capacity` 33 or more"),
        (lambda: Recipe.named("streaming-llm", keep=3), "use `keep` 5 or more"),
        (lambda: Recipe.named("sirllm", keep=3), "use `keep` 5 or more"),
        (lambda: Recipe.named("h2o", capacity=64, step=62), "use `step` 59 or less"),
        (lambda: Recipe.named("h2o", capacity=64, step=64), "`step` is 64: use 1 to 63"),
        (lambda: Recipe.named("h2o", capacity=64, step=0), "`step` is 0: use 1 to 63"),
        (lambda: Recipe.named("h2o", keep=10, step=4), "give one of them"),
        (lambda: Recipe.named("full", keep=10), "leave out `keep`"),
        (lambda: Recipe.named("truncate", step=10), "leave out `step`"),
        (lambda: Recipe.named("snapkv", tail="distil"), "leave out `tail`"),
        (lambda: Recipe.named("truncate", opening=4), "leave out `opening`"),
        (lambda: Recipe.named("h2o", catalyst="general"), "leave out `catalyst`"),
        (lambda: Recipe.named(novelty=1.0, catalyst="general"), "leave out `catalyst`"),
        (lambda: Recipe.named("self-extend", group=0), "`group` is 0"),
        (lambda: Recipe.named("self-extend", window=0), "`window` is 0"),
        (lambda: Recipe.named("sirllm", decay=1.5), "`decay` is 1.5"),
        (lambda: Recipe.named("sirllm", sinks=-1), "use 0 or more"),
        (lambda: Recipe.named("snapkv", kernel=4), "odd"),
        (lambda: Recipe.named("snapkv", window=0), "`window` is 0"),
        (lambda: Recipe.named("snapkv", pooling="median"), "mean or max"),
        (lambda: Recipe.named("h2o", heavy=-1), "`heavy` is -1"),
        (lambda: Recipe.named("streaming-llm", sinks=-1), "`sinks` is -1"),
        (lambda: Recipe.named(novelty=1.5), "between 0 and 1"),
        (lambda: Recipe.named(novelty=float("nan")), "between 0 and 1"),
        (lambda: Recipe.named(pool=4), "odd"),
        (lambda: Recipe.named(pooling="median"), "mean or max"),
        (lambda: parse_knob("heavy", find("h2o")), "use NAME=VALUE"),
        (lambda: parse_knob("heavy=many", find("h2o")), "`heavy` is 'many': use a whole number"),
        (lambda: parse_knob("decay=x", find("sirllm")), "use a number"),
        (lambda: parse_knob("hevy=4", find("h2o")), "did you mean 'heavy'"),
    ],
)
def test_impossible_wishes_are_refused_in_one_line(call, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "options"), [("h2o", {"heavy": 70}), ("sirllm", {"recent": 40})])
def test_the_size_that_is_named_works(name: str, options: dict) -> None:
    with pytest.raises(ConfigError) as caught:
        Recipe.named(name, capacity=64, **options)
    least = int(str(caught.value).split("`capacity` ")[1].split()[0])
    assert Recipe.named(name, capacity=least, **options).policy().least <= least
    with pytest.raises(ConfigError):
        Recipe.named(name, capacity=least - 1, **options)


def test_a_hurried_result_says_so() -> None:
    assert Recipe.named("h2o").note == ""
    assert Recipe.named("h2o").describe()["step"] == 1
    assert "note" not in Recipe.named("h2o").describe()
    assert Recipe.named("h2o", step=64).describe()["note"] == "drops 64 entries at a time instead of one"
    assert Recipe.named("full").describe()["note"] == "bounds nothing"
    assert Recipe.named("snapkv").describe()["note"] == "bounds nothing until the prompt ends"
    assert "not read" in Recipe.named("truncate").describe()["note"]


def test_the_printed_method_has_nothing_of_ours() -> None:
    printed = Recipe.named("infinipot-paper", capacity=4096)
    assert printed.policy() == registry()["infinipot"](novelty=0.5, pool=1)
    assert (printed.config.tail, printed.config.recalled, printed.config.kept) == ("raw", 0, 2048)
    assert (printed.config.opening, printed.config.closing) == (0, 0)
    assert Recipe.named("infinipot-paper", novelty=0.25).policy() == registry()["infinipot"](
        novelty=0.25, pool=1
    )
    with pytest.raises(ConfigError, match="use `recipe` infinipot to set it"):
        Recipe.named("infinipot-paper", pool=7)
    assert Recipe.named("infinipot").config.recalled > 0


def test_all_that_distil_in_chunks_treat_a_text_s_end_alike() -> None:
    chunked = [
        one for one in presets().values() if one.drops and not one.step and one.name != "infinipot-paper"
    ]
    assert {"infinipot", "ccd", "tova", "sirllm", "cap-only", "nuc-only"} <= {one.name for one in chunked}
    assert {Recipe.named(one.name).config.tail for one in chunked} == {"fill"}
    stepwise = [one.name for one in presets().values() if one.drops and one.step]
    assert {Recipe.named(name).config.tail for name in stepwise} == {"raw"}


def test_token_by_token_is_one_out_for_one_in() -> None:
    for name in ("streaming-llm", "h2o", "h2o-half", "tova-tokenwise"):
        assert Recipe.named(name, capacity=512).step == 1, name
    half = Recipe.named("h2o-half", capacity=512).policy()
    assert (half.heavy, half.share) == (0, 0.5)


def test_every_recipe_states_what_it_is() -> None:
    for name, method in presets().items():
        stated = method.describe()
        assert all(stated[key] for key in ("summary", "bounds", "needs", "cost", "paper", "deviations")), name
        assert method.bounded == (stated["bounds"] == "memory"), name
    unbounded = [name for name, method in presets().items() if not method.bounded]
    assert unbounded == ["full", "snapkv", "self-extend"]


def test_a_knob_of_any_kind_is_read() -> None:
    @dataclass(frozen=True)
    class Any(registry()["h2o"]):
        flag: bool = True
        name: str | None = None

    method = replace(find("h2o"), policy="any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry(), "any", Any)
        assert parse_knob("flag=false", method) == parse_knob("flag=0", method) == ("flag", False)
        assert parse_knob("name=x", method) == ("name", "x")
        with pytest.raises(ConfigError, match="true or false"):
            parse_knob("flag=2", method)


def test_a_package_that_fails_does_not_stop_the_others() -> None:
    class Point:
        name, dist = "broken", None

        def load(self):
            raise ImportError("no module named nothing")

    points = [*metadata.entry_points(group=GROUP), Point()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infinipot.policies.registry.entry_points", lambda group: points)
        with pytest.warns(UserWarning, match="policy .broken. of an unknown package cannot be used"):
            assert set(registry.__wrapped__()) == set(registry())


def test_knobs_reach_the_policy() -> None:
    assert Recipe.named("h2o", heavy=7).policy() == registry()["h2o"](heavy=7)
    assert Recipe.named("cap-only", pool=7).policy() == registry()["infinipot"](novelty=0.0, pool=7)
    assert Recipe.named("self-extend", group=4, window=9).mode().window == 9
    assert Recipe.named("h2o", capacity=100, step=10).config == PotConfig(100, 90, 0, "raw")
    assert Recipe.named("tova", capacity=100, step=10).config.kept == 90


def test_sentences_stay_whole_where_no_question_is_known() -> None:
    def units(name: str = "infinipot", catalyst: str | None = None, **options: object) -> str:
        found = Recipe.named(name, catalyst=catalyst, **options)
        kept = Recipe.described(found.describe())  # as a pot's card has it
        assert kept.policy() == replace(kept, catalyst="question").policy() == found.policy()
        return str(found.describe()["units"])

    assert units() == units(catalyst="general-2") == units(catalyst="a b") == units("cap-only") == "sentences"
    assert units(catalyst="question") == units(catalyst="Q") == units("infinipot-paper") == "slots"
    assert units(novelty=1.0) == units(pool=3) == units(pooling="max") == units(units="slots") == "slots"
    assert units(catalyst="question", units="sentences") == "sentences"
    for pooled in ({"pool": 5}, {"pooling": "max"}):
        with pytest.raises(ConfigError, match="whole sentences are not pooled: leave out `pool`"):
            units(units="sentences", **pooled)
    assert replace(Recipe.named(), catalyst="question").policy().units == "slots"
    older = {name: value for name, value in Recipe.named().describe().items() if name != "units"}
    assert Recipe.described(older).policy().units == "slots"  # as it was read


@pytest.mark.parametrize("name", ["no-cr-rope", "snapkv", "self-extend"])
def test_generate_refuses_positions_it_cannot_follow(name: str) -> None:
    one = Recipe.named(name, capacity=256).reader(model(), ByteTokenizer())
    one.read("some text")
    with pytest.raises(ConfigError, match=r"reader\.ask"):
        generate_inputs(one, "what?", 4)


@pytest.mark.parametrize("name", ["full", "h2o", "truncate"])
def test_generate_gives_the_readers_own_tokens(name: str) -> None:
    one = Recipe.named(name, capacity=64).reader(model(), ByteTokenizer())
    one.read("some text that is longer than the pot of sixty-four entries, by far and away")
    inputs = generate_inputs(one, "what?", 8)
    with torch.no_grad():
        out = one.model.model.generate(**inputs, do_sample=False, pad_token_id=0)
    found = out[0, inputs["input_ids"].shape[1] :].tolist()
    wanted = list(one.fork().generate(one.turn("what?"), Generation(8), final=True))
    assert [token for token in found if token not in one.tokenizer.stop_ids] == wanted
