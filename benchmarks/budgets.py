"""Budgets by head and by layer (Ada-KV, EpiCache), tried beside the default by `benchmarks/slots.py`.

A pot has as many slots in every layer and head. Here it gets SPARE more than it may use: what a head is not
to have is kept and hidden, by a number beside every key and query that makes its logit vanish. So once
something was dropped all live slots together are as many as the default's, while a head may have up to SPARE
more, and kernels stay as they are. Nothing is captured, and memory is not saved: it shows what budgets would
do for answers, no more. Hidden slots have their places in the order of positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core import attention
from infinipot.core.cuda import dispatch
from infinipot.core.evidence import Evidence, Need
from infinipot.core.pot import Pot
from infinipot.core.pot_layer import PotLayer
from infinipot.core.scores import pool
from infinipot.engine import Engine
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry
from infinipot.recipes.recipe import Recipe

SPARE = 1024  # slots of every head that are hidden, in the mean
LEAST = 0.2  # of an even share, which every head has in any case; as in Ada-KV
WIDTH, HIDDEN = 8, -1e5  # columns that are added to a head, as kernels want them; what they have at a slot


@dataclass(frozen=True)
class Budgeted(Policy):
    """The default's ranking, but the catalyst's share is one ranking across heads, or all layers' heads.

    across  none: every head has as many; heads: a layer's heads share theirs; layers: all share theirs;
            shares: every layer has its share, which `sensitivity` found.
    """

    paper: ClassVar[str] = "none: candidates"
    hidden: ClassVar[deque[Tensor]] = deque()  # of the layers whose slots were just chosen
    shares: ClassVar[Sequence[float]] = ()  # of each layer, in any unit

    novelty: float = 0.5
    pool: int = 7
    across: Literal["none", "heads", "layers", "shares"] = "heads"

    @property
    def needs(self) -> frozenset[Need]:
        """Both scores."""
        return frozenset({"novelty", "catalyst"})

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Choose the live slots and fill up with others, which `aged` is going to hide."""
        assert evidence.catalyst is not None
        assert Pot.attend is _attend, "hidden slots would be seen: `allow` this engine first"
        mean, gone, kept = budget - SPARE, evidence.novelty.isneginf(), evidence.protected
        free = mean - evidence.opening - evidence.recent
        novel = evidence.novelty.masked_fill(kept, -torch.inf)
        first = novel.topk(max(0, min(round(self.novelty * mean), free)), dim=-1).indices
        live = (torch.zeros_like(gone) | kept).scatter(-1, first, True)
        seen = pool((~gone).float(), self.pool, "mean").clamp(min=1e-6)  # hidden neighbours do not count
        asked = (pool(evidence.catalyst, self.pool, "mean") / seen).masked_fill(gone | live, -torch.inf)
        rest = free - first.shape[-1]
        live |= self._asked(asked, rest, rest + SPARE)
        slots = (2.0 * live - gone.float()).topk(budget, dim=-1).indices.sort(dim=-1).values
        self.hidden.extend((~live.gather(-1, slots)).chunk(len(slots)))
        return slots

    def _asked(self, asked: Tensor, mean: int, most: int) -> Tensor:
        """Say which slots [B, H, S] stay for the catalyst: `mean` of a head, `most` at most."""
        layers, heads, slots = asked.shape
        ranks = asked.argsort(-1, descending=True).argsort(-1)
        least = mean if self.across == "none" else round(LEAST * mean)
        if self.across == "shares":
            return ranks < torch.tensor(allotted(self.shares, mean, least, most))[:, None, None].to(ranks)
        score = asked.masked_fill(ranks < least, torch.inf).masked_fill(ranks >= most, -torch.inf)
        rows = layers if self.across == "layers" else 1
        together = score.reshape(layers // rows, rows * heads * slots)
        chosen = together.topk(rows * heads * mean, dim=-1).indices
        return torch.zeros_like(together, dtype=torch.bool).scatter(-1, chosen, True).view(asked.shape)

    def aged(self, novelty: Tensor) -> Tensor:
        """Mark what is hidden by a novelty that no token has."""
        return novelty.masked_fill(self.hidden.popleft().to(novelty.device), -torch.inf)


def allotted(shares: Sequence[float], mean: int, least: int, most: int) -> list[int]:
    """Return the slots of a head of each layer, by the layers' shares: `mean` in the mean, or a few less."""

    def slots(scale: float) -> list[int]:
        return [min(max(int(scale * share), least), most) for share in shares]

    low, high = 0.0, most / max(min(shares), 1e-6)  # keys of a first layer never change: it has no share
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if sum(slots(middle)) > mean * len(shares) else (middle, high)
    return slots(low)


def sensitivity(engine: Engine, text: str, capacity: int) -> list[float]:
    """Return by how much distilling changes each layer's keys, as in EpiCache: one less their mean cosine.

    A pot's keys of tokens that it read after the first distillation are compared with a whole cache's.
    """
    pots = []
    for name in ("infinipot", "full"):
        recipe = Recipe.named(name, capacity=capacity, format=engine.format)
        reader = recipe.reader(engine.model, engine.tokenizer)
        reader.read(text)
        pots.append(reader.pot.pot_layers)
    if pots[1][0].fill <= capacity:
        raise SystemExit(f"a text to calibrate by has more tokens than the pot: more than {capacity}")
    return [1 - float(_alike(*pair, capacity).mean()) for pair in zip(*pots, strict=True)]


def _alike(part: PotLayer, whole: PotLayer, after: int) -> Tensor:
    """Return cosines of the keys that two layers have of the same tokens, those `after` so many."""
    turned = []  # to position 0
    for layer in (part, whole):
        keys = layer.keys[:, :, : layer.fill]
        layer.rotation.reach(layer.fill)
        places = torch.arange(layer.fill, device=keys.device).expand(keys.shape[:-1])
        turned.append(layer.rotation.back(keys, places))
    source = part.source[:, :, : part.fill]
    same = turned[1].gather(2, source[..., None].expand_as(turned[0]))
    return F.cosine_similarity(turned[0], same, dim=-1)[source >= after]


def _attend(
    self: Pot, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: attention.LogitSpec
) -> Tensor:
    """As `Pot.attend`, with hidden slots; never mixed, which rounds logits beside the hidden ones' huge."""
    into, spec = self.layers[layer], replace(spec, mixed=False)
    assert isinstance(into, PotLayer), "budgets are for layers that are distilled"
    hidden = into.novelty[:, :, : keys.shape[2], None].isneginf()
    keys = torch.cat((keys, HIDDEN * hidden.to(keys.dtype), keys.new_zeros(*keys.shape[:3], WIDTH - 1)), -1)
    ones = queries.new_ones(*queries.shape[:3], 1)
    queries = F.pad(torch.cat((queries, ones), -1), (0, WIDTH - 1))
    out = attention.attend(queries, keys, F.pad(values, (0, WIDTH)), spec)[..., : values.shape[-1]]
    self.observe(layer, queries, keys, spec)
    return out


def register() -> None:
    """Make the recipe `budgeted` known to this process."""
    registry()["budgeted"] = Budgeted


def allow(engine: Engine) -> None:
    """Let this process hide slots, in the engine's one plain path: no kernel of ours, nothing captured."""
    dispatch.KERNELS = False
    Pot.attend = _attend  # type: ignore[method-assign]  # for the whole process: no recipe has its own pot
    engine.model.obstacle = "hidden slots are read in a plain path"
    engine.model.layers = engine.model.steps = None
