"""Our recipes as a model of lm-evaluation-harness: the plain model where all fits, the pot where not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch

import small_tokenizers
from families import build
from harness_tasks import TASKS, TEXT, write_tasks
from infinipot.core.cuda.graphs import Graphs
from infinipot.engine import Engine
from infinipot.errors import ConfigError, InputError
from infinipot.eval.harness import InfiniPotLM, generation
from infinipot.hf.model import HFModel
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.recipes.presets import PRESETS
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

COUNTS = (3, 9, 2, 30, 1, 4, 7)
SMALL = {"capacity": 64, "prompt_tokens": 16, "catalyst": "a b"}
READ = [m.name for m in PRESETS if m.mode.prompt != "passages"]
BOUNDED = [m.name for m in PRESETS if m.bounded and m.mode.prompt == "whole"]


class Numbers(ByteTokenizer):
    """Every id is seen in the text, so that equal texts are equal tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"<{i}>" for i in ids)


class Request:
    def __init__(self, *args: Any) -> None:
        self.args = args


@cache
def engine(family: str = "llama-3.1") -> Engine:
    return Engine(family, "plain", HFModel(copy.deepcopy(build(family))), Numbers())


def toy(tokenizer: Any = None) -> Engine:
    return Engine("toy", "plain", ToyModel(), tokenizer or Numbers())


def lm(model: Any = None, **options: Any) -> InfiniPotLM:
    options = {"capacity": 256, "prompt_tokens": 32} | options
    return InfiniPotLM(model or engine(), **options)


def ask(model: InfiniPotLM, *texts: str, **settings: Any) -> list[str]:
    wanted = {"max_gen_toks": 12, **settings}
    return model.generate_until([Request(text, wanted) for text in texts], disable_tqdm=True)


@torch.no_grad()
def plain_logits(family: str, ids: list[int]) -> torch.Tensor:
    found: torch.Tensor = build(family)(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return found


def plain_answer(family: str, ids: list[int], most: int = 12) -> list[int]:
    said: list[int] = []
    while len(said) < most:
        token = int(plain_logits(family, [*ids, *said])[-1].argmax())
        if token in Numbers.stop_ids:
            break
        said.append(token)
    return said


def plain_likelihood(family: str, context: list[int], end: list[int]) -> tuple[float, bool]:
    logits = plain_logits(family, [*context, *end])[len(context) - 1 : -1]
    wanted = torch.tensor(end)
    found = logits.log_softmax(-1).gather(1, wanted[:, None]).sum().item()
    return found, bool((logits.argmax(-1) == wanted).all())


# What fits is the plain model -------------------------------------------------------


@pytest.mark.parametrize("family", ["llama-3.1", "gemma-2", "mistral-v0.2", "qwen3"])
@pytest.mark.parametrize("text", ["", "Short.", TEXT * 3])
def test_an_answer_is_the_plain_models(family: str, text: str) -> None:
    model = lm(engine(family))
    said = plain_answer(family, [256, *text.encode()])
    assert ask(model, text) == [Numbers().decode(said)]


def test_an_answer_ends_at_the_first_stop_text() -> None:
    said = plain_answer("llama-3.1", [256, *TEXT.encode()])
    assert len(set(said[:5])) == 5
    stops = [f"{said[3]}><", f"<{said[4]}>"]  # the first reaches into the token after it
    assert ask(lm(), TEXT, until=stops) == [Numbers().decode(said[:3]) + "<"]
    assert ask(lm(), TEXT, until=stops[1]) == [Numbers().decode(said[:4])]


def test_passages_alone_are_refused() -> None:
    with pytest.raises(ConfigError, match="reads no text"):
        lm(recipe="passages")


@pytest.mark.parametrize("recipe", READ)
@pytest.mark.parametrize("length", [5, 150, 244])  # with twelve to be said, the last fills the pot
def test_every_recipe_is_exact_where_all_fits(recipe: str, length: int) -> None:
    text = (TEXT * 9)[: length - 1]
    said = plain_answer("llama-3.1", [256, *text.encode()])
    assert ask(lm(recipe=recipe), text) == [Numbers().decode(said)]
    model, end = lm(recipe=recipe), list(b" and so on.x")
    context = [256, *text.encode()]
    assert model._loglikelihood_tokens([(None, context, end)], disable_tqdm=True)[0] == pytest.approx(
        plain_likelihood("llama-3.1", context, end), abs=2e-3
    )
    if recipe != "truncate":
        found = model.loglikelihood_rolling([Request(text)], disable_tqdm=True)
        assert found == [pytest.approx(plain_likelihood("llama-3.1", [256], context[1:])[0], abs=2e-3)]


def test_a_likely_end_is_known_as_such() -> None:
    context = [256, *TEXT.encode()]
    end = plain_answer("llama-3.1", context, 6)
    other = [*end[:-1], end[-1] ^ 1]
    found = lm()._loglikelihood_tokens([(None, context, end), (None, context, other)], disable_tqdm=True)
    assert [greedy for _, greedy in found] == [True, False]
    assert found[0][0] > found[1][0]


def test_likelihoods_of_texts() -> None:
    pairs = [("The pot", " is full"), ("", "alone"), ("space ", "moves"), (TEXT, "x")]
    found = lm().loglikelihood([Request(*pair) for pair in pairs], disable_tqdm=True)
    parted = [("The pot", " is full"), ("", "alone"), ("space", " moves"), (TEXT.rstrip(), " x")]
    for (context, end), (total, greedy) in zip(parted, found, strict=True):
        wanted = plain_likelihood("llama-3.1", [256, *context.encode()], list(end.encode()))
        assert (total, greedy) == (pytest.approx(wanted[0], abs=1e-3), wanted[1])


@pytest.mark.filterwarnings("ignore")  # lm-eval's model gives many
@pytest.mark.parametrize("name", ["qwen", "llama3"])  # without BOS and with
def test_as_lm_evals_own_model(name: str) -> None:
    from lm_eval.models.huggingface import HFLM

    tokenizer = copy.deepcopy(small_tokenizers.build(name))
    tokenizer.pad_token = tokenizer.eos_token
    family = copy.deepcopy(build("llama-3.1"))
    family.resize_token_embeddings(len(tokenizer))
    theirs = HFLM(pretrained=copy.deepcopy(family), tokenizer=tokenizer, device="cpu", max_length=256)
    ours = lm(Engine(name, "plain", HFModel(family), HFTokenizer(tokenizer)), batch_size=2)
    pairs = [Request(*pair) for pair in ((TEXT * 2, " and reading"), ("", "The pot"), ("a ", "b c"))]
    wanted = theirs.loglikelihood(pairs, disable_tqdm=True)
    for found, (total, greedy) in zip(ours.loglikelihood(pairs, disable_tqdm=True), wanted, strict=True):
        assert found == (pytest.approx(total, abs=1e-3), greedy)
    asked = [Request(TEXT, {"until": ["e"], "max_gen_toks": 20}), Request("What?", {"max_gen_toks": 15})]
    said = ours.generate_until(asked, disable_tqdm=True)
    assert said == theirs.generate_until(asked, disable_tqdm=True)
    assert all(said)


# What does not fit goes through the pot ---------------------------------------------


def watched(model: InfiniPotLM, counts: list[int] | None = None) -> list[int]:
    """The fill of the pot after every forward; if asked for, tokens of each too."""
    inner, fills = model.engine.model, []
    forward = inner.forward

    def watching(tokens: torch.Tensor, pot: Any) -> torch.Tensor:
        hidden = forward(tokens, pot)
        fills.extend(p.fill for p in getattr(pot, "pots", [pot]))
        if counts is not None:
            counts.append(tokens.shape[1])
        return hidden

    inner.forward = watching  # type: ignore[method-assign]
    return fills


@pytest.mark.parametrize("recipe", BOUNDED)
def test_a_long_context_stays_within_the_pot(recipe: str) -> None:
    asking = ("infinipot", "infinipot-paper", "cap-only", "no-cr-rope")
    options = SMALL if recipe in asking else {"capacity": 64, "prompt_tokens": 16}
    model = lm(toy(), recipe=recipe, **options)
    fills = watched(model)
    texts = [TEXT * 9, TEXT * 5 + "Other.", "Short."]  # to none of them this model's first token is a stop
    assert all(ask(model, *texts, max_gen_toks=90))
    found = model.loglikelihood([Request(TEXT * 8, " yes"), Request(TEXT * 8, TEXT * 3)], disable_tqdm=True)
    assert all(total < 0 for total, _ in found)
    assert model.loglikelihood_rolling([Request(TEXT * 8)], disable_tqdm=True)[0] < -100
    assert 48 <= max(fills) <= 64


def test_an_answer_after_a_long_context_is_the_readers() -> None:
    model = lm(toy(), **SMALL)
    reader = model.recipe.reader(model.engine.model, Numbers(), bare=True)
    ids = list((TEXT * 8).encode())
    list(reader.reading_tokens([ids[:-16]]))
    said = list(reader.generate(ids[-16:], generation({"max_gen_toks": 40}), final=True))
    assert ask(model, TEXT * 8, max_gen_toks=40) == [Numbers().decode(said)]


def test_a_rolling_likelihood_is_the_novelty_of_every_token() -> None:
    model = lm(toy(), **SMALL)
    reader = model.recipe.reader(model.engine.model, Numbers(), bare=True)
    noted, note = [], reader.pot.note_novelty
    reader.pot.note_novelty = lambda novelty: (noted.append(novelty[0]), note(novelty))[1]  # type: ignore
    reader.read(TEXT * 8)
    novelty = torch.cat(noted)
    assert len(novelty) == 1 + len(TEXT * 8)
    found = model.loglikelihood_rolling([Request(TEXT * 8)], disable_tqdm=True)
    assert found == [pytest.approx(-novelty[1:].sum().item(), rel=1e-5)]


def test_an_end_after_a_long_context_token_by_token() -> None:
    model, end = lm(toy(), **SMALL), list(b" and so")
    ids = [256, *(TEXT * 8).encode()]
    reader = model.recipe.reader(model.engine.model, Numbers(), bare=True)
    list(reader.reading_tokens([ids[1:-16]]))
    hidden, exhausts_pot = reader.begin_answer(ids[-16:], len(end), final=True)
    total = 0.0
    for token in end:
        total += model.engine.model.logits(hidden)[0, -1].log_softmax(-1)[token].item()
        hidden = reader.session.advance(token, exhausts_pot)
    found = model._loglikelihood_tokens([(None, ids, end)], disable_tqdm=True)
    assert found[0][0] == pytest.approx(total, rel=1e-5)


def test_several_ends_cost_one_reading() -> None:
    ends = [" yes", " no", " perhaps so", " yes"]
    model = lm(toy(), **SMALL)
    fills = watched(model)
    found, costs = [], []
    for end in ends:
        before = len(fills)
        found += model.loglikelihood([Request(TEXT * 8, end)], disable_tqdm=True)
        costs.append(len(fills) - before)
    assert costs[0] > 10
    assert max(costs[1:]) <= 2
    alone = [lm(toy(), **SMALL).loglikelihood([Request(TEXT * 8, end)], disable_tqdm=True)[0] for end in ends]
    assert found == alone
    model.loglikelihood_rolling([Request("Something else. " * 30)], disable_tqdm=True)
    assert model.loglikelihood([Request(TEXT * 8, ends[0])], disable_tqdm=True) == alone[:1]


def test_a_long_end_does_not_empty_the_pot() -> None:
    model, counts = lm(toy(), **SMALL), list[int]()
    watched(model, counts)
    model.loglikelihood([Request(TEXT * 8, TEXT * 2)], disable_tqdm=True)
    assert max(counts[1:]) == 32  # half of the pot at once
    assert counts.count(1) > 60


def test_what_a_recipe_cannot_do() -> None:
    model = lm(toy(), recipe="truncate", capacity=64, prompt_tokens=16)
    with pytest.raises(ConfigError, match="does not read the middle of a text"):
        model.loglikelihood_rolling([Request(TEXT * 8)], disable_tqdm=True)
    assert model.loglikelihood([Request(TEXT * 8, " yes")], disable_tqdm=True)[0][0] < 0
    with pytest.raises(InputError, match="too long for a pot of 64"):
        model.loglikelihood([Request(TEXT * 8, TEXT * 3)], disable_tqdm=True)


# Several at once, and drawn answers ---------------------------------------------------


@pytest.mark.parametrize("options", [SMALL, {}], ids=["long", "fits"])
def test_together_as_one_by_one(options: dict[str, Any]) -> None:
    texts = [TEXT * 4, "Short.", TEXT * 6, "x", TEXT, "", "One more."]
    alone = lm(toy(), **options)
    said = [ask(alone, text, max_gen_toks=30)[0] for text in texts]
    stops = ["<" + one.split("<")[1:][:count][-1] for one, count in zip(said, COUNTS, strict=True)]
    requests = [
        Request(text, {"until": [stop], "max_gen_toks": 30 if n != 3 else 31})
        for n, (text, stop) in enumerate(zip(texts, stops, strict=True))
    ]
    one_by_one = alone.generate_until(requests, disable_tqdm=True)
    assert len(set(map(len, one_by_one))) > 3
    for size in (3, "16"):
        model = lm(toy(), batch_size=size, **options)
        assert model.generate_until(requests, disable_tqdm=True) == one_by_one
        for reader in model.readers:  # as on a GPU, where the next token is there before this one is told
            reader.session.graphs = Graphs(reader.pot, capture=False)
        assert model.generate_until(requests, disable_tqdm=True) == one_by_one
    assert model.answers(texts[:1], [[]], generation({"max_gen_toks": 30})) == said[:1]


def test_who_has_said_enough_is_not_heard_further() -> None:
    model = lm(toy(), batch_size=2)
    first, second = ask(model, TEXT, "Short.", max_gen_toks=60)
    counts: list[int] = []
    watched(model, counts)
    ends = [{"until": ["<" + said.split("<")[2]], "max_gen_toks": 60} for said in (first, second)]
    model.generate_until([Request(TEXT, ends[0]), Request("Short.", ends[1])], disable_tqdm=True)
    assert len(counts) < 10


def test_drawn_answers_follow_the_seed_and_differ() -> None:
    model = lm(toy(), batch_size=4)
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(ask(model, "Say", "Say", "Say", do_sample=True, temperature=0.9))
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


# Tokens and templates -------------------------------------------------------------------


def spoken(name: str) -> InfiniPotLM:
    return lm(
        Engine(f"a/{name}", "plain", ToyModel(vocabulary=2000), HFTokenizer(small_tokenizers.build(name)))
    )


@pytest.mark.parametrize("name", small_tokenizers.NAMES)
def test_ids_are_the_tokenizers_own(name: str) -> None:
    model = spoken(name)
    for text in ("The pot holds <b>text</b>.\n", " it's"):
        assert model.tok_encode(text) == small_tokenizers.build(name)(text)["input_ids"]
        assert model.tok_decode(model.tok_encode(text, add_special_tokens=False)).strip() == text.strip()


@pytest.mark.parametrize("name", ["llama3", "gpt2"])  # with BOS and without
def test_a_whole_text_begins_once(name: str) -> None:
    model = spoken(name)
    whole = model.loglikelihood_rolling([Request("The pot.")], disable_tqdm=True)
    assert whole == [pytest.approx(model.loglikelihood([Request("", "The pot.")], disable_tqdm=True)[0][0])]
    assert whole[0] < -10


@pytest.mark.parametrize("name", ["llama3", "qwen"])
def test_chat_templates(name: str) -> None:
    model, tokenizer = spoken(name), small_tokenizers.build(name)
    talk = [{"role": "user", "content": "What is a pot?"}]
    text = model.apply_chat_template(talk)
    whole = tokenizer.apply_chat_template(talk, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert model.tok_encode(text) == whole  # control tokens as such, and BOS only once
    assert model.chat_template(True) == tokenizer.chat_template
    begun = [*talk, {"role": "assistant", "content": "It is"}]
    assert model.apply_chat_template(begun, add_generation_prompt=False).rstrip().endswith("It is")
    assert model.tokenizer_name


def test_no_chat_template() -> None:
    assert lm(toy()).tokenizer_name == "toy"
    for model in (lm(toy()), spoken("gpt2")):
        with pytest.raises(ConfigError, match="leave out --apply_chat_template"):
            model.apply_chat_template([{"role": "user", "content": "x"}])


# lm-eval itself -------------------------------------------------------------------------


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_tasks(tmp_path)


def run_tasks(tasks: Path, model: Any, **options: Any) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model=model,
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
        **options,
    )
    assert found is not None
    return dict(found)


def test_tasks_of_lm_eval(tasks: Path) -> None:
    model = lm(toy(ByteTokenizer()), **SMALL)
    fills = watched(model)
    found = run_tasks(tasks, model, log_samples=True)
    assert set(found["results"]) == set(TASKS)
    assert found["config"]["infinipot"]["capacity"] == 64
    samples = found["samples"]
    assert all("." not in row["resps"][0][0] for row in samples["letters_say"])
    rolled = model.loglikelihood_rolling([Request(TEXT * 9)], disable_tqdm=True)
    assert samples["letters_roll"][3]["resps"][0][0] == rolled[0]
    assert max(fills) <= 64


def test_by_its_registered_name(tasks: Path) -> None:
    options = {"model": toy(ByteTokenizer()), **SMALL}
    found = run_tasks(tasks, "infinipot", model_args=options, batch_size=2, limit=2)
    assert found["n-samples"]["letters_pick"]["effective"] == 2
    assert "hf" in lm_eval.api.registry.model_registry  # lm-eval's own models are still there
    with pytest.raises(ConfigError, match="did you mean 'capacity'"):
        run_tasks(tasks, "infinipot", model_args="capcity=9")
