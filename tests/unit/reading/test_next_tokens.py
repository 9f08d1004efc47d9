"""Tokens of a step are chosen together as they would be one by one: grammars, seeds, scores among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infinipot.reading import decode as decoding
from infinipot.reading.decode import DecodeBatch
from infinipot.reading.grammar import Grammar
from infinipot.reading.next_tokens import NextTokens
from infinipot.reading.sampling import Generation, sample_rows
from infinipot.reading.sequence import Sequence
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

MODEL = ToyModel()
WANTED = [
    Generation(8),
    Generation(8, temperature=0.7, seed=1),
    Generation(8, temperature=1.3, seed=2, top_p=0.4),
    Generation(8, temperature=0.9, seed=3, top_p=0.8, logprobs=3),
    Generation(8, logprobs=0),
    Generation(8, logprobs=5),
]


def slow_sample(logits: torch.Tensor, wanted: Generation, source: torch.Generator) -> torch.Tensor:
    """One row's token as torch draws it, from the likeliest tokens that have `top_p` together."""
    if not wanted.temperature:
        return logits.argmax(-1)
    shares = torch.softmax(logits / wanted.temperature, -1)
    if wanted.top_p < 1:
        ordered, tokens = shares.sort(-1, descending=True)
        ordered[ordered.cumsum(-1) - ordered >= wanted.top_p] = 0
        shares = torch.zeros_like(shares).scatter(-1, tokens, ordered)
    return torch.multinomial(shares, 1, generator=source)[:, 0]


@pytest.mark.parametrize("rows", [[0], [1], [2], [0, 4], [1, 2], [1, 3], [0, 1, 2, 3], [3, 0, 2]])
def test_rows_are_drawn_as_one_by_one(rows: list[int]) -> None:
    wanted, device = [WANTED[row] for row in rows], torch.device("cpu")
    logits = torch.randn(len(rows), 300, generator=torch.Generator().manual_seed(5)) * 3
    sources = [one.generator(device) for one in wanted]
    for _ in range(5):
        twins = [source.clone_state() for source in sources]
        alone = [slow_sample(logits[row : row + 1], one, twins[row]) for row, one in enumerate(wanted)]
        found = sample_rows(
            logits, wanted, lambda row: torch.empty(1, 300).exponential_(1, generator=sources[row])
        )
        assert torch.equal(found, torch.cat(alone))


def test_numbers_that_are_none_end_nobody_s_draw() -> None:
    logits = torch.randn(2, 50)
    logits[0] = float("nan")
    hot = Generation(8, temperature=1.0)
    found = sample_rows(logits, [hot, hot], lambda _: torch.ones(1, 50))
    assert found[1] == logits[1].argmax()


def sequences(wanted: list[Generation], **more: int) -> list[Sequence]:
    recipe = replace(Recipe.named(capacity=128), catalyst="a b")
    made = [recipe.reader(MODEL, ByteTokenizer()) for _ in wanted]
    for n, reader in enumerate(made):
        reader.read(f"The text of reader {n}. " * (n + 1))
    return [reader.sequence([65, 66], one, **more) for reader, one in zip(made, wanted, strict=True)]


def said(batch: DecodeBatch) -> dict[int, list]:
    found: dict[Sequence, list] = {one: [] for one in batch.sequences}
    names = {one: index for index, one in enumerate(batch.sequences)}
    while batch.sequences:
        for one, token in batch.step():
            if token is not None:
                found[one].append((token, one.score))
    return {names[one]: told for one, told in found.items()}


def test_scores_and_forms_stay_in_the_batch_and_are_those_of_one_by_one() -> None:
    form = Grammar.json({"enum": ["aye", "no"]})
    wanted = [*WANTED, Generation(8, grammar=form), Generation(8, temperature=1.0, seed=4, grammar=form)]
    together = said(DecodeBatch(sequences(wanted)))
    for index in range(len(wanted)):
        alone = said(DecodeBatch([sequences(wanted)[index]]))[0]
        assert [token for token, _ in together[index]] == [token for token, _ in alone], index
        for (token, score), (_, twin) in zip(together[index], alone, strict=True):
            assert (score is None) == (wanted[index].logprobs is None)
            if score is not None and twin is not None:
                assert score.token == token
                assert score.logprob == pytest.approx(twin.logprob, abs=1e-4)
                assert [one for one, _ in score.likeliest] == [one for one, _ in twin.likeliest]
                assert len(score.likeliest) == wanted[index].logprobs
    assert bytes(token for token, _ in together[6]) in (b'"aye"', b'"no"')


def test_scores_are_those_of_the_logits() -> None:
    (one,) = sequences([Generation(4, logprobs=3)])
    batch = DecodeBatch([one])
    shares = torch.log_softmax(one.logits[0].float(), -1)
    ((_, token),) = batch.step()
    assert one.score is not None
    assert token is not None
    assert one.score.logprob == pytest.approx(float(shares[token]))
    values, ids = shares.topk(3)
    assert one.score.likeliest == tuple(zip(ids.tolist(), values.tolist(), strict=True))


def test_an_answer_that_ends_does_not_keep_the_others_from_running_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups are made where who takes part changes, and nowhere else."""
    made: list[int] = []

    class Counted(decoding.StepGroup):
        def __init__(self, several, prompts=()) -> None:
            made.append(len(several))
            super().__init__(several, prompts)

    monkeypatch.setattr(decoding, "StepGroup", Counted)
    monkeypatch.setattr(Sequence, "at_fixed_shapes", property(lambda _: True))
    told = said(DecodeBatch(sequences([Generation(4), Generation(9), Generation(9)])))
    assert [len(told[n]) for n in range(3)] == [4, 9, 9]
    assert made == [3, 2]


def test_noise_is_the_same_until_the_token_is_noted() -> None:
    (one,) = sequences([Generation(4, temperature=1.0, seed=1)])
    first = one.noise().clone()
    assert torch.equal(one.noise(), first)
    one.note(5)
    assert not torch.equal(one.noise(), first)


def test_a_grammar_is_not_asked_while_a_prompt_is_written() -> None:
    class Asked:
        def allowed(self, _: int) -> None:
            raise AssertionError("asked too early")

    reader = Recipe.named(capacity=256).reader(ToyModel(), ByteTokenizer())
    sequence = reader.sequence([65, 66], Generation(4), later=True)
    sequence.constraint = Asked()  # type: ignore[assignment]  # all that is asked of one
    assert NextTokens([sequence]).tokens.shape == (1,)
    sequence.unwritten.clear()
    with pytest.raises(AssertionError, match="too early"):
        NextTokens([sequence])
