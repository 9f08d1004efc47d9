"""Our recipes as a model of lm-evaluation-harness: the plain model where all fits, the pot where not."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch
import transformers as tf

import small_tokenizers
from families import build
from infinipot.api import Engine
from infinipot.cli.harness import completed
from infinipot.errors import ConfigError, InputError
from infinipot.eval.harness import InfiniPotLM
from infinipot.eval.harness_arguments import generation
from infinipot.hf.model import HFModel
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.methods import METHODS
from infinipot.testing import ByteTokenizer
from infinipot.toy import ToyModel

TEXT = "The pot holds what was read; when it is full it is distilled. "
COUNTS = (3, 9, 2, 30, 1, 4, 7)
SMALL = {"capacity": 64, "tail": 16, "catalyst": "a b"}
BOUNDED = [m.name for m in METHODS if m.bounded and m.name != "truncate"]


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
    options = {"capacity": 256, "tail": 32} | options
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
    assert len(set(said)) > 6
    stops = [f"{said[5]}><", f"<{said[6]}>"]  # the first reaches into the token after it
    assert ask(lm(), TEXT, until=stops) == [Numbers().decode(said[:5]) + "<"]
    assert ask(lm(), TEXT, until=stops[1]) == [Numbers().decode(said[:6])]


@pytest.mark.parametrize("recipe", [m.name for m in METHODS])
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


# What does not fit goes through the pot ---------------------------------------------


def watched(model: InfiniPotLM) -> list[int]:
    """The fill of the pot after every forward."""
    inner, fills = model.engine.model, []
    forward = inner.forward

    def watching(tokens: torch.Tensor, pot: Any) -> torch.Tensor:
        hidden = forward(tokens, pot)
        fills.extend(p.fill for p in getattr(pot, "pots", [pot]))
        return hidden

    inner.forward = watching  # type: ignore[method-assign]
    return fills


@pytest.mark.parametrize("recipe", BOUNDED)
def test_a_long_context_stays_within_the_pot(recipe: str) -> None:
    options = SMALL if recipe in ("infinipot", "cap-only", "no-cr-rope") else {"capacity": 64, "tail": 16}
    model = lm(toy(), recipe=recipe, **options)
    fills = watched(model)
    texts = [TEXT * 8, TEXT * 5 + "Other.", "Short."]
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
    hidden, brim = reader.open(ids[-16:], len(end), final=True)
    total = 0.0
    for token in end:
        total += model.engine.model.logits(hidden)[0, -1].log_softmax(-1)[token].item()
        hidden = reader.advance(token, brim)
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
    assert model._answers(texts[:1], [[]], generation({"max_gen_toks": 30})) == said[:1]


def test_drawn_answers_follow_the_seed_and_differ() -> None:
    model = lm(toy(), batch_size=4)
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(ask(model, "Say", "Say", "Say", do_sample=True, temperature=0.9))
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_generation_settings() -> None:
    assert generation({"until": ["."]}).max_new_tokens == 256
    assert generation({"max_new_tokens": 7, "max_tokens": 9}).max_new_tokens == 7
    assert generation({"do_sample": False, "temperature": 0.7, "top_p": 0.9}).temperature == 0
    assert generation({"do_sample": True}).temperature == 1
    assert generation({"temperature": 0.5, "top_p": 1.0, "num_beams": 1}).temperature == 0.5
    with pytest.raises(ConfigError, match=r"top_p=0.9 is not supported: use --gen_kwargs top_p=1"):
        generation({"do_sample": True, "temperature": 0.7, "top_p": 0.9})
    with pytest.raises(ConfigError, match="num_beams=4 is not supported"):
        generation({"num_beams": 4})
    with pytest.raises(ConfigError, match="max_gen_toks is '0'; use a whole number"):
        generation({"max_gen_toks": 0})


# Arguments ----------------------------------------------------------------------------


def test_arguments_are_texts_or_numbers() -> None:
    made = InfiniPotLM.create_from_arg_obj(
        {"model": toy(), "capacity": "1k", "keep": "0.25", "novelty": "0.3", "catalyst": "a b", "tail": "40"},
        {"batch_size": "4", "device": None, "max_batch_size": None},
    )
    config, knobs = made.recipe.config, made.recipe.knobs
    assert (config.capacity, config.kept, knobs["novelty"]) == (1024, 256, 0.3)
    assert (made.tail, made.batch_size, made.recipe.catalyst) == (40, 4, "a b")
    other = lm(toy(), recipe="h2o", step=8, heavy="64", settle="true", opening="2")
    assert other.recipe.knobs == {"heavy": 64}
    assert (other.recipe.config.kept, other.recipe.config.settle, other.recipe.config.opening) == (
        248,
        True,
        2,
    )
    assert lm(toy()).recipe.catalyst == "general"
    assert json.dumps(made.get_model_info())


def test_model_args_win_over_options() -> None:
    made = InfiniPotLM.create_from_arg_obj(
        {"model": toy(), "batch_size": 3, "trust_remote_code": True}, {"batch_size": 1}
    )
    assert made.batch_size == 3
    with pytest.raises(ConfigError, match="did you mean 'recipe'"):
        InfiniPotLM.create_from_arg_string("recip=h2o", {"batch_size": 1})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"capcity": 64}, "unknown model argument 'capcity'; did you mean 'capacity'?"),
        ({"noveltly": 1}, "unknown model argument 'noveltly'; did you mean 'novelty'?"),
        ({"xyz": 1}, "unknown model argument 'xyz'; known: model, recipe, "),
        ({"max_batch_size": 8}, "did you mean 'batch_size'?"),
        ({"recipe": "infinpot"}, "unknown recipe 'infinpot'; did you mean 'infinipot'?"),
        ({"capacity": "many"}, "capacity is 'many'; use a size such as 2048 or 4k"),
        ({"novelty": "much"}, "novelty is 'much'; use a number"),
        ({"settle": "maybe"}, "settle is 'maybe'; use true or false"),
        ({"tail": 0}, "tail is '0'; use a whole number of at least 1"),
        ({"tail": 255}, "tail is 255; use 1[0-9]+ or less, or a larger capacity"),
        ({"batch_size": "auto"}, "batch_size is 'auto'; use a whole number"),
        ({"catalyst": "question"}, "use 'general' instead"),
        ({"recipe": "cap-only", "novelty": 0.5}, "novelty is what makes recipe 'cap-only'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], told: str) -> None:
    pattern = told if "[" in told else told.replace("?", r"\?")
    with pytest.raises(ConfigError, match=pattern):
        lm(toy(), **options)


def test_what_a_recipe_cannot_do() -> None:
    model = lm(toy(), recipe="truncate", capacity=64, tail=16)
    with pytest.raises(ConfigError, match="does not read the middle of a text"):
        model.loglikelihood_rolling([Request(TEXT * 8)], disable_tqdm=True)
    assert model.loglikelihood([Request(TEXT * 8, " yes")], disable_tqdm=True)[0][0] < 0
    with pytest.raises(InputError, match="too long for a pot of 64"):
        model.loglikelihood([Request(TEXT * 8, TEXT * 3)], disable_tqdm=True)


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

TASKS = {
    "letters_say": "output_type: generate_until\ndoc_to_target: '{{answer}}'\n"
    "generation_kwargs: {until: ['.'], max_gen_toks: 6, do_sample: false}\n"
    "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
    "letters_pick": "output_type: multiple_choice\ndoc_to_choice: [' yes', ' no', ' perhaps']\n"
    "doc_to_target: '{{pick}}'\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "letters_roll": "output_type: loglikelihood_rolling\ndoc_to_target: '{{text}}'\n"
    "metric_list: [{metric: bits_per_byte}]\n",
}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Three small tasks on a file of four lines."""
    data = tmp_path / "letters.jsonl"
    rows = [{"text": TEXT * count, "answer": "x", "pick": count % 3} for count in (1, 2, 6, 9)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, rest in TASKS.items():
        prompt = "''" if name.endswith("roll") else "'{{text}}'"
        (tmp_path / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ntest_split: test\ndoc_to_text: {prompt}\n"
            f"dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {tmp_path / 'cache'}}}\n{rest}"
            "metadata: {version: 1}\n"
        )
    return tmp_path


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


# The command ------------------------------------------------------------------------------


def test_what_the_command_passes_on() -> None:
    ours = ["--model", "infinipot", "--device", "auto"]
    assert completed(["--tasks", "a"]) == [*ours, "--tasks", "a"]
    assert completed(["run", "--tasks=a"]) == ["run", *ours, "--tasks=a"]
    assert completed(["--device", "cpu"]) == ["--model", "infinipot", "--device", "cpu"]
    assert completed(["--model=hf", "-L", "2"]) == ["--model=hf", "-L", "2"]
    assert completed(["-M", "infinipot"]) == ["--device", "auto", "-M", "infinipot"]
    assert completed(["ls", "tasks"]) == ["ls", "tasks"]


def test_a_config_file_may_name_the_model(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: hf\ntasks: [a]\n")
    assert completed(["--config", str(path)]) == ["--config", str(path)]
    path.write_text("model: infinipot\n")
    assert completed(["-C", str(path)]) == ["-C", str(path)]
    path.write_text("tasks: [a]\ndevice: cpu\n")
    assert completed(["--config", str(path)]) == ["--model", "infinipot", "--config", str(path)]


def command(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}\nsys.argv = ['infinipot', *{list(words)!r}]\n"
    code += "from infinipot.cli.main import run\n"
    code += "try: run()\nfinally: print(sorted({'torch', 'lm_eval'} & set(sys.modules)), file=sys.stderr)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("words", [["--help"], ["harness", "--help"], ["harness"]])
def test_help_needs_neither_torch_nor_lm_eval(words: list[str]) -> None:
    done = command(*words)
    assert done.returncode == (0 if "--help" in words else done.returncode)
    assert "harness" in done.stdout
    assert done.stderr.strip().endswith("[]")
    if words[0] == "harness":
        assert "harness run --help" in done.stdout


def test_without_lm_eval_one_line() -> None:
    done = command("harness", "--tasks", "x", before="sys.modules['lm_eval'] = None")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "infinipot: this needs lm-eval: pip install 'infinipot[harness]'"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], str]:
    def save() -> str:
        torch.manual_seed(1)
        tokenizer = small_tokenizers.build("qwen")
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = tf.LlamaConfig(vocab_size=len(tokenizer) + 8, **sizes, eos_token_id=None, bos_token_id=None)
        tf.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        return str(tmp_path / "model")

    return save


def test_the_command_runs_a_task(tasks: Path, folder: Callable[[], str]) -> None:
    out = tasks / "out"
    done = command(
        *("harness", "--model_args", f"model={folder()},capacity=192,tail=32,dtype=float32"),
        *("--tasks", "letters_say,letters_pick", "--include_path", str(tasks), "--limit", "3"),
        *("--device", "cpu", "--batch_size", "2", "--output_path", str(out)),
    )
    assert done.returncode == 0, done.stderr
    assert "letters_pick" in done.stdout
    told = json.loads(next(out.rglob("results_*.json")).read_text())
    assert told["config"]["model"] == "infinipot"
    assert told["config"]["infinipot"]["capacity"] == 192


def test_a_wrong_task_or_argument_is_one_line(tasks: Path) -> None:
    done = command("harness", "--tasks", "letters_sy", "--include_path", str(tasks))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "infinipot: Tasks not found: letters_sy; `infinipot harness ls tasks` lists them" in done.stderr
    done = command(
        *("harness", "--tasks", "letters_say", "--include_path", str(tasks), "--model_args", "capcity=9")
    )
    assert "infinipot: unknown model argument 'capcity'; did you mean 'capacity'?" in done.stderr
