"""Several pots as the rows of one batch: a new token a row, whatever their fills.

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
        """Return new keys and values as they are: `attend` writes them, since rows have no common slots."""
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
    """Rows at shapes and addresses that never change; the pots count what is written only afterwards.

    state [3 + n L, N]: tokens, fills, positions less fills, and where the keys of every layer begin, then the
    values and, in pots of 8 bits, scales and offset. A row whose fill is -1 is padding: nothing is written.
    Where rows are `shared`, several may be tokens of one pot, one after the other.
    """

    def __init__(self, pots: Sequence[Pot], state: Tensor, shared: bool = False) -> None:
        super().__init__(pots)
        self.shared = shared
        self.fills, self.ahead = state[1], state[2]
        self.at = state[3:].view(-1, len(self.layers), state.shape[1])  # [n, L, N]
        self.slots = pots[0].pot_layers[0].capacity

    @staticmethod
    def serves(pot: Pot) -> bool:
        """Say whether addresses alone will do, so that one captured graph serves any pots of this shape."""
        return pot.by_address and pot.pot_layers[0].by_address

    @property
    def plain(self) -> bool:
        """Say whether rows are pots of 16 bits, a token each, that kernels know by their addresses."""
        return not self.shared and len(self.at) == 2 and self.serves(self.pots[0])

    @staticmethod
    def may_share(pot: Pot) -> bool:
        """Say whether several rows may be tokens of this pot: in 8 bits they would not see each other."""
        return pot.bits == 16

    @staticmethod
    def addresses(pot: Pot) -> list[int]:
        """One pot's column of the state, below the numbers."""
        kinds = zip(*(layer.addresses for layer in pot.pot_layers), strict=True)
        return [at for kind in kinds for at in kind]

    def places(self, count: int, device: torch.device) -> Tensor:
        """Positions [N, n] of the next tokens."""
        return (self.fills + self.ahead)[:, None] + torch.arange(count, device=device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
        """Write each row's new entry at its fill and attend to it and all before it; there is no window."""
        fast = kernels(queries.device)
        if fast and spec.softcap is None and self.serves(self.pots[0]) and fast.serves(queries, keys):
            into, rotation = self.at[:, layer], self.pots[0].pot_layers[layer].rotation
            fresh = (queries, keys, values)
            if len(into) == 2:
                return fast.attend_rows(*fresh, *into, self.fills, self.slots, spec.scale, self.shared)  # type: ignore[no-any-return]  # loaded by name
            turn = (rotation.cos, rotation.sin)
            return fast.attend_rounded(*fresh, into, *turn, self.fills, self.slots, spec.scale)  # type: ignore[no-any-return]
        if self.shared:  # a row sees what earlier tokens of its pot have written in this very step
            for row in range(len(self.pots)):
                self._write(layer, row, keys, values)
        out = []
        for row in range(len(self.pots)):
            seen, fill = self._write(layer, row, keys, values), self.fills[row : row + 1]
            one = fused(attend_fixed, queries.device)
            out.append(one(queries[row : row + 1], *seen, spec.scale, fill, spec.softcap))
        return torch.cat((*out, queries[len(self.pots) :]))  # of padding whatever is a number

    def _write(self, layer: int, row: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        here, to = slice(row, row + 1), self.pots[row].pot_layers[layer]
        return to.write_at(self.fills[here], keys[here], values[here])
