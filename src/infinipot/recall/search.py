"""Which passages a question needs: the best by their words within a budget of tokens, in text order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from infinipot.recall.archive import Archive
from infinipot.recall.passages import Passage
from infinipot.recall.words import terms

MOST, SEVERAL = 400, 8  # passages looked at; for the best one
MISSES = 8  # passages that are too long for what is left of a budget, before no more are tried
BESIDE = 0.5  # what a passage gains of its neighbours' weight: the answer often stands beside the words
COMMON, FEW = 0.1, 3  # a word of more than this share of passages, and of more than these, tells little
NOTHING = 0.2  # where each word of a question has more than this share of them, none is recalled
_DAMPING = 60  # of reciprocal ranks, as is usual


def search(
    archive: Archive, queries: Sequence[str], budget: int, count: Callable[[str], int]
) -> list[Passage]:
    """Return the best passages for several wordings of a question that together have at most `budget` tokens.

    In text order, neighbours joined. None where no passage shares an uncommon word with any wording.
    """
    return taken(archive.passages(ranked(archive, queries)), queries, budget, count)


def ranked(archive: Archive, queries: Sequence[str]) -> list[int]:
    """Return the numbers of passages that share words with wordings of a question, the best first."""
    most = max(FEW, NOTHING * archive.last)
    telling = (words for words in map(terms, queries) if any(0 < archive.count(one) <= most for one in words))
    return fused([supported(archive.matching(words, MOST)) for words in telling])


def supported(weights: Mapping[int, float]) -> list[int]:
    """Return passages by their own weight and part of their neighbours', the best first."""

    def total(number: int) -> float:
        return weights[number] + BESIDE * (weights.get(number - 1, 0.0) + weights.get(number + 1, 0.0))

    return sorted(weights, key=total, reverse=True)


def taken(
    passages: Iterable[Passage], queries: Sequence[str], budget: int, count: Callable[[str], int]
) -> list[Passage]:
    """Return the first of these passages that fit a budget of tokens, in text order, neighbours joined."""
    chosen: list[Passage] = []
    misses = 0
    asked = {word for query in queries for word in terms(query)}
    for passage in passages:
        if asked.issuperset(terms(passage.text)):
            continue  # an earlier turn that only repeats the question
        if any(one.id == passage.id and passage.text in one.text for one in chosen):
            continue  # a sentence of what is there
        cost = count(passage.text)
        if cost <= budget:
            chosen.append(passage)
            budget -= cost
        elif not chosen:  # not even the best one fits: its beginning does
            text = passage.text[: len(passage.text) * budget // cost]
            return [replace(passage, end=passage.start + len(text), text=text)]
        else:  # a shorter one may still fit
            misses += 1
            if misses == MISSES:
                break
    return joined(chosen)


def coverage(archive: Archive, question: str) -> tuple[int, int]:
    """Return how many of a question's telling words the best passage has, and how many there are.

    A turn that only asked the same says nothing.
    """
    most = max(FEW, COMMON * archive.last)
    telling = [word for word in terms(question) if len(word) > 3 and archive.count(word) <= most]
    asked, some = {*terms(question)}, archive.passages(archive.matching(telling, SEVERAL))
    best = next((one.id for one in some if not asked.issuperset(terms(one.text))), 0)
    return sum(archive.count(word, best) for word in telling if best), len(telling)


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return one ranking of several: by the sum of reciprocal ranks."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (_DAMPING + rank)
    return sorted(scores, key=scores.__getitem__, reverse=True)


def joined(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages and sentences of passages in text order, neighbours of one source as one."""
    found: list[Passage] = []
    last = 0
    for passage in sorted(passages, key=lambda one: (one.id, one.start, -one.end)):
        before = found[-1] if found else None
        if before and passage.id == last and passage.end <= before.end:
            continue  # a sentence of what is there
        if before and passage.id <= last + 1 and passage.start == before.end:
            found[-1] = replace(before, end=passage.end, text=before.text + passage.text)
        else:
            found.append(passage)
        last = passage.id
    return found
