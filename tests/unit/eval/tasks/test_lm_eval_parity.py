"""Our metrics against lm-evaluation-harness's, which are THUDM's own, on thousands of made pairs.

lm-eval's file is loaded by itself: its package would bring a model library along. It asks for fuzzywuzzy
(GPL), which is not installed here; a stand-in gives fuzzywuzzy's number by an independent way.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infinipot.eval.tasks import metrics

if importlib.util.find_spec("lm_eval") is None:
    pytest.skip("lm-eval is not installed", allow_module_level=True)


WORDS = re.findall(
    r"\S+", "the a an The quick brown fox over lazy dog river, bank. Anna's 1984 (city) yes no -- theory"
)
WORDS_ZH = re.findall(
    r"\S+", "北京 大学 我 爱 天安门 的 人工智能 研究 会议 讨论 了 ， 。 、 《 》 2023 年 AI ABC 段落 7 12"
)
CODE = [
    "    return x",
    "\tif (a == b) {",
    "x = foo(bar, 1)",
    "# a note",
    "// a note",
    "```python",
    "",
    "  }",
    "y += 1",
]
CLASSES = [
    "Date",
    "City",
    "Individual",
    "Other location",
    "location",
    "Number of something",
    "Other number",
    "a b",
]


def texts(source: random.Random) -> tuple[str, str]:
    """Return English prose; the prediction is often the reference, changed a little."""
    reference = _drawn(source, WORDS, " ", 30)
    return _changed(source, reference, WORDS, " "), reference


def texts_zh(source: random.Random) -> tuple[str, str]:
    """Return Chinese prose."""
    reference = _drawn(source, WORDS_ZH, "", 30)
    return _changed(source, reference, WORDS_ZH, ""), reference


def code(source: random.Random) -> tuple[str, str]:
    """Return lines of code, the reference one line."""
    lines = [source.choice(CODE) for _ in range(source.randint(0, 5))]
    return "\n" * source.randint(0, 2) + "\n".join(lines), source.choice(CODE[:3]) + source.choice(
        ["", ")", " y"]
    )


def numbers(source: random.Random, before: str = "") -> tuple[str, str]:
    """Return text with numbers, the reference one of them."""
    found = [str(source.randint(1, 12)) for _ in range(source.randint(0, 4))]
    text = source.choice([" ", " or ", ", Paragraph ", "段落"]).join(found)
    return before + text, before + str(source.randint(1, 12))


def classes(source: random.Random) -> tuple[str, str]:
    """Return names of classes, the reference one of them."""
    named = source.sample(CLASSES, source.randint(0, 4))
    return source.choice([" ", ", ", "\n"]).join(named), source.choice(CLASSES)


def many(
    make: Callable[[random.Random], tuple[str, str]], number: int = 500, seed: int = 0
) -> list[tuple[str, str]]:
    """Make that many pairs."""
    source = random.Random(seed)
    return [make(source) for _ in range(number)]


def _drawn(source: random.Random, words: list[str], joint: str, most: int) -> str:
    return joint.join(source.choice(words) for _ in range(source.randint(0, most)))


def _changed(source: random.Random, text: str, words: list[str], joint: str) -> str:
    if source.random() < 0.3:
        return _drawn(source, words, joint, 40)
    cut = source.randint(0, len(text))
    return (
        source.choice(["", " ", "\n", "Answer: "])
        + text[:cut]
        + joint
        + _drawn(source, words, joint, 5)
        + text[cut:]
    )


def fuzzywuzzy_ratio(one: str, other: str) -> int:
    """fuzzywuzzy's number over python-Levenshtein: twice the longest common subsequence, in whole percent."""
    if one == other:
        return 100
    row = [0] * (len(other) + 1)
    for character in one:
        before = row
        row = [0]
        for place, against in enumerate(other):
            longer = before[place] + 1 if character == against else max(before[place + 1], row[-1])
            row.append(longer)
    return round(100 * 2 * row[-1] / (len(one) + len(other)))


@cache
def theirs() -> Any:
    """Load lm-eval's metrics with a stand-in for fuzzywuzzy."""
    metrics.jieba()  # imported quietly, before they import it
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "tasks" / "longbench" / "metrics.py"
    own = importlib.util.spec_from_file_location("lm_eval_longbench_metrics", path)
    assert own is not None
    assert own.loader is not None
    stand_in = ModuleType("fuzzywuzzy")
    stand_in.fuzz = type("fuzz", (), {"ratio": staticmethod(fuzzywuzzy_ratio)})  # type: ignore[attr-defined]
    module = importlib.util.module_from_spec(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fuzzywuzzy", stand_in)
        own.loader.exec_module(module)
    return module


PAIRS = {
    "qa_f1_score": (metrics.f1, texts),
    "qa_f1_zh_score": (metrics.f1_zh, texts_zh),
    "rouge_score": (metrics.rouge, texts),
    "rouge_zh_score": (metrics.rouge_zh, texts_zh),
    "count_score": (metrics.count, numbers),
    "retrieval_score": (metrics.retrieval, partial(numbers, before="Paragraph ")),
    "retrieval_zh_score": (metrics.METRICS["retrieval_zh"], partial(numbers, before="段落")),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_same_score(name: str) -> None:
    ours, make = PAIRS[name]
    their = getattr(theirs(), name)
    made = many(make)
    found = [ours(*pair) for pair in made]
    assert found == [their(*pair) for pair in made]
    assert len(set(found)) > 5  # not all 0, not all 1


def test_the_same_classification() -> None:
    made = many(classes, 2000)
    their: Callable[..., float] = theirs().classification_score
    found = [metrics.classification(*pair, CLASSES) for pair in made]
    assert found == [their(*pair, all_classes=CLASSES) for pair in made]
    assert {0.0, 1.0, 0.5} <= set(found)


def test_the_same_code_similarity() -> None:
    # Since 0.4.13 lm-eval looks on beyond blank lines; THUDM's code, and ours, takes a blank line for code.
    made = [pair for pair in many(code, 1500) if metrics.code_line(pair[0]).strip()]
    found = [metrics.code_similarity(*pair) for pair in made]
    assert len(made) >= 500
    assert found == [theirs().code_sim_score(*pair) for pair in made]


def test_the_same_best_over_references() -> None:
    for (prediction, first), (_, second) in zip(many(texts, 100), many(texts, 100, seed=1), strict=True):
        row = {"answers": [first, second]}
        ours = max(metrics.f1(prediction, answer) for answer in row["answers"])
        assert ours == theirs().get_qa_f1_score(row, [prediction])["qa_f1_score"]
