"""Several documents at once: every reader has its own text, fill and question; tokens come together.

Reading goes document by document, since one chunk already fills a device; answering goes
together, since one token of one answer does not. Readers share a model and a capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infinipot.errors import InputError
from infinipot.reading.decode import Voice, speak
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.text.detokenize import Detokenizer, Until


def answer_all(
    readers: Sequence[Reader],
    prompts: Sequence[Sequence[int]],
    generation: Generation,
    final: bool = True,
) -> Iterator[tuple[int, int]]:
    """Yield (reader, token) as they come: the tokens every reader's `generate` would yield alone."""
    if len(readers) != len(prompts):
        raise InputError(f"{len(readers)} readers and {len(prompts)} prompts: give one prompt a reader")
    if len({(id(reader.model), reader.config.capacity) for reader in readers}) > 1:
        raise InputError("readers that answer together need one model and one capacity")
    if len({id(reader.pot) for reader in readers}) < len(readers):
        raise InputError("a reader can answer only one prompt at a time: fork() it first")
    pairs = enumerate(zip(readers, prompts, strict=True))
    return speak([Voice(index, reader, prompt, generation, final) for index, (reader, prompt) in pairs])


def ask_all(readers: Sequence[Reader], questions: Sequence[str], generation: Generation) -> list[str]:
    """Answer one question a reader, as `answer` would one by one; uses up the readers' pots."""
    prompts = [reader.turn(question) for reader, question in zip(readers, questions, strict=True)]
    texts = [Until(Detokenizer(reader.tokenizer), reader.frame.stop_strings) for reader in readers]
    answers = [""] * len(readers)
    for index, token in answer_all(readers, prompts, generation):
        answers[index] += texts[index].push(token)
    return [(answer + text.flush()).strip() for answer, text in zip(answers, texts, strict=True)]
