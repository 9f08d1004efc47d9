"""How likely a text is, or its end, when the text is read through a pot: judged by what the pot kept."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.core.rows import Rows
from infinipot.core.scores import VOCAB_LOGITS
from infinipot.errors import ConfigError
from infinipot.reading.model import Model
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.text.tokenizer import Tokenizer


class Recorder:
    """A model that records the tokens written with it, each with the hidden state before the token."""

    obstacle = "every token is recorded, which no captured forward allows"

    def __init__(self, model: Model) -> None:
        self.model, self.device, self.vocabulary = model, model.device, model.vocabulary
        self.new_pot, self.logits = model.new_pot, model.logits
        self.last: Tensor | None = None  # [1, 1, H] before the next token
        self._taken: list[tuple[Tensor, Tensor]] = []

    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [1, n] into the pot; take down all but the catalyst's."""
        hidden = self.model.forward(tokens, pot)
        count = tokens.shape[1] - (pot.catalyst_length if isinstance(pot, Pot) else 0)
        if count:
            own, text = hidden[:, :count], tokens[:, :count]
            before = own[:, :-1] if self.last is None else torch.cat((self.last, own[:, :-1]), dim=1)
            first = count - before.shape[1]  # the very first token has no past
            self._taken.append((before, text[:, first:]))
            self.last = own[:, -1:].clone()
        return hidden

    def take(self) -> tuple[Tensor, Tensor]:
        """Give out, once, hidden states [n, H] and the tokens [n] after them."""
        found, self._taken = self._taken, []
        if not found:
            return torch.empty(0), torch.empty(0)
        before, tokens = zip(*found, strict=True)
        return torch.cat(before, dim=1)[0], torch.cat(tokens, dim=1)[0]


class Likelihood:
    """Judges texts with a recipe; several ends of one text cost one reading of it."""

    def __init__(self, recipe: Recipe, model: Model, tokenizer: Tokenizer) -> None:
        self._recorder = Recorder(model)
        self._reader = untouched(recipe, self._recorder, tokenizer)
        self._name = recipe.preset.name
        self._read: list[int] | None = None  # what the reader holds

    def end(self, context: list[int], end: list[int], prompt_tokens: int) -> tuple[float, bool]:
        """Log p of the end after the context, and whether each of its tokens is the likeliest."""
        if not end:
            return 0.0, True
        # The context's last `prompt_tokens` are written together with the end, behind all else.
        text, prompt = part([*context, *end], prompt_tokens + len(end), 0, self._reader)
        if self._read != text:
            self._clear()
            for _ in self._reader.reading_tokens([text]):
                self._recorder.take()
            self._read = text
        self._recorder.take()
        _write(self._reader.fork(), prompt)
        before, tokens = self._recorder.take()
        return self._judge(before[-len(end) :], tokens[-len(end) :])

    def whole(self, tokens: list[int]) -> float:
        """Log p of all tokens but the first, as they are read."""
        reader = self._reader
        if reader.session.mode.prompt == "truncate":
            problem = f"recipe '{self._name}' does not read the middle of a text, nor say how likely that is"
            raise ConfigError(problem, field="recipe", remedy="use another recipe")
        # Where a recipe writes a text's last tokens with the question, the last one is the question.
        text, prompt = part(tokens, int(reader.session.mode.distil == "prompt"), 0, reader)
        self._clear()
        total = 0.0
        for _ in reader.reading_tokens([text]):
            total += self._judge(*self._recorder.take())[0]
        if prompt:
            _write(reader, prompt)
            total += self._judge(*self._recorder.take())[0]
        return total

    def _clear(self) -> None:
        self._reader.clear()
        self._recorder.take()
        self._read = self._recorder.last = None

    @torch.no_grad()
    def _judge(self, before: Tensor, tokens: Tensor) -> tuple[float, bool]:
        """Log p of tokens [n] after hidden states [n, H], in float32 and bounded memory."""
        total, likeliest = 0.0, True
        rows = max(1, VOCAB_LOGITS // self._recorder.vocabulary)
        for start in range(0, len(tokens), rows):
            wanted = tokens[start : start + rows]
            logits = self._recorder.logits(before[start : start + rows]).float()
            found = logits.log_softmax(-1).gather(1, wanted[:, None])
            total += float(found.double().sum())
            likeliest = likeliest and bool((logits.argmax(-1) == wanted).all())
        return total, likeliest


def untouched(recipe: Recipe, model: Model, tokenizer: Tokenizer) -> Reader:
    """A reader that adds nothing to the tokens it is given, not even an opening."""
    reader = recipe.reader(model, tokenizer, bare=True)
    reader.frame = replace(reader.frame, opening=())
    return reader


def part(tokens: list[int], last: int, after: int, reader: Reader) -> tuple[list[int], list[int]]:
    """Part tokens into a text to be read and a prompt of the `last` ones; `after` more are to come."""
    # Reading leaves room for a catalyst: where all fits and the prompt is as long, nothing is ever distilled.
    fits = reader.session.mode.grows or len(tokens) + after <= reader.config.capacity
    cut = max(0, len(tokens) - (max(last, len(reader.session.catalyst)) if fits else last))
    return tokens[:cut], tokens[cut:]


def longest_prompt(reader: Reader) -> int:
    """The most tokens that can follow a long text at once."""
    config = reader.config
    return config.capacity - len(reader.session.catalyst) - 1 - max(1, config.opening)


def _write(reader: Reader, prompt: Sequence[int]) -> None:
    """Write tokens after what was read: at once, or where that would empty the pot, the rest one by one."""
    most = max(reader.pot.room, min(reader.config.capacity // 2, longest_prompt(reader)))
    first, rest = prompt[:most], prompt[most:]
    _, exhausts_pot = reader.begin_answer(first, len(rest), final=True)
    for token in rest:
        reader.session.advance(token, exhausts_pot)
