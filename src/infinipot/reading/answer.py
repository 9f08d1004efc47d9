"""From an answer's tokens to its text: whole characters, up to a stop string; one answer or several."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from infinipot.errors import InputError
from infinipot.reading.decode import decode
from infinipot.reading.sampling import Generation
from infinipot.text.detokenize import Detokenizer, overlap
from infinipot.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader


class AnswerText:
    """The text of tokens that arrive one by one, up to a stop string; what may become one is held back."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._detokenizer, self._stops = Detokenizer(tokenizer), [stop for stop in stops if stop]
        self.text, self.tokens, self.stopped = "", 0, False  # `stopped` by a stop string
        self._held = ""

    def push(self, token: int) -> str:
        """Take a token; return the text that no later token can change or stop."""
        self.tokens += 1
        return self._take(self._detokenizer.push(token))

    def flush(self) -> str:
        """Return what was held back."""
        return self._take(self._detokenizer.flush(), last=True)

    def _take(self, piece: str, last: bool = False) -> str:
        if self.stopped:
            return ""
        said, self._held = self._held + piece, ""
        if found := [at for stop in self._stops if (at := said.find(stop)) >= 0]:
            self.stopped, said = True, said[: min(found)]
        elif not last:
            hold = max((overlap(said, stop) for stop in self._stops), default=0)
            said, self._held = said[: len(said) - hold], said[len(said) - hold :]
        self.text += said
        return said

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield the text of tokens as it comes, to its end or a stop string."""
        for token in tokens:
            yield self.push(token)
            if self.stopped:
                return
        yield self.flush()

    def finish_reason(self, most: int) -> Literal["stop", "length"]:
        """Say whether the answer came to its end, or only to its `most` tokens."""
        return "stop" if self.stopped or self.tokens < most else "length"


def answer_all(
    readers: Sequence["Reader"], prompts: Sequence[Sequence[int]], generation: Generation, final: bool = True
) -> Iterator[tuple[int, int]]:
    """Yield (reader, token) as they come: the tokens every reader's `generate` would yield alone.

    Reading goes document by document, since one chunk already fills a device; answering goes together,
    since one token of one answer does not. Readers share a model and a capacity.
    """
    if len(readers) != len(prompts):
        raise InputError(f"{len(readers)} readers and {len(prompts)} prompts: give one prompt a reader")
    if len({(id(reader.model), reader.config.capacity) for reader in readers}) > 1:
        raise InputError("readers that answer together need one model and one capacity")
    if len({id(reader.pot) for reader in readers}) < len(readers):
        raise InputError("a reader can answer only one prompt at a time: fork() it first")
    pairs = enumerate(zip(readers, prompts, strict=True))
    return decode([reader.sequence(prompt, generation, final, index) for index, (reader, prompt) in pairs])


def ask_all(readers: Sequence["Reader"], questions: Sequence[str], generation: Generation) -> list[str]:
    """Answer one question a reader, as `answer` would one by one; uses up the readers' pots."""
    prompts = [reader.turn(question) for reader, question in zip(readers, questions, strict=True)]
    texts = [AnswerText(reader.tokenizer, reader.frame.stop_strings) for reader in readers]
    for index, token in answer_all(readers, prompts, generation):
        texts[index].push(token)
    for text in texts:
        text.flush()
    return [text.text.strip() for text in texts]
