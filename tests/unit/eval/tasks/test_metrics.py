"""Every metric against numbers worked out by hand from its official definition."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import ConfigError
from infinipot.eval.tasks import metrics
from infinipot.eval.tasks.metrics import METRICS

NEARLY_ONE = 2 / (2 + 1e-8)  # ROUGE's own guard against dividing by zero keeps it below 1


@pytest.mark.parametrize(
    ("prediction", "reference", "wanted"),
    [
        ("The cat sat.", "a cat sat", 1.0),  # articles, case and the full stop do not count
        ("cat sat down", "cat sat", 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("cat cat dog", "cat dog dog", 2 / 3),  # one cat and one dog in common, of three each
        ("Smith, John", "john smith", 1.0),  # order does not count
        ("don't", "dont", 1.0),  # punctuation goes without a space in its place
        ("Anna another theory", "anna another theory", 1.0),  # articles inside words stay
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("the", "the", 0.0),  # nothing is left of it
    ],
)
def test_f1(prediction: str, reference: str, wanted: float) -> None:
    assert metrics.f1(prediction, reference) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("prediction", "reference", "wanted"),
    [
        ("我爱北京天安门。", "我爱北京天安门", 1.0),  # 我 爱 北京 天安门; the stop goes
        ("北京", "我爱北京天安门", 2 * 1 * 0.25 / 1.25),
        ("ABC公司", "abc公司", 1.0),
        ("。。", "北京", 0.0),
    ],
)
def test_f1_of_chinese_words(prediction: str, reference: str, wanted: float) -> None:
    assert metrics.f1_zh(prediction, reference) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("prediction", "reference", "wanted"),
    [
        ("the cat sat", "the cat sat", NEARLY_ONE),
        ("the cat", "the cat sat down", 2 * 1 * 0.5 / 1.5),  # longest common: 2 of 2, 2 of 4
        ("sat cat the", "the cat sat", 1 / 3),  # order counts
        ("the the the cat", "the cat", NEARLY_ONE),  # repeated words count once
        ("", "the cat", 0.0),
        ("...", "the cat", 0.0),
        ("dog", "the cat", 0.0),
    ],
)
def test_rouge(prediction: str, reference: str, wanted: float) -> None:
    assert metrics.rouge(prediction, reference) == pytest.approx(wanted, abs=1e-7)


def test_rouge_of_chinese_words() -> None:
    assert metrics.rouge_zh("我爱北京天安门", "我爱北京天安门") == pytest.approx(NEARLY_ONE)
    assert metrics.rouge_zh("北京天安门", "我爱北京天安门") == pytest.approx(2 * 1 * 0.5 / 1.5, abs=1e-7)


def test_rouge_does_not_depend_on_the_recursion_limit() -> None:
    one, other = ("first " + " ".join(f"{name}{place}" for place in range(600)) for name in "ab")
    limit = sys.getrecursionlimit()  # 1000 by default; the search goes 1200 deep to the one word in common
    assert metrics.rouge(one, other) == pytest.approx(1 / 601, abs=1e-7)
    assert sys.getrecursionlimit() == limit


def test_classification() -> None:
    classes = ["Date", "Individual", "City", "Other location", "location"]
    assert metrics.classification("City", "City", classes) == 1
    assert metrics.classification("City or Date", "City", classes) == 0.5
    assert metrics.classification("Date", "City", classes) == 0
    assert metrics.classification("city", "City", classes) == 0  # case counts
    assert (
        metrics.classification("Other location", "Other location", classes) == 1
    )  # a part of it is not one more
    assert metrics.classification("Other location", "location", classes) == 0.5


def test_classification_skips_the_class_after_a_removed_one_as_the_official_loop_does() -> None:
    classes = ["a", "b", "abc"]  # all in the prediction: a is removed, b then is not looked at, abc stays
    assert metrics.classification("abc", "abc", classes) == 0.5


def test_count() -> None:
    assert metrics.count("There are 12 of them", "12") == 1
    assert metrics.count("12, or 13, or 14", "12") == pytest.approx(1 / 3)
    assert metrics.count("12 and 12", "12") == 1
    assert metrics.count("120", "12") == 0
    assert metrics.count("twelve", "12") == 0


def test_retrieval() -> None:
    assert metrics.retrieval("Paragraph 7", "Paragraph 7") == 1
    assert metrics.retrieval("7", "Paragraph 7") == 1
    assert metrics.retrieval("Paragraph 7 or 8", "Paragraph 7") == 0.5
    assert metrics.retrieval("段落7", "Paragraph 7") == 1
    assert METRICS["retrieval_zh"]("段落7", "段落7") == 1
    assert METRICS["retrieval_zh"]("Paragraph 7, 9", "段落9") == 0.5
    assert metrics.retrieval("Paragraph 7", "no number") == 0


@pytest.mark.parametrize(
    ("prediction", "line"),
    [
        ("\n\n    return x\nmore", "    return x"),
        ("```python\nreturn x\n```", "return x"),
        ("# first this\n// and that\nreturn x", "return x"),
        ("# note\n\nreturn x", ""),  # an empty line is a line without marks: official, if odd
        ("# only a note", ""),
        ("", ""),
    ],
)
def test_the_line_of_code_that_counts(prediction: str, line: str) -> None:
    assert metrics.code_line(prediction) == line


def test_code_similarity_is_in_whole_percent() -> None:
    assert metrics.code_similarity("return x", "return x") == 1
    assert metrics.code_similarity("abc", "abd") == 0.67  # 2 * 2 / 6 = 66.7 %
    assert metrics.code_similarity("ab", "abcdef") == 0.5  # 2 * 2 / 8
    assert metrics.code_similarity("# a note", "return x") == 0
    assert metrics.code_similarity("", "") == 1


def without_levenshtein(prediction: str, reference: str) -> float:
    """What the official code similarity is where python-Levenshtein is not installed."""
    matcher = difflib.SequenceMatcher(None, metrics.code_line(prediction), reference)
    return round(100 * matcher.ratio()) / 100


def test_without_levenshtein_the_official_code_similarity_is_another_number() -> None:
    # The longest common subsequence is "abcd"; difflib takes the block "xyz" first and finds no more.
    prediction, reference = "xyzabcd", "abcdxyz"
    assert metrics.code_similarity(prediction, reference) == 0.57  # 2 * 4 / 14
    prediction, reference = "axbxcxd" + "qqq", "qqq" + "abcd"
    assert metrics.code_similarity(prediction, reference) == 0.47  # 2 * 4 / 17
    assert without_levenshtein(prediction, reference) == 0.35  # 2 * 3 / 17


def test_the_first_line_comes_after_leading_newlines() -> None:
    assert metrics.first_line("\n\nCity\nDate") == "City"
    assert metrics.first_line(" \nCity") == " "
    assert metrics.first_line("one\u2028line\nanother") == "one\u2028line"
    assert metrics.first_line("") == ""


@pytest.mark.parametrize("metric", ["rouge", "rouge_zh", "f1_zh", "code"])
def test_a_missing_package_is_one_line_that_says_what_to_install(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rouge", "jieba", "rapidfuzz.fuzz"):
        monkeypatch.setitem(sys.modules, name, None)
    metrics.jieba.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install '\.\[eval\]'") as caught:
        METRICS[metric]("北京", "北京")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    metrics.jieba.cache_clear()


def test_importing_is_light_and_jieba_is_silent(tmp_path: Path) -> None:
    code = (
        "import sys, infinipot.eval.tasks.longbench as t, infinipot.eval.tasks.metrics as m\n"
        "assert not {'rouge', 'jieba', 'rapidfuzz', 'datasets'} & set(sys.modules)\n"
        "assert m.f1_zh('北京', '北京') == 1\n"
    )
    made = subprocess.run(
        [sys.executable, "-W", "error", "-X", f"pycache_prefix={tmp_path}", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")


texts = st.text(max_size=60) | st.text(alphabet="ab .#/`\n12北京大学段落Pthe", max_size=60)


@given(prediction=texts, reference=texts)
@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_score_lies_between_0_and_1(name: str, prediction: str, reference: str) -> None:
    assert 0 <= METRICS[name](prediction, reference) <= 1


@given(prediction=texts, reference=texts)
def test_difflib_never_finds_more(prediction: str, reference: str) -> None:
    found = without_levenshtein(prediction, reference)
    assert 0 <= found <= metrics.code_similarity(prediction, reference)


@given(st.lists(st.sampled_from(["alpha", "beta", "beta gamma", "gamma"]), min_size=1, unique=True), texts)
def test_classification_lies_between_0_and_1(classes: list[str], prediction: str) -> None:
    for reference in classes:
        assert 0 <= metrics.classification(prediction + reference, reference, classes) <= 1


words = st.lists(st.text(alphabet="bcdfg", min_size=1, max_size=6), min_size=1, max_size=12).map(" ".join)


@given(words)
@pytest.mark.parametrize("name", ["code", "f1", "f1_zh", "rouge", "rouge_zh"])
def test_the_reference_itself_is_right(name: str, reference: str) -> None:
    assert METRICS[name](reference, reference) == pytest.approx(1)


@given(st.integers(0, 10**6))
def test_the_right_number_is_right(number: int) -> None:
    assert metrics.count(str(number), str(number)) == 1
    assert metrics.retrieval(f"Paragraph {number}", f"Paragraph {number}") == 1
    assert METRICS["retrieval_zh"](f"段落{number}", f"段落{number}") == 1
