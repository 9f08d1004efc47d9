"""The library's front door: `load` a model by name, or `attach` one you already have."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from infinipot.hf.loading import choose_device
from infinipot.hf.loading import load as load_weights
from infinipot.hf.model import HFModel
from infinipot.hf.speed.prepare import MIXED, prepare, resolve
from infinipot.hf.speed.threads import use_threads
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.models.cache import Pull
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.fingerprint import sampled
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.text.tokenizer import Format, chat_frame


@dataclass(frozen=True)
class Engine:
    """A loaded model from which any number of readers can be made."""

    name: str
    format: Format  # the prompt format that suits this model
    model: HFModel
    tokenizer: HFTokenizer
    dtype: str = ""  # what it computes in
    sample: str = ""  # what its weights are known by where they are not one file
    weights: str = ""  # how its weights are held
    note: str = ""  # what a person should hear about that, and about attention

    @property
    def dialogue_format(self) -> Format:
        """The layout of a conversation: the model's chat template, where the model has one."""
        return "chat" if chat_frame(self.tokenizer) else "plain"

    def reader(self, recipe: Recipe, question: str | None = None, bare: bool = False) -> Reader:
        """Return a reader with an empty pot; arguments as in `Recipe.reader`."""
        return recipe.reader(self.model, self.tokenizer, question, bare)


def open_engine(
    name: str = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    on_pull: Callable[[Pull], None] | None = None,
    fused: bool = False,
    weights: str = "auto",
    threads: int | None = None,
) -> Engine:
    """Load a model (alias, hub id, folder or .gguf file); an alias not there yet is pulled first.

    `fused` compiles its layers on CUDA: some twenty seconds at the first text, then faster. `weights` says
    how weights are held: `auto` as in their file, `int8`, `int4`, `fp8` or `full`; `threads` is for a CPU:
    where none are named, torch's number, or fewer while other programs keep the cores busy.
    """
    where = choose_device(device)
    kind, mixed = resolve(dtype, where)
    use_threads(threads, where)
    weights = "full" if (dtype, weights) == (MIXED, "auto") else weights  # bfloat16 is for unpacked ones
    loaded = load_weights(name, device, kind, on_pull, weights)
    ends = loaded.model.generation_config.eos_token_id
    tokenizer = HFTokenizer(loaded.tokenizer, add_bos=loaded.add_bos, eos_ids=ends)
    known = loaded.sample or sampled(loaded.model.state_dict().items())
    model = HFModel(loaded.model)
    computes = prepare(model, mixed, fused, packed=loaded.choice.packed)
    held = loaded.choice.how or computes
    note = "; ".join(filter(None, (loaded.choice.note, model.note)))
    return Engine(name, loaded.format, model, tokenizer, computes, known, held, note)


def load(
    name: str = DEFAULT_MODEL,
    *,
    recipe: str = "infinipot",
    question: str | None = None,
    format: Format | None = None,
    device: str = "auto",
    dtype: str = "auto",
    weights: str = "auto",
    threads: int | None = None,
    **options: Any,
) -> Reader:
    """Load a model and return a reader with an empty pot; options as in `Recipe.named`.

    `load("smollm2", recipe="h2o", capacity=2048, heavy=64)`. The prompt format defaults to
    the model's own.
    """
    wanted = Recipe.named(recipe, **options)
    engine = open_engine(name, device, dtype, weights=weights, threads=threads)
    return engine.reader(replace(wanted, format=format or engine.format), question)


def attach(
    model: Any,
    tokenizer: Any,
    *,
    recipe: str = "infinipot",
    question: str | None = None,
    format: Format | None = None,
    **options: Any,
) -> Reader:
    """Return a reader on a transformers model you have loaded; options as in `Recipe.named`.

    The model's attention implementation becomes "infinipot", which serves it with and without a pot.
    """
    chosen: Format = format or ("chat" if getattr(tokenizer, "chat_template", None) else "plain")
    ends = model.generation_config.eos_token_id
    wanted = Recipe.named(recipe, format=chosen, **options)
    return wanted.reader(HFModel(model), HFTokenizer(tokenizer, eos_ids=ends), question)
