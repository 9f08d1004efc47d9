"""Recall in a reader: what is found is read into a fork, and the pot stays as it was."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from infinipot import Generation, Recipe
from infinipot.core.config import ALL
from infinipot.errors import ConfigError
from infinipot.reading import recalled
from infinipot.reading.reader import Reader
from infinipot.recall.passages import Passage
from infinipot.testing import ByteTokenizer, ToyModel

FACT = "The zebra is called Zorro."
HAY = "Nothing happened in the harbour that day, and the boats lay still. "
SHORT = Generation(6)


def reader(recipe: str = "infinipot", **options: object) -> Reader:
    given = {"capacity": 2048, "recall": 1000, **options}
    return Recipe.named(recipe, **given).reader(ToyModel(), ByteTokenizer())  # type: ignore[arg-type]


def read(**options: object) -> Reader:
    made = reader(**options)
    made.read([HAY * 60, f"\n\n{FACT}\n\n", HAY * 60])
    return made


def content(made: Reader) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in made.state().tensors.values()]


def test_an_answer_brings_its_passages_and_the_pot_stays_as_it_was() -> None:
    made = read()
    before = content(made)
    answer = made.ask("What is the zebra called?", SHORT)
    assert any(FACT in passage.text for passage in answer.passages)
    assert all(torch.equal(one, other) for one, other in zip(before, content(made), strict=True))
    assert made.ask("What is the zebra called?", SHORT, recall=0).passages == ()


def test_recalled_passages_change_what_is_asked() -> None:
    """The same as asking with the passages written out, by a reader with the question in mind."""
    made = read()
    passages = made.recall("What is the zebra called?")
    twin = made.fork()
    text = "".join(twin.answer("What is the zebra called?", SHORT, passages)).strip()
    assert made.ask("What is the zebra called?", SHORT) == text
    assert twin.pot.fill <= twin.pot.capacity


def test_a_text_that_fits_recalls_nothing() -> None:
    made = reader()
    made.read(HAY * 3 + FACT)
    assert made.recall("What is the zebra called?") == []
    assert made.ask("What is the zebra called?", SHORT).passages == ()


def test_without_an_archive_nothing_is_recalled() -> None:
    made = reader()
    made.archive = None
    made.read(HAY * 120 + FACT)
    assert made.recall("What is the zebra called?") == []
    assert made.fork().archive is None


def test_all_reads_the_whole_text_again_with_the_question_known() -> None:
    made = read()
    before = content(made)
    again = made.ask("What is the zebra called?", SHORT, recall=ALL)
    own = {"catalyst": "question", "units": "sentences"}  # whose pot is read again stays as it is
    known = Recipe.named(capacity=2048, recall=0, **own).reader(
        ToyModel(), ByteTokenizer(), "What is the zebra called?"
    )
    known.read([HAY * 60, f"\n\n{FACT}\n\n", HAY * 60])
    assert again == known.ask("What is the zebra called?", SHORT)
    assert all(torch.equal(one, other) for one, other in zip(before, content(made), strict=True))


def test_a_talk_recalls_its_own_turns_and_the_pot_takes_in_the_talk_alone() -> None:
    made = reader()
    "".join(made.chat(FACT, SHORT))
    for number in range(30):
        "".join(made.chat(f"{HAY} Turn {number} of the talk.", SHORT))
    assert made.pot.cycles
    (passage, *_) = made.recall("What was the zebra called?")
    assert passage.turn == 1
    assert passage.source == "user"
    asked = made.pot.tokens
    "".join(made.chat("What was the zebra called?", SHORT))
    assert made.pot.tokens - asked < len(FACT) + 100  # no passage among them
    turns = made.archive.turns(2) if made.archive else []
    assert turns[0] == "What was the zebra called?"


def test_a_reply_with_passages_leaves_the_talk_as_one_without_does() -> None:
    """The next message meets the same pot, whoever gave the reply."""
    made = read(recall=0, tail="distil")
    twin = made.fork()
    said = list(made.generate(made.turn("What is the zebra called?"), SHORT))
    twin.take_turn("What is the zebra called?", said)
    logits = [one.sequence(one.turn("Go on."), SHORT).logits for one in (made, twin)]
    assert made.pot.fill == twin.pot.fill
    torch.testing.assert_close(*logits)


def test_a_follow_up_is_completed_from_the_talk() -> None:
    made = read()
    "".join(made.chat("Tell me about the zebra.", SHORT))
    assert any(FACT in passage.text for passage in made.recall("And what is its name?"))


def test_clear_forgets_the_archive_too() -> None:
    made = read()
    made.clear()
    made.read(HAY * 120)
    assert not any(FACT in text for text in made.archive.texts()) if made.archive else False


def test_passages_alone_read_nothing_else() -> None:
    made = reader("passages")
    made.read([HAY * 60, f"\n\n{FACT}\n\n", HAY * 60])
    assert made.pot.fill == 0
    assert made.tokens_read == len(HAY) * 120 + len(FACT) + 4
    answer = made.ask("What is the zebra called?", SHORT)
    assert any(FACT in passage.text for passage in answer.passages)


def test_passages_alone_answer_again_and_again() -> None:
    made = reader("passages")
    made.read([HAY * 60, f"\n\n{FACT}\n\n", HAY * 60])
    first = "".join(made.fork().chat("What is the zebra called?", SHORT)).strip()
    assert made.ask("What is the zebra called?", SHORT) == first
    "".join(made.chat("What is the zebra called?", SHORT))
    for number in range(20):
        "".join(made.chat(f"Turn {number}: {HAY}", SHORT))
        assert made.pot.fill <= made.pot.capacity
    assert any(FACT in passage.text for passage in made.recall("What is the zebra called?"))


def test_more_than_half_of_the_pot_is_refused() -> None:
    with pytest.raises(ConfigError, match="half of `capacity`"):
        reader(recall=1025)


def test_a_question_in_words_the_text_never_uses_asks_the_model_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def words(_: Reader, _prompt: str, question: str, *_more: object) -> str:
        asked.append(question)
        return "zebra, stripes"

    monkeypatch.setattr("infinipot.reading.recalled.said", words)
    made = read()
    assert any(FACT in passage.text for passage in made.recall("Who is an equine?"))
    assert asked == ["Who is an equine?"]
    made.recall("What is the zebra called?")
    assert len(asked) == 1


class Horses:
    """A toy model of sentences: a zebra is an equine, and little else is."""

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        near = [any(word in text for word in ("zebra", "equine")) for text in texts]
        return np.array([[one, not one] for one in near], np.float16)


def test_where_words_find_little_sentences_are_found_by_their_meaning_and_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[str] = []

    def judge(_: Reader, _question: str, texts: Sequence[str], _asked: Any = None) -> list[float]:
        judged.extend(texts)
        return [float("zebra" in text) for text in texts]

    monkeypatch.setattr("infinipot.reading.judge.judge", judge)
    for meaning in (6, 0):
        made = read(meaning=meaning)
        made.model.meaning = Horses()  # type: ignore[attr-defined]  # a model may have one
        before = content(made)
        found = made.recall("Which equine?")
        assert any(FACT in passage.text for passage in found) == (meaning > 0)
        assert len(judged) == 4 * meaning  # in four ways
        assert all(len(passage.text) < 4 * len(HAY) for passage in found)
        assert all(torch.equal(one, other) for one, other in zip(before, content(made), strict=True))
        judged.clear()
    made = read(meaning=6)
    made.model.meaning = Horses()  # type: ignore[attr-defined]  # a model may have one
    made.archive.add("The harbour master counts seven rusty cranes.") if made.archive else None
    made.recall("Which harbour master counts rusty cranes?")
    assert not judged  # three telling words are trusted
    made.recall("Which rusty cranes?")
    assert judged  # two are not


class OnCard:
    """What a card may judge, and what the model then says of passages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: float) -> None:
        self.judged, self.says = list[str](), says
        monkeypatch.setattr(recalled, "affordable", lambda _: 8)
        monkeypatch.setattr("infinipot.reading.judge.judge", self)

    def __call__(self, _: Reader, _question: str, texts: Sequence[str], _asked: Any = None) -> list[float]:
        self.judged += texts
        return [self.says if "zebra" in text else self.says - 5 for text in texts]


DOUBTED = "What is the striped zebra called nowadays?"  # the text has two of four telling words


def asked(made: Reader, question: str) -> int:
    """How many entries a pot has when a question is asked of it, after what was recalled for it."""
    twin = made.fork()
    ids = recalled.prompt(twin, question, made.recall(question))
    return twin.pot.fill + len(ids)


def test_on_a_card_passages_are_judged_where_words_find_little(monkeypatch: pytest.MonkeyPatch) -> None:
    card = OnCard(monkeypatch, says=1.0)
    made = read()
    found = made.recall(DOUBTED)
    assert len(card.judged) == 8
    assert len(found) == 1
    assert FACT in found[0].text
    assert read(judge=0).recall(DOUBTED) != found  # by words alone
    card.judged.clear()
    made.archive.add("The harbour master counts seven rusty cranes.") if made.archive else None
    made.recall("Which harbour master counts rusty cranes?")
    assert not card.judged  # three telling words are trusted
    made.model.meaning = Horses()  # type: ignore[attr-defined]  # a model may have one
    made.recall("Which equine?")
    assert len(card.judged) > 2 * 8  # sentences, in several ways


def test_where_passages_say_the_answer_the_pot_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    OnCard(monkeypatch, says=0.0)
    made = read()
    before = content(made)
    assert isinstance(made.recall(DOUBTED), recalled.Enough)
    alone = asked(made, DOUBTED)
    made.ask(DOUBTED, SHORT)
    assert all(torch.equal(one, other) for one, other in zip(before, content(made), strict=True))
    short = made.recall("Which zebra?")  # may be about the whole text
    assert short
    assert not isinstance(short, recalled.Enough)
    OnCard(monkeypatch, says=-0.1)  # the model doubts them
    assert made.recall(DOUBTED)
    assert not isinstance(made.recall(DOUBTED), recalled.Enough)
    assert asked(made, DOUBTED) > alone


def test_passages_that_are_cut_or_only_ask_the_same_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    OnCard(monkeypatch, says=1.0)
    made = read(capacity=640, recall=40)
    assert made.recall(DOUBTED)
    assert not isinstance(made.recall(DOUBTED), recalled.Enough)  # the beginning of a passage
    made = read()
    heading = "\n\nThe zebra nowadays.\n\n"
    monkeypatch.setattr(recalled, "best", lambda *_: [Passage(99, "", None, 0, len(heading), 0, heading)])
    assert made.recall("What is the striped zebra called nowadays?") == []
    assert not isinstance(made.recall(DOUBTED), recalled.Enough)


def test_what_was_read_stays_counted_where_the_pot_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    OnCard(monkeypatch, says=1.0)
    made = read()
    before = made.tokens_read, made.pot.cycles, made.progress().seconds
    recalled.prompt(made, DOUBTED, made.recall(DOUBTED))
    assert made.pot.fill == 0
    assert (made.tokens_read, made.pot.cycles, made.progress().seconds) == before


def test_a_talk_and_a_text_that_was_read_for_the_question_are_not_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    OnCard(monkeypatch, says=1.0)
    known = Recipe.named(capacity=2048, recall=1000, catalyst="question")
    made = known.reader(ToyModel(), ByteTokenizer(), question=DOUBTED)
    made.read([HAY * 60, f"\n\n{FACT}\n\n", HAY * 60])
    assert made.recall(DOUBTED)
    assert not isinstance(made.recall(DOUBTED), recalled.Enough)
    other = "Why is a striped zebra called thus nowadays?"
    assert isinstance(made.recall(other), recalled.Enough)  # it was read for another question
    talk = read()
    list(talk.chat("Hello.", SHORT))
    assert talk.recall(DOUBTED)
    assert not isinstance(talk.recall(DOUBTED), recalled.Enough)


def test_keywords_leave_the_pot_as_it_was() -> None:
    made = read()
    before = content(made)
    made.recall("Who is an equine?")
    assert all(torch.equal(one, other) for one, other in zip(before, content(made), strict=True))
