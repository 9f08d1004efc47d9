"""The official metrics of LongBench v1, from 0 to 1, with all oddities but two that depend on the machine:

- Official ROUGE gives 0 where Python's recursion limit is met. `rouge` raises the limit.
- Official edit similarity is python-Levenshtein's where that is installed, as here, and difflib's elsewhere.
"""

import importlib
import logging
import re
import string
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from infinipot.common.extras import needed_for

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MARKS_ZH = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛"
    "｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
_PUNCTUATION_ZH = str.maketrans("", "", string.punctuation + _MARKS_ZH)
_NOT_CODE = ("`", "#", "//")
_recursion = threading.Lock()  # `rouge` recurses once a word, more often than Python's limit allows


def f1(prediction: str, reference: str) -> float:
    """Token F1 after lower case and without punctuation, articles and extra space."""
    return _overlap(normalise(prediction).split(), normalise(reference).split())


def f1_zh(prediction: str, reference: str) -> float:
    """F1 over the words jieba cuts Chinese into."""
    return _overlap(_words_zh(prediction), _words_zh(reference))


def rouge(prediction: str, reference: str) -> float:
    """ROUGE-L f, of the whole summary; 0 where one side has no words."""
    scorer = _optional("rouge").Rouge(metrics=["rouge-l"])
    with _recursion:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + len(prediction.split()) + len(reference.split()))  # one a word
        try:
            return float(scorer.get_scores([prediction], [reference], avg=True)["rouge-l"]["f"])
        except ValueError:  # nothing but space and full stops
            return 0.0
        finally:
            sys.setrecursionlimit(before)


def rouge_zh(prediction: str, reference: str) -> float:
    """ROUGE-L f over the words jieba cuts Chinese into."""
    return rouge(" ".join(_cut(prediction)), " ".join(_cut(reference)))


def classification(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """One over the number of classes named, if the right one is among them."""
    named = [name for name in classes if name in prediction]
    # A class whose name is part of the right one's does not count. As the official loop, this one removes
    # from the list it walks, so the class after a removed one is never looked at.
    for name in named:
        if name in reference and name != reference:
            named.remove(name)
    return 1.0 / len(named) if reference in named else 0.0


def count(prediction: str, reference: str) -> float:
    """The share of the prediction's numbers that are the reference."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def retrieval(prediction: str, reference: str, pattern: str = r"Paragraph (\d+)") -> float:
    """The share of the prediction's numbers that are the reference's paragraph."""
    wanted = re.search(pattern, reference)
    return count(prediction, wanted[1]) if wanted else 0.0


def code_similarity(prediction: str, reference: str) -> float:
    """Edit similarity in whole percent of the first line that looks like code."""
    return round(float(_optional("rapidfuzz.fuzz").ratio(code_line(prediction), reference))) / 100


METRICS: dict[str, Callable[[str, str], float]] = {  # by the name a task's description uses
    "code": code_similarity,
    "count": count,
    "f1": f1,
    "f1_zh": f1_zh,
    "retrieval": retrieval,
    "retrieval_zh": partial(retrieval, pattern=r"段落(\d+)"),
    "rouge": rouge,
    "rouge_zh": rouge_zh,
}


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and extra space."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def first_line(prediction: str) -> str:
    """Return the first line after leading newlines."""
    return prediction.lstrip("\n").split("\n")[0]


def code_line(prediction: str) -> str:
    """Return the first line without a backtick, '#' or '//', after leading newlines; else nothing."""
    lines = prediction.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in _NOT_CODE)), "")


def _overlap(prediction: list[str], reference: list[str]) -> float:
    same = sum((Counter(prediction) & Counter(reference)).values())
    if not same:
        return 0.0
    precision, recall = same / len(prediction), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def _words_zh(text: str) -> list[str]:
    words = ("".join(word.lower().translate(_PUNCTUATION_ZH).split()) for word in _cut(text))
    return [word for word in words if word]


def _cut(text: str) -> list[str]:
    return list(jieba().cut(text, cut_all=False))


@cache
def jieba() -> Any:
    """Import jieba, which cuts Chinese into words, without its own warnings and reports."""
    with warnings.catch_warnings():
        # jieba 0.42.1 has invalid escapes and asks for pkg_resources; neither is ours to mend.
        warnings.simplefilter("ignore")
        found = _optional("jieba")
    found.setLogLevel(logging.WARNING)  # it reports its dictionary on stderr otherwise
    return found


def _optional(name: str) -> Any:
    with needed_for("this metric", "eval"):
        return importlib.import_module(name)
