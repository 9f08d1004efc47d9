"""A model for EleutherAI's lm-evaluation-harness: its tasks, read by any of our recipes.

The only module that knows lm-eval. A context is read through the pot, all but its last tokens
(`prompt_tokens`), which are the prompt; one that fits the pot gives what the plain model gives.

Known deviations from lm-eval's own `hf` model: nothing is ever cut from a context; a rolling
log-likelihood begins with BOS once, where `hf` adds its prefix token to a text that has one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from importlib import import_module
from typing import Any

from infinipot.common.extras import needed_for
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError
from infinipot.eval.harness_arguments import MOST, PROMPT_TOKENS, generation, recipe_of, whole
from infinipot.eval.likelihood import Likelihood, longest_prompt, part, untouched
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.reading.answer import AnswerText
from infinipot.reading.decode import decode
from infinipot.reading.sampling import Generation

MODULES = ("lm_eval.api.model", "lm_eval.api.registry", "lm_eval.utils", "tqdm")  # none of which has types
with needed_for("the lm-eval harness", "harness"):
    _base, _registry, _utils, _tqdm = map(import_module, MODULES)
    import_module("lm_eval.models")  # fills the registry, which lm-eval itself does only while it is empty
TemplateLM: Any = _base.TemplateLM
Given = Mapping[str, Any]


class InfiniPotLM(TemplateLM):  # type: ignore[misc]  # lm-eval's class has no types
    """`--model infinipot`; `--model_args` gives its arguments, and the recipe's sizes and settings."""

    def __init__(
        self,
        model: str | Engine = DEFAULT_MODEL,
        recipe: str = "infinipot",
        device: str | None = None,
        dtype: str = "auto",
        prompt_tokens: int | str = PROMPT_TOKENS,
        batch_size: int | str = 1,
        max_gen_toks: int | str = MOST,
        **options: Any,
    ) -> None:
        super().__init__()
        self.recipe = recipe_of(str(recipe), options)
        self.prompt_tokens = whole("prompt_tokens", prompt_tokens)
        self.batch_size = whole("batch_size", batch_size)
        self.max_gen_toks = whole("max_gen_toks", max_gen_toks)
        self.engine = model if isinstance(model, Engine) else open_engine(str(model), device or "auto", dtype)
        self._device = self.engine.model.device
        self._tokenizer = self.engine.tokenizer
        self.tokenizer: Any = getattr(self._tokenizer, "inner", None)  # transformers', which lm-eval knows
        self._opening = list(self._tokenizer.frame("plain").opening)
        self.readers = [untouched(self.recipe, self.engine.model, self._tokenizer)]
        most = longest_prompt(self.readers[0])
        if self.recipe.preset.bounded and self.prompt_tokens > most:
            remedy = f"use {most} or less, or a larger capacity"
            raise ConfigError(f"prompt_tokens is {self.prompt_tokens}", field="prompt_tokens", remedy=remedy)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Given, additional_config: Given | None = None) -> InfiniPotLM:
        """Make one of `--model_args`; they win over options of the same name."""
        more = {name: value for name, value in (additional_config or {}).items() if value is not None}
        given = {**more, **arg_dict}
        given.pop("trust_remote_code", None)  # about datasets; lm-eval tells every model
        return cls(**given)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Given | None = None) -> InfiniPotLM:
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

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
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
            ids = self.tok_encode(request.args[0])
            ids = ids if self._opening else [self.prefix_token_id, *ids]
            found.append(self._likelihood.whole(ids))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answer after contexts, up to a stop text each; together where they want the same."""
        wanted = [generation(request.args[1], self.max_gen_toks) for request in requests]
        batches = _batches(wanted, self.batch_size)
        found = [""] * len(requests)
        for batch in _tqdm.tqdm(batches, disable=disable_tqdm):
            contexts = [requests[index].args[0] for index in batch]
            stops = [self._stops(requests[index].args[1].get("until")) for index in batch]
            for index, text in zip(batch, self.answers(contexts, stops, wanted[batch[0]]), strict=True):
                found[index] = text
                self.cache_hook.add_partial("generate_until", requests[index].args, text)
        return found

    def _stops(self, until: str | Iterable[str] | None) -> list[str]:
        given = [until] if isinstance(until, str) else list(until or [])
        return [stop for stop in (*given, self._tokenizer.decode([self.eot_token_id])) if stop]

    def answers(self, contexts: list[str], stops: list[list[str]], wanted: Generation) -> list[str]:
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
    """Requests that want the same, at most so many at a time; a drawn answer, with its seed, is alone."""
    groups = defaultdict[Generation, list[int]](list)
    for index, one in enumerate(wanted):
        groups[one].append(index)
    return [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]
