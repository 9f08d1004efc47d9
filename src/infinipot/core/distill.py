"""One distillation: ask the policy which slots stay, keep them, reset positions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.core.pot import Pot
from infinipot.errors import ModelError

Observer = Callable[[list[Evidence], list[Tensor], int], None] | None  # evidence, chosen slots, tokens so far


class _Policy(Protocol):
    """What distillation asks of an `infinipot.policies.base.Policy`, whose room lies above this one."""

    @property
    def needs(self) -> frozenset[Need]: ...
    def select(self, evidence: Evidence, budget: int) -> Tensor: ...
    def aged(self, novelty: Tensor) -> Tensor: ...


def distill(
    pot: Pot, policy: _Policy, budget: int, opening: int = 0, recent: int = 0, observer: Observer = None
) -> None:
    """Reduce every pot layer to `budget` entries; `opening` first and `recent` last slots stay."""
    if budget >= pot.fill:
        return
    found = [evidence for evidence in pot.evidence(opening, recent) if evidence is not None]
    slots: dict[int, Tensor] = {}
    for _, layers in groupby(found, key=lambda evidence: (evidence.source.device, evidence.source.shape)):
        slots |= _choose(policy, list(layers), budget)
    if observer is not None:
        observer(found, [slots[evidence.layer] for evidence in found], pot.tokens)
    pot.keep([slots.get(index) for index in range(len(pot.layers))])
    for layer in pot.pot_layers:
        kept = layer.novelty[:, :, :budget]
        aged = policy.aged(kept)
        if aged is not kept:
            kept.copy_(aged)


def _choose(policy: _Policy, layers: Sequence[Evidence], budget: int) -> dict[int, Tensor]:
    """The slots of every layer, chosen for all at once: to a policy, a layer is one more row of the batch."""
    for evidence in layers:
        if any(getattr(evidence, need) is None for need in policy.needs):
            why = f"layer {evidence.layer} does not show its attention to the pot"
            raise ModelError(f"this model is not supported: {why}")
    stacked: dict[str, Any] = {}
    for name in ("source", "novelty", "catalyst", "last", "running", "sentence"):
        columns = [getattr(evidence, name) for evidence in layers]
        stacked[name] = None if any(column is None for column in columns) else torch.cat(columns)
    chosen = policy.select(replace(layers[0], **stacked), budget).chunk(len(layers))
    return {evidence.layer: slots for evidence, slots in zip(layers, chosen, strict=True)}
