"""The analyses on data made by hand, where the right answer can be counted."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot.inspect import measures
from infinipot.reading.recording import Record


def record(dropped: list[list[list[int]]], tokens: list[int], pieces: tuple[str, ...] = ()) -> Record:
    found = np.array(dropped, np.int32)
    count = found.shape[-1]
    return Record(
        tuple(range(len(found))),
        np.array(tokens, np.int32),
        found,
        np.arange(count).astype(np.float16),
        (None,) * len(tokens),
        np.arange(count, dtype=np.int32),
        pieces or ("x",) * count,
        {},
    )


ONE = record([[[1, 0, 0, 2, 0, 0], [0, 1, 2, 0, 0, 0]]], [3, 6])  # one layer, two heads, six tokens
OTHER = record([[[1, 0, 2, 0, 0, 0], [0, 1, 0, 2, 0, 0]]], [3, 6])


def test_held_follows_the_cycles() -> None:
    assert ONE.held(1)[0].tolist() == [[False, True, True, *[False] * 3], [True, False, True, *[False] * 3]]
    assert ONE.held(2)[0, 0].tolist() == [False, True, True, False, True, True]
    assert (ONE.held() == ONE.held(2)).all()


def test_top_takes_the_highest_and_of_equal_ones_the_earliest() -> None:
    scores = np.array([[[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]])
    found = measures.top(scores, np.array([[2, 1]]))
    assert found[0].tolist() == [[False, True, True, False], [True, False, False, False]]


def test_hit_rate_is_the_share_of_the_best_tokens_that_are_held() -> None:
    held = np.array([[[True, True, False, False], [False, False, True, True]]])
    scores = np.array([[[9.0, 1.0, 8.0, 0.0], [0.0, 1.0, 5.0, 6.0]]])
    assert measures.hit_rate(held, scores).tolist() == [[0.5, 1.0]]
    assert measures.hit_rate(np.zeros_like(held), scores).tolist() == [[0.0, 0.0]]


def test_retention_counts_each_part_of_the_text() -> None:
    held = np.array([[[True, True, False, True, False, False, False]]])
    assert measures.retention(held, 2)[0, 0].tolist() == pytest.approx([2 / 3, 1 / 4])
    assert measures.retention(held, 2, tokens=5)[0, 0].tolist() == pytest.approx([2 / 3, 1 / 2])
    assert measures.retention(held, 100)[0, 0].tolist() == [1, 1, 0, 1, 0, 0, 0]


def test_overlap_is_what_two_pots_have_in_common() -> None:
    assert measures.overlap(ONE.held(), OTHER.held()).tolist() == [[0.75, 0.75]]
    tokens, found = measures.overlaps(ONE, OTHER)
    assert tokens == [3, 6]
    assert found[:, 0].tolist() == [[1.0, 1.0], [0.75, 0.75]]
    tokens, found = measures.overlaps(ONE, record([[[0] * 6] * 2], [4]))
    assert (tokens, found.shape) == ([], (0, 1, 2)), "cycles at other tokens do not compare"


def test_novelty_is_summed_over_what_is_held_and_bounded_by_the_most_there_was() -> None:
    novelty = np.array([5.0, 1.0, 2.0, 0.5, 4.0, np.nan])
    sums = measures.held_novelty(ONE, novelty, [1, None])
    assert sums[:, 0].tolist() == [[3.0, 7.0], [7.0, 9.5]]
    assert measures.global_novelty(novelty, 3, 2) == 7.0
    assert measures.global_novelty(novelty, 6, 2) == 9.0
    assert measures.global_novelty(novelty, 6, 100) == 12.5


def test_moments_are_few_and_end_with_the_end() -> None:
    long = record([[[0] * 6]], list(range(1, 6)))
    assert measures.cycles(long, 3) == [1, 5, None]
    assert measures.cycles(ONE) == [1, None], "the last cycle came when all was read: that is the end"
    assert measures.cycles(record([[[0, 0]]], [])) == [None]
    assert measures.spread(10, 4) == [0, 3, 6, 9]


PIECES = ("The", " port", "er", " spoke", ".", "\n", "日", "本", " Then", "")


def test_words_end_before_a_space() -> None:
    starts = measures.words(PIECES)
    told = ["The", " porter", " spoke.", "\n", "日", "本", " Then"]
    assert measures.texts(PIECES, starts) == told
    assert measures.words(()).tolist() == []
    assert len(measures.words(("a",) * 100)) == 3


def test_a_word_s_share_is_the_mean_over_its_tokens_and_all_heads() -> None:
    held = np.zeros((1, 2, 10), bool)
    held[0, :, 1] = True
    held[0, 0, 3] = True
    found = measures.shares(held, measures.words(PIECES))
    assert found.tolist() == [0, 0.5, 0.25, 0, 0, 0, 0]
    novel = measures.novelties(np.arange(10.0), measures.words(PIECES))
    assert novel.tolist() == [0, 2, 4, 5, 6, 7, 9]
