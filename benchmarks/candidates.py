"""Other ways for a pot to spend its slots, tried beside the default by `benchmarks/slots.py`.

One policy whose settings are the ways; with none of them set it keeps what the recipe `infinipot` keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core import pot_layer
from infinipot.core.attention import LogitSpec
from infinipot.core.config import Pooling
from infinipot.core.evidence import Evidence, Need
from infinipot.core.scores import pool, received
from infinipot.policies.base import ScoredPolicy
from infinipot.policies.registry import registry
from infinipot.reading.session import PotSession
from infinipot.text.tokenizer import Tokenizer

PLACES = 1 << 17  # tokens of a text whose sentences are known
ENDS, CLOSING = (".", "!", "?", "。"), "\"')]”’*_ \n"  # of a sentence, and what may follow
LINES = 1, 0  # ends of lines that a sentence goes on over: lines of a fixed width are one text, or are not
FROZEN = 1e4  # is added to a frozen score: no token is as novel


@dataclass(frozen=True)
class Candidate(ScoredPolicy):
    """The most novel slots first, the rest by the catalyst's attention, each score made otherwise.

    novelty_pool   novelty is pooled over this many neighbouring slots, as the catalyst's attention is by pool
    cap            no token is more novel than this many nats: one strange word is not worth a whole sentence
    ages           the oldest slots count this much more, the latest as they are
    heads          all heads of a layer share the mean or the maximum of their attention; all: those of all
                   layers share their mean, so that every head keeps the same tokens
    join           split: alpha of the budget by novelty; sum: one ranking by both, in standard deviations;
                   frozen: so, and a slot keeps the score by which it was chosen first, where its novelty was
    sentences      both scores are means over the slots of a sentence instead of neighbouring slots, so that
                   sentences stay or go; lines: a line's end ends one too; `follow_sentences` must know what
                   is read
    share          how text that was read since the last distillation shares the budget with older slots:
                   all, as one ranking has it; nats, in the ratio of summed novelty: dull text gets little
    """

    paper: ClassVar[str] = "none: candidates"

    novelty: float = 0.5
    pool: int = 7
    pooling: Pooling = "mean"
    novelty_pool: int = 1
    novelty_pooling: Pooling = "mean"
    cap: float = 0.0
    ages: float = 0.0
    heads: Literal["", "mean", "max", "all"] = ""
    join: Literal["split", "sum", "frozen"] = "split"
    share: Literal["all", "nats"] = "all"
    sentences: Literal["", "whole", "lines"] = ""
    born: ClassVar[deque[Tensor]] = deque()  # scores of the slots that were just chosen, layer by layer

    @property
    def needs(self) -> frozenset[Need]:
        """Both scores."""
        return frozenset({"novelty", "catalyst"})

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Score slots as the settings say."""
        assert evidence.catalyst is not None
        novel, asked = self._novelty(evidence), self._attention(evidence)
        if self.join != "split":
            old = evidence.novelty >= FROZEN / 2  # none, where nothing is frozen
            both = _standard(asked.clamp(min=1e-9).log(), ~old), _standard(novel, ~old)
            made = (1 - self.novelty) * both[0] + self.novelty * both[1]
            return torch.where(old, evidence.novelty - FROZEN, made)
        if self.share == "nats":
            return self._shared(evidence, novel, asked, budget)
        count = max(0, min(round(self.novelty * budget), budget - evidence.opening - evidence.recent))
        first = novel.masked_fill(evidence.protected, -torch.inf).topk(count, dim=-1).indices
        return asked.scatter(-1, first, torch.inf)

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Keep the best; what is frozen goes with its slot."""
        slots = super().select(evidence, budget)
        if self.join == "frozen":
            self.born.extend(self.score(evidence, budget).gather(-1, slots).chunk(len(slots)))
        return slots

    def aged(self, novelty: Tensor) -> Tensor:
        """Put a slot's score where its novelty was."""
        return self.born.popleft() + FROZEN if self.join == "frozen" else novelty

    def _shared(self, evidence: Evidence, novel: Tensor, asked: Tensor, budget: int) -> Tensor:
        """Choose as above from either side alone, as many as its share; no sizes depend on the shares."""
        slots, source = torch.arange(novel.shape[-1], device=novel.device), evidence.source
        new = source == source[..., -1:] - slots[-1] + slots  # the run at the end without a gap
        nats = evidence.novelty.clamp(min=0)
        gained, every = (nats * new).sum(-1, keepdim=True), nats.sum(-1, keepdim=True).clamp(min=1e-9)
        most, held = new.sum(-1, keepdim=True), (~new).sum(-1, keepdim=True)
        fresh = torch.minimum(torch.maximum((budget * gained / every).round(), budget - held), most)
        score = torch.zeros_like(asked)
        for side, count in ((new, fresh), (~new, budget - fresh)):
            first = _ranks(novel.masked_fill(~side, -torch.inf)) < (self.novelty * count).round()
            rank = _ranks(asked.masked_fill(first, torch.inf).masked_fill(~side, -torch.inf))
            score = torch.where(side & (rank < count), 2 - rank / len(slots), score)
        return score

    def _novelty(self, evidence: Evidence) -> Tensor:
        novel = evidence.novelty.clamp(max=self.cap) if self.cap else evidence.novelty
        novel = self._pooled(novel, evidence.source, self.novelty_pool, self.novelty_pooling)
        last = evidence.source.amax(-1, keepdim=True).clamp(min=1)
        return novel * (1 + self.ages * (1 - evidence.source / last)) if self.ages else novel

    def _attention(self, evidence: Evidence) -> Tensor:
        assert evidence.catalyst is not None
        asked = self._pooled(evidence.catalyst, evidence.source, self.pool, self.pooling)
        if not self.heads:
            return asked
        shares = asked / asked.sum(-1, keepdim=True).clamp(min=1e-9)
        if self.heads == "all":
            one = shares.mean((0, 1), keepdim=True)
        else:
            one = shares.amax(-2, keepdim=True) if self.heads == "max" else shares.mean(-2, keepdim=True)
        return one.expand_as(asked).contiguous()

    def _pooled(self, score: Tensor, source: Tensor, width: int, how: Pooling) -> Tensor:
        if not self.sentences:
            return pool(score, width, how)
        return by_sentence(score, Sentences.of[int(self.sentences == "lines")][source])


class Sentences:
    """Which sentence each place belongs to of the text that is read or distilled just now, by either rule."""

    of = torch.zeros(2, 0, dtype=torch.long)  # captured graphs read it: it never moves


class Words:
    """What each token of a vocabulary does to sentences."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        told = [tokenizer.decode([token]).replace("\r", "") for token in range(vocabulary)]
        self.blank = [not one.strip() for one in told]
        self.spaced = [one[:1].isspace() for one in told]
        self.ends = [one.rstrip(CLOSING).endswith(ENDS) for one in told]
        self.closes = [not one.strip(CLOSING) for one in told]
        self.lines = [one[len(one.rstrip()) :].count("\n") for one in told]


@dataclass
class Followed:
    """The sentences of one session's text, by either rule, and what came since the last word."""

    numbers: Tensor  # [2, places]
    ended: bool = False  # the last word ended a sentence
    lines: int = 0  # that ended since
    spaced: bool = False  # whether anything blank came since

    def add(self, tokens: Sequence[int], first: int, words: Words) -> None:
        """Number the tokens of the places from `first` on."""
        begins = torch.zeros(2, len(tokens), dtype=torch.long)
        for place, token in enumerate(tokens):
            if words.blank[token]:
                self.lines, self.spaced = self.lines + words.lines[token], True
                continue
            after = self.ended and (self.spaced or words.spaced[token] or self.lines > 0)
            if first + place:
                begins[:, place] = torch.tensor([after or self.lines > limit for limit in LINES])
            self.ended = words.ends[token] or (self.ended and not after and words.closes[token])
            self.lines, self.spaced = words.lines[token], False
        start = self.numbers[:, first - 1 : first].cpu() if first else 0
        self.numbers[:, first : first + len(tokens)] = (start + begins.cumsum(1)).to(self.numbers.device)

    def copy(self) -> Followed:
        """Return the same, to be gone on with."""
        return replace(self, numbers=self.numbers.clone())


def follow_sentences(tokenizer: Tokenizer, vocabulary: int, device: torch.device) -> None:
    """From now on, number the sentences of whatever the sessions of this process read, each its own."""
    words, write = Words(tokenizer, vocabulary), PotSession.write
    fork, put_back = PotSession.fork, PotSession.put_back
    Sentences.of = torch.zeros(2, PLACES, dtype=torch.long, device=device)

    def followed(self: PotSession, tokens: list[int], *args: Any, **named: Any) -> Tensor:
        first, known = self.pot.pot_layers[0].tokens, self.__dict__.get("sentences")
        if known is None or not first:
            known = self.__dict__["sentences"] = Followed(torch.zeros_like(Sentences.of))
        known.add(tokens, first, words)
        Sentences.of.copy_(known.numbers)
        return write(self, tokens, *args, **named)

    def taken(self: PotSession, before: PotSession) -> None:
        known = before.__dict__.get("sentences")
        self.__dict__["sentences"] = known and known.copy()

    def forked(self: PotSession) -> PotSession:
        twin = fork(self)
        taken(twin, self)
        return twin

    def put(self: PotSession, before: PotSession) -> None:
        put_back(self, before)
        taken(self, before)

    # For the whole process: a policy knows places, not words.
    PotSession.write, PotSession.fork, PotSession.put_back = followed, forked, put  # type: ignore[method-assign,assignment]


def by_sentence(score: Tensor, number: Tensor) -> Tensor:
    """The mean of each sentence's slots, at each of them; slots lie in the order of the text."""
    place = F.pad((number[..., 1:] != number[..., :-1]).cumsum(-1), (1, 0))
    sums = torch.zeros_like(score).scatter_add(-1, place, score)
    count = torch.zeros_like(score).scatter_add(-1, place, torch.ones_like(score))
    return (sums / count.clamp(min=1)).gather(-1, place)


def _standard(score: Tensor, among: Tensor) -> Tensor:
    """Scores in standard deviations of those slots among which they are counted."""
    count = among.sum(-1, keepdim=True).clamp(min=1)
    off = score - (score * among).sum(-1, keepdim=True) / count
    return off / ((off * off * among).sum(-1, keepdim=True) / count).sqrt().clamp(min=1e-6)


def _ranks(score: Tensor) -> Tensor:
    """The place of each slot by its score, the best one's being 0."""
    return score.argsort(-1, descending=True).argsort(-1)


def by_maximum(queries: Tensor, keys: Tensor, spec: LogitSpec, _sums: Sequence[Tensor] = ()) -> Tensor:
    """What a slot receives: the most that any query head of a group gives, not the mean."""
    batch, heads, slots = len(keys), keys.shape[1], keys.shape[2]
    alone = keys.repeat_interleave(queries.shape[1] // heads, dim=1)
    return received(queries, alone, spec.scale, spec.softcap).view(batch, heads, -1, slots).amax(2)


def take_maximum() -> None:
    """Let every catalyst's score of this process be by the maximum."""
    pot_layer._received = by_maximum  # for the whole process: a layer has no option for it


def register() -> None:
    """Make the recipe `candidate` known to this process."""
    registry()["candidate"] = Candidate
