"""Variable tracking: one chain in noise, all of it asked for."""

from __future__ import annotations

import re

import pytest

from infinipot.eval.tasks.task import make
from infinipot.eval.tasks.variable_tracking import NOISE, OPENING, VariableTracking


def words(text: str) -> int:
    return len(text.split())


def test_a_chain_lies_in_its_order_in_noise_of_the_length() -> None:
    task = VariableTracking(lengths=(400, 2000), trials=3, hops=3)
    found = list(task.examples(words))
    assert [example.id for example in found] == [f"{n}-{t}" for n in (400, 2000) for t in range(3)]
    for example in found:
        value, *names = *re.findall(r"value (\d+) in", example.question), *example.answers
        steps = re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", example.text, re.MULTILINE)
        assert steps == list(zip(names, [value, *names], strict=False))
        assert example.text.startswith(OPENING)
        assert set(example.text.removeprefix(OPENING).split("\n")) - {NOISE} == {
            line for line in example.text.split("\n") if line.startswith("VAR ")
        }
        length = example.facts["length"]
        assert length - words(NOISE) <= words(example.text + example.question) <= length
        assert example.query in example.question
    assert list(task.examples(words)) == found  # the same in every run
    assert len({example.answers for example in found}) == 6


def test_the_score_is_the_share_of_the_chain() -> None:
    task = make("variable-tracking", {"lengths": "200", "trials": 1, "hops": 3})
    assert task.describe() == {"lengths": [200], "trials": 1, "hops": 3}
    (example,) = task.examples(words)
    first, second, *_ = example.answers
    assert task.score(" ".join(example.answers).lower(), example) == 1
    assert task.score(f"{first} and {second}.", example) == pytest.approx(0.5)
    assert task.score("none", example) == 0


def test_a_text_too_short_for_noise_is_the_chain() -> None:
    (example,) = VariableTracking(lengths=(1,), trials=1).examples(words)
    assert NOISE not in example.text
    assert len(example.answers) == 5
