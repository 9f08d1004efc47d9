"""Keeping slots in all layers of a pot at once: in one launch where a kernel serves, else layer by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from infinipot.core.cuda.dispatch import kernels
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rounded_layer import RoundedLayer


def keep_all(layers: Sequence[PotLayer], slots: Sequence[Tensor], table: Tensor | None) -> None:
    """Keep the slots [B, Hkv, n] of every layer: in one launch where there is a table of addresses."""
    fast = kernels(slots[0].device)
    if table is None or fast is None or layers[0].last is not None:
        for layer, chosen in zip(layers, slots, strict=True):
            layer.keep(chosen)
        return
    first = layers[0]
    chosen = torch.stack(list(slots))
    if isinstance(first, RoundedLayer):
        fast.keep_rounded(table, chosen, first.capacity, first.keys.shape[-1], first.summed, first.numbered)
    else:
        turn, sizes = first.rotation, (first.anchored, first.capacity, first.max_anchors)
        fast.keep(table, chosen, turn.cos, turn.sin, *sizes, first.keys.dtype, first.summed, first.numbered)
    count = chosen.shape[-1]
    # private: torch has no public word for one addition to many tensors
    torch._foreach_add_([layer.dropped for layer in layers], first.fill - count)
    anchored = 0 if isinstance(first, RoundedLayer) or count > first.max_anchors else count
    for layer in layers:
        layer.fill, layer.anchored, layer.catalyst = count, anchored, None


def addresses(layers: Sequence[PotLayer]) -> Tensor | None:
    """The table that `keep_all` needs, of layers that never move in memory; None where no kernel serves."""
    first = layers[0]
    if not first.by_address:
        return None
    alike = {(layer.keys.shape, layer.keys.dtype, layer.keys.device, id(layer.rotation)) for layer in layers}
    turns = first.reset and not first.grows and first.rotation.width == first.keys.shape[-1]
    if len(alike) > 1 or not turns:
        return None
    rows = [[tensor.data_ptr() for tensor in layer.tensors()] for layer in layers]
    return torch.tensor(rows, dtype=torch.long, device=first.keys.device)
