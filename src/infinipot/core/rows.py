"""Several pots as the rows of one batch: one new token for each, whatever their fills.

To a model this is a pot whose batch has as many rows. `Rows` writes every pot as it would be written alone;
`FixedRows` does so at shapes and addresses that never change, for captured graphs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec, attend_fixed
from infinipot.core.cuda.dispatch import fused, kernels
from infinipot.core.pot import Pot


class Rows:
    """Writes one token into each pot, which then knows of it."""

    def __init__(self, pots: Sequence[Pot]) -> None:
        self.pots, first = pots, pots[0]
        self.layers, self.mode, self.lengths = first.layers, first.mode, first.lengths
        self.capacity, self.max_position = first.capacity, max(pot.max_position for pot in pots)

    @property
    def fill(self) -> int:
        """Filled slots of the first pot: what a mask that is not needed would be built from."""
        return self.pots[0].fill

    def places(self, count: int, device: torch.device) -> Tensor:
        """Positions [N, n] of the next tokens."""
        starts = torch.tensor([pot.position for pot in self.pots], device=device)
        return starts[:, None] + torch.arange(count, device=device)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Nothing yet: rows have no common slots, so `attend` writes and reads each by itself."""
        return keys, values

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
        """Write each row's new entry and attend to all of its own."""
        out = []
        for row, pot in enumerate(self.pots):
            here = slice(row, row + 1)
            seen, seen_values = pot.append(layer, keys[here], values[here])
            out.append(pot.attend(layer, queries[here], seen, seen_values, spec))
        return torch.cat(out)


class FixedRows(Rows):
    """The same without telling the pots: their own numbers are set right afterwards.

    state [3 + 2 L, N]: tokens, fills, positions less fills, and where the keys and the values of every
    layer begin. A row whose fill is the number of slots is padding: nothing is written.
    """

    def __init__(self, pots: Sequence[Pot], state: Tensor) -> None:
        super().__init__(pots)
        self.fills, self.ahead = state[1], state[2]
        self.keys_at, self.values_at = state[3:].chunk(2)
        self.slots = pots[0].pot_layers[0].capacity

    @staticmethod
    def serves(pot: Pot) -> bool:
        """Say whether addresses alone will do, so that one captured graph serves any pots of this shape."""
        layer = pot.pot_layers[0]
        fast = kernels(layer.keys.device)
        return bool(fast and fast.serves(layer.keys, layer.keys) and layer.keys.shape == layer.values.shape)

    @staticmethod
    def addresses(pot: Pot) -> list[int]:
        """One pot's column of the state, below the numbers."""
        layers = pot.pot_layers
        return [layer.keys.data_ptr() for layer in layers] + [layer.values.data_ptr() for layer in layers]

    def places(self, count: int, device: torch.device) -> Tensor:
        """Positions [N, n] of the next tokens."""
        return (self.fills + self.ahead)[:, None] + torch.arange(count, device=device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
        """Write each row's new entry at its fill and attend to it and all before it; there is no window."""
        fast = kernels(queries.device)
        if fast and spec.softcap is None and self.serves(self.pots[0]) and fast.serves(queries, keys):
            into = self.keys_at[layer], self.values_at[layer], self.fills, self.slots
            return fast.attend_rows(queries, keys, values, *into, spec.scale)  # type: ignore[no-any-return]
        out = []
        for row, pot in enumerate(self.pots):
            here, to, fill = slice(row, row + 1), pot.pot_layers[layer], self.fills[row : row + 1]
            to.keys.index_copy_(2, fill, keys[here])
            to.values.index_copy_(2, fill, values[here])
            one = fused(attend_fixed, queries.device)
            out.append(one(queries[here], to.keys, to.values, spec.scale, fill, spec.softcap))
        return torch.cat(out)
