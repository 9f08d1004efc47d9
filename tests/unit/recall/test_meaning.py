"""Sentences by their meaning: the same as comparing one by one, in their place, and embedded once."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.recall.archive import Archive
from infinipot.recall.meaning import SHORT, nearest, sentences
from infinipot.recall.search import coverage, joined, taken

KINDS = ("shoe cobbler mend", "milk lactose drink", "sheep shepherd flock", "boat ferry strait", "rain wind")
TEXT = " ".join(f"On day {day} the rain and the wind came back to the coast." for day in range(120))


class ByKind:
    """A toy that knows which words belong together, and counts what it embeds."""

    def __init__(self) -> None:
        self.embedded = 0

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += len(texts)
        found = [[1e-3, *(sum(word in text for word in kind.split()) for kind in KINDS)] for text in texts]
        return np.array([np.array(one) / math.hypot(*one) for one in found], np.float16)


def archive(*more: str) -> Archive:
    made = Archive()
    made.add("\n\n".join([TEXT, *more, TEXT]), "book.txt")
    return made


@given(st.text(alphabet='aB .!?\n"\u3002', max_size=300))
def test_sentences_are_the_text_and_none_but_a_lone_one_is_short(text: str) -> None:
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert len(spans) == 1 or all(end - start >= SHORT for start, end in spans)


def test_a_title_ends_no_sentence() -> None:
    text = "He often went to see Mr. Pask by the canal. Pask repairs shoes in a cellar."
    assert [text[start:end] for start, end in sentences(text)] == [
        "He often went to see Mr. Pask by the canal. ",
        "Pask repairs shoes in a cellar.",
    ]


def test_the_nearest_as_one_by_one() -> None:
    """The slow obvious twin: every sentence against every wording, by a loop over numbers."""
    facts = "Pask can mend a shoe in his cellar.", "Ottilie is ill from any milk, she says."
    made, toy = archive(*facts), ByKind()
    queries = ["Which man is a cobbler?", "He mends each shoe, even in rain."]
    wanted = [sum(map(float, column)) for column in zip(*toy.vectors(queries), strict=True)]
    slow = []
    for passage in made.passages(range(1, made.last + 1)):
        for start, end in sentences(passage.text):
            (vector,) = toy.vectors([passage.text[start:end]])
            near = sum(float(one) * float(other) for one, other in zip(vector, wanted, strict=True))
            slow.append((-near, passage.id, passage.text[start:end]))
    found = nearest(made, toy, queries, 12)
    assert [one.text for one in found] == [text for _, _, text in sorted(slow, key=lambda one: one[:2])[:12]]
    assert facts[0] in found[0].text


def test_a_sentence_knows_its_place() -> None:
    made = archive("Pask can mend a shoe in his cellar.")
    whole = "".join(made.texts())
    (found,) = nearest(made, ByKind(), ["Which man is a cobbler?"], 1)
    assert whole[found.start : found.end] == found.text
    assert found.place == f"book.txt, characters {found.start:,} to {found.end:,}"


def test_each_passage_is_embedded_once_also_for_a_fork_and_after_more_was_read() -> None:
    made, toy = archive(), ByKind()
    nearest(made, toy, ["rain"], 1)
    once = toy.embedded - 1
    nearest(made.fork(), toy, ["rain"], 1)
    assert toy.embedded == once + 2
    made.add("The shepherd has a flock of sheep.", "later.txt")
    (found,) = nearest(made, toy, ["flock"], 1)
    assert found.source == "later.txt"
    assert toy.embedded == once + 4
    other = archive().fork()
    assert nearest(Archive(), toy, ["flock"], 1) == []
    assert len(nearest(other, toy, ["flock"], 3)) == 3


def test_a_fork_that_went_on_does_not_see_the_other_s_sentences() -> None:
    made, toy = archive(), ByKind()
    twin = made.fork()
    made.add("The shepherd has a flock of sheep.", "a")
    twin.add("The ferry is a boat across the strait.", "b")
    assert [nearest(one, toy, ["sheep boat"], 1)[0].source for one in (made, twin)] == ["a", "b"]


def test_no_file_has_the_vectors(tmp_path: Path) -> None:
    made, toy = archive("Pask can mend a shoe in his cellar."), ByKind()
    made.save(tmp_path / "before")
    nearest(made, toy, ["cobbler"], 1)
    made.save(tmp_path / "after")
    loaded = Archive.load(tmp_path / "after", made.digest, stranger=True)
    assert (tmp_path / "before").stat().st_size == (tmp_path / "after").stat().st_size
    assert nearest(loaded, toy, ["cobbler"], 1) == nearest(made, toy, ["cobbler"], 1)


def test_sentences_are_joined_where_they_are_neighbours_and_left_out_where_their_passage_is_there() -> None:
    made = archive("Pask can mend a shoe in his cellar.")
    near = nearest(made, ByKind(), ["rain"], 400)
    whole = "".join(made.texts())
    (every,) = joined(near[::-1])
    assert every.text == whole
    (first,) = made.passages([1])
    inside = [one for one in near if one.id == 1]
    assert joined([*inside, first]) == [first]
    assert [one.text for one in taken(near, ["mend"], len(near[0].text), len)] == [near[0].text]


@pytest.mark.model
@pytest.mark.timeout(1800)  # a download of 404 MB
@pytest.mark.usefixtures("home")  # pages of the docs, and demos, are of machines without it
def test_the_real_model_of_sentences() -> None:
    import torch

    from infinipot.hf.meaning import pull, sentence_model

    for _ in pull():
        pass
    model = sentence_model(torch.device("cpu"))
    assert model is not None
    asked, *told = model.vectors(
        [
            "Who mends shoes?",
            "Pask repairs boots for the whole town.",
            "The rain went on for days, and then for weeks.",
            "Ah!",
        ]
    ).astype(np.float32)
    assert np.allclose(np.linalg.norm([asked, *told], axis=1), 1, atol=1e-2)
    assert asked @ told[0] > 0.1 + max(asked @ told[1], asked @ told[2])
    again = model.vectors(["Pask repairs boots for the whole town."]).astype(np.float32)[
        0
    ]  # whatever it is padded with
    assert np.allclose(again, told[0], atol=1e-2)
    made = archive("Pask repairs shoes in a cellar by the canal.")
    assert "Pask" in nearest(made, model, ["Which man is a cobbler?"], 1)[0].text


def test_a_full_disk_costs_the_vectors_and_no_answer() -> None:
    made, toy = archive("Pask can mend a shoe in his cellar."), ByKind()
    made._database.connection.execute("PRAGMA temp.max_page_count = 3")
    found = [[one.text for one in nearest(made, toy, ["a cobbler"], 1)] for _ in range(2)]
    assert found[0] == found[1]
    assert "Pask" in found[0][0]


def test_a_sentence_of_a_chosen_passage_takes_nothing_of_the_budget() -> None:
    made = archive("Pask can mend a shoe in his cellar.", "Ottilie is ill from any milk, she says.")
    (whole,) = (one for one in made.passages(range(1, made.last + 1)) if "Pask" in one.text)
    (part,) = nearest(made, ByKind(), ["a cobbler"], 1)
    assert part.text in whole.text
    other = next(iter(made.passages([1])))
    budget = len(whole.text) + len(other.text)
    assert taken([whole, part, whole, other], ["?"], budget, len) == joined([whole, other])


def test_a_turn_that_asked_the_same_does_not_count_as_found() -> None:
    made, question = archive("Pask can mend a shoe in his cellar."), "Which person is a cobbler?"
    before = coverage(made, question)
    made.add_turn("user", question)
    made.add_turn("assistant", "No idea.")
    assert coverage(made, question) == before
