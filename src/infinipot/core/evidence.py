"""What a policy may know of the slots it chooses from: places in the text, novelty, attention received."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Need = Literal["catalyst", "last", "running", "novelty", "sentence"]


@dataclass(frozen=True)
class Evidence:
    """All a policy may see when it chooses; S slots are filled.

    Layers of one shape are stacked along B, so that a policy chooses for all of them at
    once: rows must not look at each other. `layer` is the first one's index.
    """

    layer: int
    source: Tensor  # [B, Hkv, S] position in the text, counted from 0
    novelty: Tensor  # [B, Hkv, S] -log p when it was read; zeros where nobody asked for it
    catalyst: Tensor | None = None  # [B, Hkv, S] attention received from the catalyst
    last: Tensor | None = None  # [B, Hkv, S] attention received from the last tokens, themselves included
    running: Tensor | None = None  # [B, Hkv, S] attention received from every token so far
    opening: int = 0  # first slots that must stay
    recent: int = 0  # last slots that must stay
    sentence: Tensor | None = None  # [B, Hkv, S] the number of the sentence it stands in

    @property
    def protected(self) -> Tensor:
        """[S], true for slots that must stay."""
        return self.ends(self.opening, self.recent)

    def ends(self, first: int, last: int) -> Tensor:
        """[S], true for the `first` and the `last` slots, and for the protected ones in any case."""
        places = torch.arange(self.source.shape[-1], device=self.source.device)
        return (places < max(first, self.opening)) | (places >= len(places) - max(last, self.recent))
