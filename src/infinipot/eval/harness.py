"""A model for EleutherAI's lm-evaluation-harness: its tasks, read by any of our recipes.

A context is read through the pot, all but its last tokens (`prompt_tokens`), which are the prompt. Unlike in
lm-eval's own `hf` model nothing is ever cut, and a rolling log-likelihood begins with BOS once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from importlib import import_module
from typing import Any, Self

import torch

from infinipot.common.extras import needed_for
from infinipot.common.suggest import hint
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError, wrong
from infinipot.eval.likelihood import Likelihood, longest_prompt, part, untouched
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.reading.answer import AnswerText
from infinipot.reading.decode import decode
from infinipot.reading.sampling import Generation
from infinipot.recipes.option import Option
from infinipot.recipes.options import COMPUTING, DECLARED, SIZES
from infinipot.recipes.presets import find
from infinipot.recipes.recipe import Recipe

MODULES = ("lm_eval.api.model", "lm_eval.api.registry", "lm_eval.utils", "tqdm")  # none of which has types
with needed_for("the lm-eval harness", "harness"):
    _base, _registry, _utils, _tqdm = map(import_module, MODULES)
    import_module("lm_eval.models")  # fills the registry, which lm-eval itself does only while it is empty
TemplateLM: Any = _base.TemplateLM
Given = Mapping[str, Any]
PROMPT_TOKENS, MOST = 128, 256
OWN = ("model", "recipe", *(one.name for one in COMPUTING), "prompt_tokens", "batch_size", "max_gen_toks")
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one counts
DRAWS = ("top_p", "top_k", "min_p", "typical_p")  # mean nothing where the likeliest token is taken
NEUTRAL = {"top_p": 1, "top_k": 0, "min_p": 0, "typical_p": 1, "num_beams": 1, "repetition_penalty": 1}


class InfiniPotLM(TemplateLM):  # type: ignore[misc]  # lm-eval's class has no types
    """`--model infinipot`; `--model_args` gives its arguments, and the recipe's sizes and settings."""

    def __init__(
        self,
        model: str | Engine = DEFAULT_MODEL,
        recipe: str = "infinipot",
        prompt_tokens: int | str = PROMPT_TOKENS,
        batch_size: int | str = 1,
        max_gen_toks: int | str = MOST,
        **options: Any,
    ) -> None:
        super().__init__()
        given = {one: options.pop(one.name, None) for one in COMPUTING}
        computing = {one.name: one.parse(str(value)) for one, value in given.items() if value is not None}
        self.recipe = recipe_of(str(recipe), options)
        self.prompt_tokens = whole("prompt_tokens", prompt_tokens)
        self.batch_size = whole("batch_size", batch_size)
        self.max_gen_toks = whole("max_gen_toks", max_gen_toks)
        self.engine = model if isinstance(model, Engine) else open_engine(str(model), **computing)
        self._device = self.engine.model.device
        self._tokenizer = self.engine.tokenizer
        self.tokenizer: Any = getattr(self._tokenizer, "inner", None)  # transformers', which lm-eval knows
        self._opening = list(self._tokenizer.frame("plain").opening)
        self.readers = [untouched(self.recipe, self.engine.model, self._tokenizer)]
        most = longest_prompt(self.readers[0])
        if self.recipe.preset.bounded and self.prompt_tokens > most:
            remedy = f"use {most} or less, or a larger `capacity`"
            raise wrong("prompt_tokens", self.prompt_tokens, remedy)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Given, additional_config: Given | None = None) -> Self:
        """Make one of `--model_args`; they win over options of the same name."""
        more = {name: value for name, value in (additional_config or {}).items() if value is not None}
        # What lm-eval tells every model of trust_remote_code is about datasets.
        return cls(**{**more, **arg_dict, "trust_remote_code": None})

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Given | None = None) -> Self:
        """Make one of `--model_args` as one text."""
        return cls.create_from_arg_obj(_utils.simple_parse_args_string(arg_string), additional_config)

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval writes down beside the results."""
        told = {"prompt_tokens": self.prompt_tokens, "model_dtype": self.engine.dtype}
        return {"infinipot": self.recipe.describe(), **told}

    @cached_property
    def _likelihood(self) -> Likelihood:
        return Likelihood(self.recipe, self.engine.model, self._tokenizer)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        found = getattr(self.tokenizer, "eos_token_id", None)
        ends = sorted(self._tokenizer.stop_ids) if found is None else [found]
        if not ends:
            raise ConfigError("this model's tokenizer has no token that ends a text: use another model")
        return int(ends[0])

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without a context."""
        if self._opening:
            return self._opening[-1]
        found = getattr(self.tokenizer, "bos_token_id", None)
        return self.eot_token_id if found is None else int(found)

    @property
    def tokenizer_name(self) -> str:
        """What lm-eval tells its caches apart by."""
        return str(getattr(self.tokenizer, "name_or_path", "") or self.engine.name).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a prompt, control tokens of a template recognised, behind the model's opening."""
        if self.tokenizer is None:
            ids = self._tokenizer.encode(string)
        else:
            ids = list(self.tokenizer(string, add_special_tokens=False, verbose=False)["input_ids"])
        opened = ids[: len(self._opening)] == self._opening
        return ids if add_special_tokens is False or opened else [*self._opening, *ids]

    def tok_decode(self, ids: Sequence[int]) -> str:
        """Text of an answer's ids, without control tokens."""
        if self.tokenizer is None:
            return self._tokenizer.decode(ids)
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def apply_chat_template(self, chat_history: list[Given], add_generation_prompt: bool = True) -> str:
        """Lay out a talk as the model's own template does."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError("this model has no chat template: leave out --apply_chat_template")
        ends = {"add_generation_prompt": add_generation_prompt}
        ends["continue_final_message"] = not add_generation_prompt
        return str(self.tokenizer.apply_chat_template(chat_history, tokenize=False, **ends))

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        found = []
        for texts, context, end in _tqdm.tqdm(requests, disable=disable_tqdm):
            found.append(self._likelihood.end(context, end, self.prompt_tokens))
            self.cache_hook.add_partial("loglikelihood", texts, found[-1])
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log p of whole texts as they are read through the pot."""
        found = []
        for request in _tqdm.tqdm(requests, disable=disable_tqdm):
            begin = [] if self._opening else [self.prefix_token_id]
            found.append(self._likelihood.whole([*begin, *self.tok_encode(request.args[0])]))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answer after contexts, up to a stop text each; together where they want the same."""
        wanted = [generation(request.args[1], self.max_gen_toks) for request in requests]
        found = [""] * len(requests)
        for batch in _tqdm.tqdm(_batches(wanted, self.batch_size), disable=disable_tqdm):
            contexts, asked = zip(*(requests[index].args for index in batch), strict=True)
            stops = [self._stops(one.get("until")) for one in asked]
            for index, text in zip(batch, self.answers(contexts, stops, wanted[batch[0]]), strict=True):
                found[index] = text
                self.cache_hook.add_partial("generate_until", requests[index].args, text)
        return found

    def _stops(self, until: str | Iterable[str] | None) -> list[str]:
        given = [until] if isinstance(until, str) else list(until or [])
        return [stop for stop in (*given, self._tokenizer.decode([self.eot_token_id])) if stop]

    def answers(self, contexts: Sequence[str], stops: list[list[str]], wanted: Generation) -> list[str]:
        """Read contexts one by one, then answer all of them together."""
        sequences, texts, said = [], [], [list[int]() for _ in contexts]
        while len(self.readers) < len(contexts):
            self.readers.append(untouched(self.recipe, self.engine.model, self._tokenizer))
        for index, (reader, context) in enumerate(zip(self.readers, contexts, strict=False)):
            ids = self.tok_encode(context) or [self.prefix_token_id]
            text, prompt = part(ids, self.prompt_tokens, wanted.max_new_tokens, reader)
            reader.clear()
            for _ in reader.reading_tokens([text]):
                pass
            sequences.append(reader.sequence(prompt, wanted, final=True, index=index))
            texts.append(AnswerText(self._tokenizer, stops[index]))
        for index, token in decode(list(sequences)):
            said[index].append(token)
            texts[index].push(token)
            if texts[index].stopped:
                sequences[index].left = 0  # this answer is complete; the others go on
        # Cut again: lm-eval wants no control tokens, which may stand between the parts of a stop text.
        pairs = zip(map(self.tok_decode, said), stops, strict=True)
        return [reduce(lambda text, stop: text.split(stop)[0], ends, text) for text, ends in pairs]


_registry.register_model("infinipot")(InfiniPotLM)


def _batches(wanted: Sequence[Generation], most: int) -> list[list[int]]:
    """Return the places of requests with the same settings, `most` at a time; drawn answers have seeds."""
    groups = defaultdict[Generation, list[int]](list)
    for index, one in enumerate(wanted):
        groups[one].append(index)
    return [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]


def generation(asked: Given, most: int = MOST) -> Generation:
    """Read lm-eval's generation settings; one that would change the answer and is not known is refused."""
    lengths = [asked[name] for name in LENGTHS if asked.get(name) is not None]
    drawn, temperature = asked.get("do_sample"), asked.get("temperature")
    heat = 0.0 if drawn is False else float(temperature if temperature is not None else bool(drawn))
    for name, value in asked.items():
        if name in ("until", "do_sample", "temperature", *LENGTHS) or value is None:
            continue
        if (name in DRAWS and not heat) or (name in NEUTRAL and value == NEUTRAL[name]):
            continue
        remedy = f"use gen_kwargs {name}={NEUTRAL[name]}" if name in NEUTRAL else "leave it out"
        raise ConfigError(f"generation setting {name}={value} is not supported", field=name, remedy=remedy)
    # lm-eval seeds torch, so what is drawn can be drawn again.
    seed = int(torch.randint(2**62, ())) if heat else None
    return Generation(whole("max_gen_toks", lengths[0] if lengths else most), heat, seed)


def recipe_of(name: str, given: Given) -> Recipe:
    """Make a recipe of what stood in `--model_args`, texts or numbers."""
    preset, options = find(name), dict[str, Any]()
    if preset.mode.prompt == "passages":
        problem, remedy = "reads no text that could be scored", "use `infinipot eval`, or another recipe"
        raise ConfigError(f"recipe 'passages' {problem}", field="recipe", remedy=remedy)
    for key, value in ((key, str(value)) for key, value in given.items() if value is not None):
        if key not in (*SIZES, "catalyst", *preset.knobs, *preset.fixed):
            names = (*OWN, *DECLARED, *preset.knobs)
            raise ConfigError(f"unknown model argument '{key}'", field=key, remedy=hint(key, names))
        options[key] = value if key == "catalyst" else preset.parse(key, value)
    return Recipe.named(name, format="plain", **options)


def whole(name: str, value: Any) -> int:
    """Read a whole number of at least 1."""
    return int(Option(name, int, None, "", least=1).parse(str(value)))
