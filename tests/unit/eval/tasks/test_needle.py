"""Needles: where they stand, how long the hay is, and what counts as found."""

from __future__ import annotations

import lzma
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.needle import NEEDLES, PASSKEY, SANDWICH, Hay, Needle, NeedleTask, boundary
from infinipot.eval.tasks.passkey import NOISE, OPENING, QUESTION, PasskeyTask, first_number, passkey
from infinipot.eval.tasks.task import Example


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def essays(tmp_path: Path) -> Path:
    """Return a folder of five essays of 60 sentences, one of them packed, and a file that is none."""
    for essay in "abcde":
        text = " ".join(f"Essay {essay} says thing number {place} to you." for place in range(60))
        (tmp_path / f"{essay}.txt").write_text(text)
    (tmp_path / "e.txt").unlink()
    (tmp_path / "e.txt.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "notes.md").write_text("not hay")
    return tmp_path


def made(task: NeedleTask) -> list[Example]:
    return list(task.examples(words))


def test_the_passkey_hides_in_essays_between_two_sentences(essays: Path) -> None:
    task = NeedleTask(essays, lengths=(400,), depths=(0.0, 0.3, 0.5, 1.0), trials=3)
    found = made(task)
    assert len(found) == 12
    for example in found:
        key = example.answers[0]
        before, after = example.text.split(f"\nThe pass key is {key}. Remember it. {key} is the pass key.")
        assert before.startswith(OPENING)
        assert re.search(r"[.!?]$", before)
        assert re.match(r"\nEssay|$", after)
        assert 380 <= words(example.text) + words(example.question) <= 400
        assert abs(float(example.facts["placed"]) - float(example.facts["depth"])) < 0.05
        assert example.question == QUESTION
        assert example.facts["hay_passes"] == pytest.approx(400 / 2400, abs=0.03)
        assert task.score(f" {key}. Then 7", example) == 1
        assert task.score(f"7 {key}", example) == 0
        assert task.score("none", example) == 0


def test_each_trial_begins_at_another_essay_and_depths_share_their_hay(essays: Path) -> None:
    found = made(NeedleTask(essays, lengths=(300,), depths=(0.5, 1.0), trials=5))
    starts = [example.text.split("\n")[1].split()[1] for example in found]
    assert sorted(starts[:5]) == list("abcde")
    assert starts[:5] == starts[5:]
    others = made(NeedleTask(essays, lengths=(300,), depths=(0.5,), trials=5, seed=3))
    assert [example.text.split("\n")[1].split()[1] for example in others] != starts[:5]


def test_hay_that_is_too_short_repeats_and_says_so(essays: Path) -> None:
    (example,) = made(NeedleTask(essays, lengths=(6000,), depths=(0.5,), trials=1))
    assert 5900 <= words(example.text) + words(example.question) <= 6000
    assert example.facts["hay_passes"] == pytest.approx(6000 / 2400, abs=0.1)
    assert example.text.count("Essay a says thing number 3 to you.") in (2, 3)


def test_noise_is_the_hay_without_a_folder() -> None:
    (example,) = made(NeedleTask(lengths=(500,), depths=(0.5,), trials=1))
    assert example.facts["hay"] == "noise"
    hay = example.text.replace(OPENING, "")
    assert set(re.split(r"(?<=\.)\s+", hay.strip())) >= set(re.split(r"(?<=\.)\s+", NOISE))


def test_another_needle_counts_where_its_answer_is_contained(essays: Path) -> None:
    task = NeedleTask(essays, SANDWICH, lengths=(300,), depths=(0.0, 0.5), trials=1)
    first, second = made(task)
    assert first.text.startswith(SANDWICH.statement)
    assert f"\n{SANDWICH.statement}\n" in second.text
    assert task.score("EAT a sandwich and sit in Dolores Park on a sunny day!", second) == 1
    assert task.score("Eat a sandwich.", second) == 0
    assert {"passkey": PASSKEY, "sandwich": SANDWICH} == NEEDLES


def test_a_needle_that_cannot_work_says_why() -> None:
    for parts in (("", "q", "a"), ("s", " ", "a"), ("s", "q", "")):
        with pytest.raises(ConfigError, match="statement, a question and an answer"):
            Needle(*parts)
    with pytest.raises(ConfigError, match="or in neither"):
        Needle("the key is {key}", "q", "a")
    with pytest.raises(ConfigError, match="alone"):
        Needle("the key is {key}", "q", "it is {key}")
    assert Needle("code {key}", "what code {key}?", "{key}").with_key("5") == Needle(
        "code 5", "what code 5?", "5"
    )


def test_hay_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        NeedleTask(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no \.txt file"):
        NeedleTask(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        made(NeedleTask(tmp_path))
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(InputError, match="no text"):
        made(NeedleTask(tmp_path))
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"some text")[:-8])
    with pytest.raises(InputError, match="cannot read"):
        made(NeedleTask(tmp_path))


def test_one_file_is_hay_too(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was a dark night. " * 50)
    (example,) = made(NeedleTask(tmp_path / "book.txt", lengths=(100,), depths=(0.5,), trials=1))
    assert example.facts["hay"] == "book.txt"


@pytest.mark.parametrize(
    ("text", "at", "wanted"),
    [
        ("One. Two. Three.", 0, 0),
        ("One. Two. Three.", 4, 4),
        ("One. Two. Three.", 8, 4),
        ("One. Two. Three.", 9, 9),
        ("One. Two. Three.", 16, 16),
        ('He said "Go!" Then left.', 15, 13),
        ("Version 1.5 is out now", 13, 11),  # a dot within a word ends nothing: a word's end then
        ("天气很好。我们走吧。", 7, 5),
        ("A heading\n\nSome words", 15, 10),
        ("nospace", 3, 0),
    ],
)
def test_boundaries(text: str, at: int, wanted: int) -> None:
    assert boundary(text, at) == wanted


@given(st.text(alphabet="ab. !\n。", max_size=80), st.integers(0, 80))
def test_a_boundary_is_never_beyond(text: str, at: int) -> None:
    assert 0 <= boundary(text, at) <= max(0, min(at, len(text)))


@given(st.integers(1, 3000), st.integers(0, 3))
def test_hay_never_has_many_more_tokens_than_wanted(tokens: int, trial: int) -> None:
    assert words(Hay().bale(words, tokens, trial)[0]) <= tokens + 1


def test_hay_of_nothing() -> None:
    assert Hay().bale(words, 0, 0)[0] == ""
    (example,) = made(NeedleTask(lengths=(1,), depths=(0.5,), trials=1))
    assert example.answers[0] in example.text


def test_the_passkey_task_gives_the_examples_of_the_benchmark() -> None:
    task = PasskeyTask(lengths=(300, 500), depths=(0.1, 0.9), trials=2, seed=7)
    found = list(task.examples(words))
    assert [example.id for example in found] == [
        f"{length}-{depth}-{trial}" for length in (300, 500) for depth in (0.1, 0.9) for trial in (0, 1)
    ]
    for example in found:
        length, depth, trial = (example.facts[name] for name in ("length", "depth", "trial"))
        seed = 7 + 1000 * int(trial) + int(100 * float(depth)) + int(length)
        wanted = passkey(words, int(length), float(depth), seed)
        assert (example.text, example.question, example.answers) == (
            wanted.text,
            wanted.question,
            wanted.answers,
        )
        (key,) = wanted.answers
        for said in (key, f"{key}1", "no"):
            assert task.score(said, example) == first_number(said, key)
    assert random.Random(7 + 10 + 300).randint(1, 50000) == int(found[0].answers[0])


@pytest.mark.parametrize("made_by", [PasskeyTask, NeedleTask])
def test_trials_that_cannot_be_made_say_why(made_by: type[PasskeyTask] | type[NeedleTask]) -> None:
    wrong: dict[str, dict[str, object]] = {
        "`lengths` is 0": {"lengths": (0,)},
        "`lengths` is empty": {"lengths": ()},
        "`depths` is 1.5": {"depths": (1.5,)},
        "`trials` is 0": {"trials": 0},
        "`depths` has a value twice": {"depths": (0.1, 0.1)},
        "`lengths` has a value twice": {"lengths": (5, 5)},
    }
    for message, options in wrong.items():
        with pytest.raises(ConfigError, match=message):
            made_by(**options)  # type: ignore[arg-type]


@given(st.text(max_size=40))
def test_scores_are_0_or_1(prediction: str) -> None:
    for task in (NeedleTask(), NeedleTask(needle=SANDWICH), PasskeyTask()):
        assert task.score(prediction, Example("1", "t", "q", ("17",), 1)) in (0, 1)
        assert task.score("17", Example("1", "t", "q", ("17",), 1)) == 1
