"""Other ways for a pot to spend its slots, tried beside the default by `benchmarks/slots.py`.

One policy whose settings are the ways; with none set it keeps what `infinipot` with `units=slots` keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core import pot_layer
from infinipot.core.attention import LogitSpec
from infinipot.core.config import Pooling, Units
from infinipot.core.evidence import Evidence, Need
from infinipot.core.pot_layer import PotLayer
from infinipot.core.scores import by_run, first_best, pool, received
from infinipot.policies.base import ScoredPolicy
from infinipot.policies.registry import registry

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
    units          as in the policy `infinipot`: with sentences both scores are their means
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
    units: Units = "slots"
    born: ClassVar[deque[Tensor]] = deque()  # scores of the slots that were just chosen, layer by layer

    @property
    def needs(self) -> frozenset[Need]:
        """Both scores."""
        sentence: frozenset[Need] = frozenset({"sentence"} if self.units == "sentences" else {})
        return sentence | {"novelty", "catalyst"}

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
        first = self.best(novel.masked_fill(evidence.protected, -torch.inf), count)
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
        slots, new = torch.arange(novel.shape[-1], device=novel.device), _fresh(evidence.source)
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
        novel = self._pooled(novel, evidence, self.novelty_pool, self.novelty_pooling)
        last = evidence.source.amax(-1, keepdim=True).clamp(min=1)
        return novel * (1 + self.ages * (1 - evidence.source / last)) if self.ages else novel

    def _attention(self, evidence: Evidence) -> Tensor:
        assert evidence.catalyst is not None
        asked = self._pooled(evidence.catalyst, evidence, self.pool, self.pooling)
        if not self.heads:
            return asked
        shares = asked / asked.sum(-1, keepdim=True).clamp(min=1e-9)
        if self.heads == "all":
            one = shares.mean((0, 1), keepdim=True)
        else:
            one = shares.amax(-2, keepdim=True) if self.heads == "max" else shares.mean(-2, keepdim=True)
        return one.expand_as(asked).contiguous()

    def _pooled(self, score: Tensor, evidence: Evidence, width: int, how: Pooling) -> Tensor:
        if self.units == "slots":
            return pool(score, width, how)
        assert evidence.sentence is not None
        return by_run(score, evidence.sentence)

    def best(self, score: Tensor, count: int) -> Tensor:
        """Return the best slots; of a sentence that does not fit whole, its beginning."""
        return first_best(score, count) if self.units == "sentences" else super().best(score, count)


@dataclass(frozen=True)
class Unlike(Candidate):
    """Novelty is how unlike the rest a slot's value is: one less its cosine with the mean of what is new.

    It is taken once, when the slot is first distilled, and kept with the slot, as the paper keeps novelty.
    `see_values` lets this process's evidence carry it.
    """

    @property
    def needs(self) -> frozenset[Need]:
        """No surprise: the output head is not computed for what is read."""
        return super().needs - {"novelty"}

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Put new slots' unlikeness where their novelty would be."""
        assert evidence.last is not None, "what is unlike is not seen: `see_values` first"
        novelty = torch.where(_fresh(evidence.source), evidence.last, evidence.novelty)
        slots = super().select(replace(evidence, novelty=novelty), budget)
        self.born.extend(novelty.gather(-1, slots).chunk(len(slots)))
        return slots

    def aged(self, novelty: Tensor) -> Tensor:  # noqa: ARG002
        """Keep what was found with each slot."""
        return self.born.popleft()

    def _novelty(self, evidence: Evidence) -> Tensor:
        novel = super()._novelty(evidence)
        if self.heads != "all":
            return novel
        one = _standard(novel, torch.ones_like(novel, dtype=torch.bool)).mean((0, 1), keepdim=True)
        return one.expand_as(novel).contiguous()


def see_values() -> None:
    """Let every layer of this process say how unlike its new values are, as the attention of last tokens."""
    before = PotLayer.evidence

    def evidence(self: PotLayer, index: int, opening: int, recent: int) -> Evidence:
        found = before(self, index, opening, recent)
        values = F.normalize(self.values[:, :, : self.fill].float(), dim=-1)
        mean = (values * _fresh(found.source)[..., None]).sum(-2, keepdim=True)
        return replace(found, last=1 - F.cosine_similarity(values, mean, dim=-1))

    PotLayer.evidence = evidence  # type: ignore[method-assign]  # for the whole process: a layer has no option


def _fresh(source: Tensor) -> Tensor:
    """Say which slots [B, H, S] were read since the last distillation: the run at the end without a gap."""
    slots = torch.arange(source.shape[-1], device=source.device)
    return source == source[..., -1:] - slots[-1] + slots


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
    """Make the recipes `candidate` and `unlike` known to this process."""
    registry().update(candidate=Candidate, unlike=Unlike)
