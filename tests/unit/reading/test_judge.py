"""Passages judged by the model: the same as judging each alone, and only as many as are needed."""

import math
from collections.abc import Sequence

import pytest
import torch

from infinipot import Generation, Recipe
from infinipot.core.pot import Pot
from infinipot.reading import judge
from infinipot.reading.judge import ASKED, MOST, NEAR, UNDISTILLED
from infinipot.reading.reader import Reader
from infinipot.recall.passages import Passage
from infinipot.testing import ByteTokenizer, ToyModel

QUESTION = "Who repairs shoes?"


def read(passages: int = 60, **options: object) -> Reader:
    given = {"capacity": 2048, "recall": 1000, **options}
    made = Recipe.named(**given).reader(ToyModel(), ByteTokenizer())  # type: ignore[arg-type]
    made.read(
        f"Day {day}: nothing but rain, {'and wind ' * (day % 7 * 4 + 32)}again.\n\n"
        for day in range(passages)
    )
    return made


def by_hand(made: Reader, text: str, asked: str = ASKED, shown: judge.Shown | None = None) -> float:
    """Judge one passage with a forward of its own."""
    encode, frame = made.tokenizer.encode, made.dialogue_frame
    before = [*frame.opening, *encode(asked.replace("{passage}", text))]
    ids = torch.tensor([[*before, *encode(f" {QUESTION}"), *frame.ask_after]])
    if shown is not None:
        lines = [shown.line.replace("{question}", q).replace("{sentence}", s) for q, s, _ in shown.examples]
        pairs = "".join(f"{line} {one[2]}\n\n" for line, one in zip(lines, shown.examples, strict=True))
        last = shown.line.replace("{question}", QUESTION).replace("{sentence}", text)
        ids = torch.tensor([encode(f"{shown.told}{pairs}{last}")])
    hidden = made.model.forward(ids, made.model.new_pot(ids.shape[1], ids.shape[1] - 1, UNDISTILLED))
    logits = made.model.logits(hidden)[0].float()
    yes = max(logits[-1, encode(word)[0]] for word in ("Yes", " Yes"))
    no = max(logits[-1, encode(word)[0]] for word in ("No", " No"))
    return float(yes - no)


def test_passages_of_any_length_are_judged_together_as_each_alone() -> None:
    made = read()
    assert made.archive is not None
    assert made.archive.last > judge.TOGETHER + 3
    texts = [passage.text.strip() for passage in made.archive.passages(range(1, judge.TOGETHER + 4))]
    assert len({len(text) for text in texts}) > 1
    for text, says in zip(texts, judge.judge(made, QUESTION, texts), strict=True):
        assert says == pytest.approx(by_hand(made, text), abs=1e-4)


def test_after_examples_too_each_is_judged_as_alone_and_the_examples_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, sizes = ToyModel(), list[int]()
    made = Recipe.named(capacity=2048).reader(model, ByteTokenizer())

    def forward(ids: torch.Tensor, pot: Pot) -> torch.Tensor:
        sizes.append(ids.numel())
        return ToyModel.forward(model, ids, pot)

    texts = ["Mr. Pask mends\n boots.", "It rained.", "It rained.", "It rained all day."]
    alone = [by_hand(made, " ".join(text.split()), shown=judge.SHOWN) for text in texts]
    monkeypatch.setattr(model, "forward", forward)
    assert judge.judge(made, QUESTION, texts, judge.SHOWN) == pytest.approx(alone, abs=1e-4)
    assert sizes[0] > 500 > 4 * max(map(len, texts)) + 100 > sum(sizes[1:])
    assert judge.judge(made, QUESTION, texts[1:3], judge.SHOWN) == pytest.approx(alone[1:3], abs=1e-4)
    assert sizes[-1] == 2  # of rows that are the same, their last token is left
    assert judge.judge(made, QUESTION, [], judge.SHOWN) == []


def test_rows_of_one_forward_are_few_where_they_are_long(monkeypatch) -> None:
    made, sizes = read(), []

    def forward(ids, pot):
        sizes.append(ids.numel())
        return ToyModel.forward(made.model, ids, pot)

    monkeypatch.setattr(made.model, "forward", forward)
    judge.judge(made, QUESTION, ["x" * 900] * 5 + ["y" * 30] * 30 + ["z" * 3000])
    assert sum(sizes) > 5 * 900 + 3000
    assert sorted(sizes)[-2] <= judge.BLOCK < sorted(sizes)[-1] < 2 * judge.BLOCK  # one too long goes alone


class Opinions:
    """Stands in for the model: what it says of the passage of each day, alone or after examples."""

    def __init__(self, says: dict[int, float], after: dict[int, float] | None = None) -> None:
        self.says, self.after, self.asked = says, after or says, list[int]()

    def __call__(
        self, _reader: Reader, _question: str, texts: Sequence[str], way: str | judge.Shown = ASKED
    ) -> list[float]:
        days = [int(text.split(":")[0].removeprefix("Day ")) for text in texts]
        self.asked += days
        says = self.says if isinstance(way, str) else self.after
        return [says.get(day, -4.0) for day in days]


def some(made: Reader, *numbers: int) -> list[Passage]:
    assert made.archive is not None
    return list(made.archive.passages(numbers))


def test_only_passages_nearly_as_good_as_the_best_are_read_and_a_few_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = read()
    passages = some(made, *range(1, 20))
    monkeypatch.setattr(judge, "judge", Opinions({7: 3.0, 9: 3.0 - NEAR, 2: 2.9 - NEAR}))
    found, says_it = judge.judged(made, QUESTION, passages)
    assert [one.text[:6] for one in found] == ["Day 7:", "Day 9:"]
    assert says_it
    monkeypatch.setattr(judge, "judge", Opinions(dict.fromkeys(range(20), -0.1)))
    assert judge.judged(made, QUESTION, passages) == (passages[:MOST], False)  # their order breaks a tie
    assert judge.judged(made, QUESTION, []) == ([], False)


def test_sentences_are_judged_in_two_ways_and_the_best_of_them_in_two_more() -> None:
    made = read()
    texts = [f"Mr. Pask mends {number} boots." for number in range(judge.BEST + 3)]

    def says(text: str, ways: Sequence[tuple[str | judge.Shown, float]]) -> float:
        told = [
            by_hand(made, text, way) if isinstance(way, str) else by_hand(made, text, shown=way)
            for way, _ in ways
        ]
        return sum(one * weight for one, (_, weight) in zip(told, ways, strict=True))

    first, found = [says(text, judge.FIRST) for text in texts], judge.judge_sentences(made, QUESTION, texts)
    left = sorted(range(len(texts)), key=first.__getitem__, reverse=True)[: judge.BEST]
    assert [at for at, one in enumerate(found) if one > -math.inf] == sorted(left)
    for at in left:
        assert found[at] == pytest.approx(first[at] + says(texts[at], judge.AGAIN), abs=1e-3)
    assert judge.judge_sentences(made, QUESTION, []) == []


def test_of_sentences_the_sum_of_all_judgements_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = read()
    passages = some(made, *range(1, 20))
    monkeypatch.setattr(judge, "judge", Opinions({7: 3.0, 9: 2.0}, {9: 1.0, 7: -5.0, 3: -2.0}))
    found, _ = judge.judged(made, QUESTION, passages, sentences=True)
    assert [one.text[:6] for one in found] == ["Day 9:"]
    found, _ = judge.judged(made, QUESTION, passages)
    assert [one.text[:6] for one in found] == ["Day 7:", "Day 9:"]


def test_the_best_by_words_are_judged_first_and_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    opinions = Opinions({40: 1.0})
    monkeypatch.setattr(judge, "judge", opinions)
    made = read(judge=1000)
    assert made.archive is not None
    assert [one.text[:7] for one in made.recall("What was on day 31?", 400)] == ["Day 40:"]
    assert opinions.asked[0] == 31
    assert len(opinions.asked) == len({*opinions.asked}) == made.archive.last  # each once
    opinions.asked = []
    read(judge=5).recall("What was on day 31?", 400)
    assert opinions.asked[0] == 31
    assert {*opinions.asked[1:3]} == {30, 32}  # they stand beside it
    assert len(opinions.asked) == 5


def test_a_question_that_shares_no_word_still_finds_what_the_model_judges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = read(judge=1000)
    monkeypatch.setattr(judge, "judge", Opinions({5: 1.0}))
    (passage, *_) = made.recall("Xyzzy?", 400)
    assert passage.text.startswith("Day 5:")


def test_nothing_is_judged_unless_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    opinions = Opinions({})
    monkeypatch.setattr(judge, "judge", opinions)
    read().recall("What about rain and wind?")
    assert not opinions.asked
    read(judge=4).recall("What about rain and wind?")
    assert len(opinions.asked) == 4


def test_beside_passages_the_pot_leaves_room() -> None:
    made = read()
    passages = made.recall("What was on day 31?")
    assert passages
    twin = made.fork()
    before, count = twin.pot.fill, sum(len(passage.text) for passage in passages)
    "".join(twin.answer("What was on day 31?", Generation(4), passages))
    assert twin.pot.fill < made.config.capacity // 8 + count + 400 < before + count
