"""The loop on a toy model: nothing lost, nothing above capacity, answers without end."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot.core.config import PotConfig
from infinipot.core.pot import Pot
from infinipot.errors import ConfigError, InputError
from infinipot.policies.infinipot import InfiniPot
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

MODEL = ToyModel()


class Spy(ToyModel):
    """Remembers every token of the text, and that no forward overfilled the pot."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, tokens: torch.Tensor, pot: Pot) -> torch.Tensor:
        hidden = super().forward(tokens, pot)
        self.seen += tokens[0, : tokens.shape[1] - pot.catalyst_length].tolist()
        assert pot.fill <= pot.capacity
        return hidden


class Endless(ByteTokenizer):
    """Knows no stop token."""

    stop_ids = frozenset()


def reader(capacity: int = 64, keep: int | None = None, share: float = 0.5, **options) -> Reader:
    options.setdefault("catalyst", "a summary")
    config = PotConfig(capacity, keep)
    return Reader(MODEL, ByteTokenizer(), InfiniPot(novelty=share), config, **options)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.text(max_size=90), max_size=6),
    capacity=st.integers(30, 80),
    format=st.sampled_from(["plain", "chat"]),
)
def test_every_token_is_read_once_and_capacity_holds(pieces: list[str], capacity: int, format: str) -> None:
    potted = reader(capacity, format=format)
    potted.session.model = Spy()
    seen, steps = potted.model.seen, 0
    for piece in pieces:
        for step in potted.reading(piece):
            steps += 1
            assert step.fill <= capacity
    wanted = list("".join(pieces).encode())
    assert seen[len(seen) - len(wanted) :] == wanted
    assert seen[: len(seen) - len(wanted)] == list(potted.frame.opening) * (steps > 0)
    assert potted.tokens_read == len(wanted)


def test_reading_in_pieces_is_reading_at_once() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    whole, parts = reader(), reader()
    whole.read(text)
    parts.read(text[i : i + 7] for i in range(0, len(text), 7))
    assert whole.progress().cycles == parts.progress().cycles > 5
    for a, b in zip(whole.pot.pot_layers, parts.pot.pot_layers, strict=True):
        assert torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill])


def test_text_that_fits_beside_the_catalyst_is_never_distilled() -> None:
    potted = reader(64)
    potted.read("x" * (64 - len(potted.session.catalyst) - len(potted.frame.opening)))
    assert potted.pot.cycles == 0
    potted.read("y")
    assert potted.pot.cycles == 1


def test_an_answer_may_be_longer_than_the_pot() -> None:
    potted = reader(64)
    potted.read("once upon a time " * 10)
    potted.tokenizer = Endless()
    answer = list(potted.generate(potted.closing("go on"), Generation(max_new_tokens=300)))
    assert len(answer) == 300
    assert potted.pot.cycles > 8
    recent = potted.pot.pot_layers[0].source[0, :, potted.pot.fill - 4 : potted.pot.fill]
    assert (recent == torch.arange(potted.pot.tokens - 4, potted.pot.tokens)).all()


def test_nothing_of_a_long_question_is_lost() -> None:
    potted = reader(64, keep=40)
    potted.read("some words " * 12)
    before = potted.pot.tokens
    prompt = potted.closing("q" * 36)  # 64 - 40 would not hold it: the pot is distilled harder
    list(potted.generate(prompt, Generation(max_new_tokens=1)))
    layer = potted.pot.pot_layers[0]
    assert layer.source[0, 0, layer.fill - len(prompt) : layer.fill].tolist() == list(
        range(before, before + len(prompt))
    )
    with pytest.raises(InputError, match=r"too long for a pot of 64.*`capacity` \d+"):
        list(reader(64).answer("q" * 64))


def test_questions_do_not_see_each_other_but_turns_do() -> None:
    potted = reader(256)
    potted.read("Alice has a cat. " * 3)
    first = potted.ask("Who?", Generation(12))
    assert potted.ask("What?", Generation(12)) is not None
    assert potted.ask("Who?", Generation(12)) == first
    assert potted.pot.tokens == potted.tokens_read + len(potted.frame.opening)
    replies = ["".join(potted.chat("Who?", Generation(5))) for _ in range(3)]
    assert len(replies) == 3
    assert potted.pot.tokens > potted.tokens_read + 15


def test_turns_write_every_token_the_user_saw() -> None:
    potted = reader(256, format="chat")
    potted.tokenizer = Endless()
    list(potted.chat("hello", Generation(6)))
    list(potted.chat("again", Generation(6)))
    frame, tokenizer = potted.frame, potted.tokenizer
    first = [*frame.opening, *tokenizer.encode("hello"), *frame.ask_after]
    second = [*frame.turn_before, *tokenizer.encode("again"), *frame.turn_after]
    assert potted.pot.tokens == len(first) + 6 + len(second) + 5  # the last reply's last token is pending


def test_text_after_a_reply_opens_a_new_turn() -> None:
    potted = reader(256, format="chat")
    potted.tokenizer = Endless()
    list(potted.chat("hello", Generation(3)))
    before, read = potted.pot.tokens, potted.tokens_read
    potted.read("more")
    frame = potted.frame
    assert potted.pot.tokens == before + 1 + len(frame.turn_before) + 4  # 1: the reply's last token
    assert potted.tokens_read == read + 4
    assert potted.turn("so?") == potted.closing("so?")
    assert reader(format="chat").turn("so?") == [*b"so?", *frame.ask_after]


def test_reading_nothing_from_a_full_pot_ends() -> None:
    potted = reader(64)
    potted.read("x" * (potted.session.space - len(potted.frame.opening)))
    assert potted.session.space == 0
    potted.read("")
    assert potted.pot.cycles == 0


@pytest.mark.parametrize(
    "bad", [{"temperature": float("nan")}, {"temperature": -1}, {"seed": -1}, {"max_new_tokens": 0}]
)
def test_generation_is_checked_where_it_is_made(bad: dict) -> None:
    with pytest.raises(ConfigError, match=f"`{next(iter(bad))}` is "):
        Generation(**bad)


def test_a_pot_filled_to_the_brim_by_a_final_answer_says_so() -> None:
    potted = reader(64)
    potted.read("x" * 20)
    list(potted.answer("y", Generation(max_new_tokens=64 - potted.pot.fill - 2)))
    assert potted.pot.cycles == 0
    with pytest.raises(InputError, match="fork"):
        potted.read("more")


def test_a_message_too_long_costs_nothing() -> None:
    potted = reader(96, format="chat")
    with pytest.raises(InputError, match="too long"):
        list(potted.chat("q" * 200))
    assert potted.pot.tokens == 0
    list(potted.chat("hello", Generation(2)))
    assert potted.pot.tokens >= len([*potted.frame.opening, *b"hello", *potted.frame.ask_after])


def test_the_last_chunk_is_settled_before_a_question_unless_told_otherwise() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 9
    for tail, more in (("distil", 1), ("raw", 0)):
        potted = reader(64)
        potted.session.config = replace(potted.config, tail=tail)
        potted.read(text)
        assert potted.pot.fill > potted.config.kept
        cycles = potted.pot.cycles
        list(potted.generate(potted.closing("so"), Generation(1), final=True))
        assert potted.pot.cycles == cycles + more
    short = reader(64)
    short.read("fits")
    list(short.generate(short.closing("so"), Generation(1), final=True))
    assert short.pot.cycles == 0


def fitting(capacity: int = 64, **options) -> Reader:
    potted = reader(capacity, **options)
    potted.session.config = replace(potted.config, tail="fill")
    return potted


@pytest.mark.parametrize("length", [*range(20, 70), *range(70, 260, 7)])
def test_where_a_text_ends_as_much_stays_as_fits(length: int) -> None:
    text = ("The quick brown fox jumps over the lazy dog. " * 9)[:length]
    potted = fitting()
    potted.read(text)
    whole, spare = len(potted.frame.opening) + length, 1 + len(potted.session.catalyst)
    assert potted.pot.fill == min(whole, 65 - spare)
    prompt, most = potted.closing("so"), 9
    potted.begin_answer(prompt, most, final=True)
    room = 64 - len(prompt) - most
    assert potted.pot.fill - len(prompt) == (whole if whole <= room else max(32, room - spare))
    source = potted.pot.pot_layers[0].source[0, :, : potted.pot.fill]
    assert (source.diff() > 0).all()


def test_one_question_after_the_other_uses_up_a_fitted_pot_no_sooner() -> None:
    potted = fitting(96)
    potted.read("The quick brown fox jumps over the lazy dog. " * 6)
    for question in ("so?", "and then?", "why?"):
        list(potted.answer(question, Generation(6)))
        assert potted.pot.fill <= 96


def test_a_fitted_pot_is_asked_beside_a_longer_catalyst() -> None:
    potted = fitting(96)
    potted.read("The quick brown fox jumps over the lazy dog. " * 6)
    longer = fitting(96, catalyst="a summary of everything")
    longer.restore(potted.state())
    list(longer.answer("so?", Generation(2)))
    assert longer.pot.fill > 96 - 2 * len(longer.session.catalyst)


@settings(max_examples=30, deadline=None)
@given(text=st.text(min_size=60, max_size=400), cuts=st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_what_stays_does_not_depend_on_how_a_text_comes(text: str, cuts: list[int]) -> None:
    whole, pieces = fitting(), fitting()
    whole.read(text)
    parts, rest = [], text
    for cut in cuts:
        parts, rest = [*parts, rest[:cut]], rest[cut:]
    pieces.read([*parts, rest])
    assert whole.pot.cycles == pieces.pot.cycles
    for a, b in zip(whole.pot.pot_layers, pieces.pot.pot_layers, strict=True):
        assert torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill])


def test_a_text_in_many_short_pieces_is_not_distilled_with_each() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    usual, potted = reader(128), fitting(128)
    for start in range(0, len(text), 3):
        usual.read(text[start : start + 3])
        potted.read(text[start : start + 3])
        assert potted.pot.fill <= 128
    assert usual.pot.cycles <= potted.pot.cycles <= 2 * usual.pot.cycles + 1


def test_text_after_a_text_that_was_fitted_goes_on_as_usual() -> None:
    potted = fitting()
    potted.read("The quick brown fox jumps over the lazy dog. " * 3)
    assert potted.pot.fill > potted.config.kept
    again = fitting()
    again.restore(potted.state())
    for one in (potted, again):
        one.read("It barks. ")
    assert potted.pot.fill <= potted.config.kept + len("It barks. ")  # not fitted twice on end
    for one in (potted, again):
        one.read("It barks. " * 30)
    assert potted.pot.cycles == again.pot.cycles
    for a, b in zip(potted.pot.pot_layers, again.pot.pot_layers, strict=True):
        assert torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill])


def test_a_talk_after_a_text_has_room_for_its_answers() -> None:
    potted = fitting(96)
    potted.read("The quick brown fox jumps over the lazy dog. " * 6)
    fill, cycles = potted.pot.fill, potted.pot.cycles
    list(potted.chat("so?", Generation(4)))
    assert potted.pot.cycles == cycles + 1  # once before the message, not again while answering
    assert fill > potted.pot.fill >= 96 - 4 - len(potted.session.catalyst) - 1
    for _ in range(12):
        list(potted.chat("and then?", Generation(9)))
        assert potted.pot.fill <= 96


@pytest.mark.parametrize("format", ["plain", "chat"])
def test_a_cleared_reader_is_as_new(format: str) -> None:
    used, fresh = reader(64, format=format), reader(64, format=format)
    used.read("something else entirely " * 8)
    list(used.chat("so?", Generation(4)))
    used.clear()
    for one in (used, fresh):
        one.read("The quick brown fox. " * 8)
    assert used.progress().tokens_read == fresh.progress().tokens_read
    assert used.ask("what?", Generation(8)) == fresh.ask("what?", Generation(8))
    for a, b in zip(used.pot.pot_layers, fresh.pot.pot_layers, strict=True):
        assert torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill])


def test_forks_read_on_alone() -> None:
    potted = reader(64)
    potted.read("shared past " * 8)
    twin = potted.fork()
    twin.read("a different future " * 8)
    assert (potted.tokens_read, twin.tokens_read) == (96, 96 + 152)
    assert potted.pot.cycles < twin.pot.cycles


def test_sampling_is_repeatable_under_a_seed_and_varies_without() -> None:
    potted = reader(128)
    potted.read("abc " * 10)
    warm = Generation(max_new_tokens=20, temperature=1.5, seed=5)
    assert potted.ask("go", warm) == potted.ask("go", warm)
    other = Generation(max_new_tokens=20, temperature=1.5, seed=6)
    assert potted.ask("go", warm) != potted.ask("go", other)


def test_sizes_that_cannot_work_are_refused_before_reading() -> None:
    with pytest.raises(ConfigError, match="too small for 20 kept entries"):
        reader(24, keep=20)


def test_without_catalyst_or_novelty_nothing_is_computed_for_them() -> None:
    assert reader(share=1.0).session.catalyst == []
    potted = reader(share=0.0)
    potted.read("some text to read " * 9)
    assert potted.pot.cycles
    assert potted.pot.pot_layers[0].novelty.abs().sum() == 0


def test_control_strings_in_a_text_stay_text() -> None:
    potted = reader(format="chat")
    ids = potted.tokenizer.encode("<|im_end|>\x00")
    assert not set(ids) & {*potted.frame.opening, *potted.frame.ask_after}
