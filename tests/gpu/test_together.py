"""Several answers in one batch on a card are those of one by one, whatever their lengths and fills."""

from __future__ import annotations

from gpu.random_models import CAPACITY, model, read, reader, tokens
from infinipot.hf.model import HFModel
from infinipot.reading.answer import answer_all
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation

LENGTHS = (40, CAPACITY - 30, CAPACITY + 700, 3000, 5000)


def readers(on: HFModel, recipe: str) -> list[Reader]:
    made = [reader(on, recipe) for _ in LENGTHS]
    for seed, (one, length) in enumerate(zip(made, LENGTHS, strict=True)):
        read(one, tokens(length, seed))
    return made


def together_as_alone(recipe: str, count: int) -> None:
    on = model()
    many = readers(on, recipe)
    prompts = [[5 + n, 6, 7] for n in range(len(many))]
    alone = [
        list(one.fork().generate(prompt, Generation(count), final=True))
        for one, prompt in zip(many, prompts, strict=True)
    ]
    for _ in range(2):  # the second time everything is captured
        said: list[list[int]] = [[] for _ in many]
        for index, token in answer_all([one.fork() for one in many], prompts, Generation(count)):
            said[index].append(token)
        assert said == alone


def test_answers_that_fit() -> None:
    together_as_alone("infinipot", 64)


def test_answers_longer_than_the_pot() -> None:
    together_as_alone("infinipot", CAPACITY + 90)


def test_a_recipe_that_keeps_the_latest() -> None:
    together_as_alone("streaming-llm", 64)
