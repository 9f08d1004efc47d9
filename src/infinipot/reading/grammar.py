"""Answers of a given form: a JSON schema or a grammar, as a mask over the next token of one sequence.

llguidance knows grammars; this module knows which tokens end an answer and which no text may have in it.
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.common.extras import needed_for
from infinipot.errors import InputError, ModelError, foreign
from infinipot.text.tokenizer import Spellings, Tokenizer

LONGEST = 65_536  # characters of a schema
# Between the parts of JSON: nothing, a space, or a new line with its indentation. A small model that may
# write any number of spaces does, up to the end of its tokens.
SPACES = {"whitespace_flexible": True, "whitespace_pattern": r"(\n[ ]{0,16}| )"}
LIMITS = {"step_max_items": 400_000, "max_items_in_row": 4000}  # 900 properties are 40 ms a token, no more
_known: WeakKeyDictionary[Tokenizer, Any] = WeakKeyDictionary()  # llguidance's view of a tokenizer


@dataclass(frozen=True)
class Grammar:
    """What an answer must look like; made by `json` or `lark`."""

    source: str  # in llguidance's own words

    @classmethod
    def json(cls, schema: Mapping[str, Any] | None = None) -> Self:
        """Any JSON object, or JSON of a schema."""
        told = {"type": "object"} if schema is None else schema
        if not isinstance(told, Mapping):
            raise InputError("a JSON schema is an object", field="schema", remedy="give an object")
        text = json.dumps(told)
        if len(text) > LONGEST:
            raise InputError(f"the schema is over {LONGEST:,} characters", remedy="give a smaller one")
        try:
            return cls(_llguidance().LLMatcher.grammar_from_json_schema(text, overrides=SPACES))
        except ValueError as error:
            raise _refused(str(error)) from error

    @classmethod
    def lark(cls, text: str) -> Self:
        """Text of a grammar in the Lark syntax of llguidance."""
        return cls(_llguidance().LLMatcher.grammar_from_lark(text))

    def constraint(self, tokenizer: Tokenizer, vocabulary: int) -> "Constraint":
        """Return a constraint for one answer; refuse a grammar that cannot be one."""
        library = _llguidance()
        limits = library.LLParserLimits(**LIMITS)
        found = library.LLMatcher(_view(tokenizer, vocabulary), self.source, log_level=0, limits=limits)
        if found.is_error():
            raise _refused(found.get_error())
        return Constraint(found, tokenizer)


class Constraint:
    """One answer on its way through a grammar."""

    def __init__(self, matcher: Any, tokenizer: Tokenizer) -> None:
        self._matcher = matcher
        self._stops, self._control = sorted(tokenizer.stop_ids), sorted(tokenizer.control_ids)
        self.problem = ""  # why the grammar could not be followed to its end

    def allowed(self, vocabulary: int) -> Tensor:
        """Say which tokens [V] may come next, on the host.

        Raises nothing, since other answers are decoded in the same step; where no token is allowed, this
        answer ends.
        """
        allowed = torch.zeros(vocabulary, dtype=torch.bool)
        if not self._matcher.is_stopped():
            told = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8)
            allowed[: len(told)] = told[: len(allowed)].bool()
            allowed[self._control] = False
        allowed[self._stops] = self._matcher.is_accepting()
        if not allowed.any():
            stuck = "no token of the model goes on from here"
            self.problem = self.problem or self._matcher.get_error() or stuck
            allowed[self._stops] = True
        return allowed

    def take(self, token: int) -> None:
        """Go on after a token."""
        if not self._matcher.consume_token(token):
            self.problem = self.problem or self._matcher.get_error()


def _refused(problem: str) -> InputError:
    lines = problem.strip().splitlines() or ["it is no schema"]
    return InputError(f"this schema cannot be followed ({lines[0][:200]})", remedy="change or simplify it")


def _llguidance() -> Any:
    with needed_for("an answer of a given form", "grammar"):
        return importlib.import_module("llguidance")


def _view(tokenizer: Tokenizer, vocabulary: int) -> Any:
    """Return llguidance's view of a tokenizer, made once: half a second for a real one."""
    if tokenizer not in _known:
        if not tokenizer.stop_ids:
            raise ModelError("this model has no token that ends an answer, so none can be given a form")
        spelt, end = tokenizer.spellings(), min(tokenizer.stop_ids)
        library = _llguidance()
        with foreign("answers of this model cannot be given a form"):
            source = library.TokenizerWrapper(_Table(spelt, end)) if isinstance(spelt, Spellings) else spelt
            _known[tokenizer] = library.LLTokenizer(source, n_vocab=vocabulary, eos_token=end)
    return _known[tokenizer]


class _Table:
    """A list of tokens, as llguidance asks for them."""

    bos_token_id = None

    def __init__(self, spelt: Spellings, end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = list(spelt.bytes), list(spelt.control), end
        self._ids = {text: token for token, text in enumerate(spelt.bytes)}

    def __call__(self, text: bytes) -> list[int]:
        return [self._ids[bytes([byte])] for byte in text]
