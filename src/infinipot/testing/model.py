"""A tiny random transformer in plain torch, for tests and examples: no downloads, no transformers.

Grouped heads, RoPE, causal attention through the pot, nothing else: its answers are repeatable nonsense.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core.attention import LogitSpec
from infinipot.core.config import DEFAULT_MODE, ReadingMode
from infinipot.core.pot import LayerSpec, Pot
from infinipot.core.rows import Rows


class ToyModel:
    """Implements the reader's `Model` protocol."""

    def __init__(
        self,
        vocabulary: int = 320,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 2,
        width: int = 8,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        self.vocabulary, self.layers, self.width = vocabulary, layers, width
        self.heads, self.kv_heads = heads, kv_heads
        self.device, self.dtype, self.obstacle = torch.device("cpu"), dtype, ""
        self.frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        source = torch.Generator().manual_seed(seed)
        size = heads * width
        sizes = {"q": size, "k": kv_heads * width, "v": kv_heads * width, "o": size, "up": size}

        def weights(rows: int) -> Tensor:
            drawn = torch.randn(rows, size, generator=source, dtype=torch.float64) * (2 / math.sqrt(size))
            return drawn.to(dtype)

        self.embedding = weights(vocabulary)
        self.blocks = [{name: weights(rows) for name, rows in sizes.items()} for _ in range(layers)]

    def new_pot(self, capacity: int, keep: int, mode: ReadingMode = DEFAULT_MODE, bits: int = 16) -> Pot:
        """Return an empty pot with this model's layers."""
        spec = LayerSpec(self.frequencies, offset=torch.zeros(self.kv_heads, self.width))
        return Pot([spec] * self.layers, capacity, keep, mode, bits)

    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [B, n] into the pot and return their hidden states [B, n, H]."""
        places = pot.places(tokens.shape[1], tokens.device)
        hidden = self.embedding[tokens]
        for index, block in enumerate(self.blocks):
            inner = F.rms_norm(hidden, hidden.shape[-1:])
            heads = {name: self._split(inner @ block[name].T) for name in ("q", "k", "v")}
            query, key = self._rotate(heads["q"], places), self._rotate(heads["k"], places)
            keys, values = pot.append(index, key, heads["v"])
            seen = pot.attend(index, query, keys, values, LogitSpec(self.width**-0.5))
            hidden = hidden + seen.transpose(1, 2).flatten(2) @ block["o"].T
            hidden = hidden + F.silu(F.rms_norm(hidden, hidden.shape[-1:]) @ block["up"].T)
        return F.rms_norm(hidden, hidden.shape[-1:])

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of hidden states [..., H]."""
        return hidden @ self.embedding.T

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights by name, for a fingerprint."""
        yield from ((".embedding", self.embedding), (".frequencies", self.frequencies))
        for index, block in enumerate(self.blocks):
            yield from ((f".blocks.{index}.{name}", weight) for name, weight in block.items())

    def _split(self, flat: Tensor) -> Tensor:
        return flat.view(*flat.shape[:-1], -1, self.width).transpose(1, 2)  # [B, heads, n, D]

    def _rotate(self, x: Tensor, places: Tensor) -> Tensor:
        angles = places[:, None, :, None] * self.frequencies  # [B, 1, n, D / 2]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
