"""One token through all layers of a pot in one graph of ggml's: attention is in it, on the pot's own slots.

In a small model starting a graph and telling a layer of its new entry, layer by layer, takes as long as the
products. `Steps` is the obvious twin, and does what is left: several pots at once, slots of 8 bits, layers
that are local or observed. A graph lasts as long as its pot does not move. Attention is compiled where
llvmlite is installed; ggml's attends to a fixed number of slots, of which those beyond the last are masked.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.core.pot_layer import PotLayer
from infinipot.hf.packed.ggml import ALIGNMENT, Graph
from infinipot.hf.packed.steps import Draft, Steps, Written

if TYPE_CHECKING:
    from infinipot.hf.packed.compiled import Attention

SLOTS = 64  # a graph attends to a multiple of so many, or to all there are
MASKED = 64  # rows of a mask that ggml wants, of which a single token has the first
SLOWER = "attention of answers is ggml's, which takes more time"


class WholeToken:
    """The graph of the pot that was last written; `attention` is compiled, or says why it is ggml's."""

    def __init__(self, steps: Steps, attention: "Attention | str" = "") -> None:
        self.steps, self.attention = steps, attention
        self._place: tuple[int, ...] = ()  # how many slots the graph attends to, and where its pot lies
        self._graph: Graph | None = None
        self._mask, self._next = torch.empty(0), torch.zeros(1, 1, dtype=torch.int64, device="cpu")

    def serves(self, tokens: Tensor, pot: Written) -> bool:
        """Say whether it can write these tokens into this pot."""
        if len(tokens) != 1 or not isinstance(pot, Pot) or not pot.is_unobserved:
            return False
        if not all(type(layer) is PotLayer for layer in pot.layers):
            return False
        alike = len({(layer.capacity, layer.fill) for layer in pot.pot_layers}) == 1  # else one has no room
        return alike and _plain(pot.pot_layers[0])

    @torch.no_grad()
    def run(self, tokens: Tensor, places: Tensor, pot: Any, frequencies: Tensor) -> Tensor:
        """Write a token [1, 1] at its place [1, 1] into the pot; return its hidden state [1, 1, H]."""
        layers, fill = pot.pot_layers, pot.fill
        capacity = layers[0].capacity
        masked = isinstance(self.attention, str)
        count = min(-(-(fill + 1) // SLOTS) * SLOTS, capacity) if masked else capacity
        lies = (count, capacity, *(at for layer in layers for at in layer.addresses))
        if self._graph is None or lies != self._place:
            self._graph, self._place = None, ()  # whatever happens, the old one reads another mask
            self._mask = torch.zeros(MASKED, count if masked else 0, dtype=torch.float16, device="cpu")
            self._graph, self._place = self._made(layers, count), lies
        self._next.fill_(fill)
        if masked:
            self._mask[0].fill_(float("-inf"))
            self._mask[0, : fill + 1] = 0
        _, _, out, *_ = self.steps.given(tokens, places, frequencies)
        self.steps.compute(self._graph)
        for layer in layers:
            layer.commit(1)
        return out[:1, None].clone()

    def _made(self, layers: list[PotLayer], count: int) -> Graph:
        steps, buffers = self.steps, self.steps.buffers(1)
        draft = Draft(steps.kernels, 1, len(layers) + 1)
        graph, x = draft.graph, draft.graph.input(buffers[0])
        place, mask = graph.input(self._next), graph.input(self._mask) if self._mask.numel() else 0
        for layer, slots in zip(steps.decoder.layers, layers, strict=True):
            draft.used = 0  # inner buffers are free again after every layer
            queries, *new = steps.before(draft, x, layer, buffers)
            columns = slots.keys[0], slots.values[0]
            held = [graph.slots(column) for column in columns]
            for into, made in zip(held, new, strict=True):
                row = graph.split(made, steps.size, 1, len(columns[0]))
                graph.apply("ggml_set_rows", into, row, place, out=None)
            if isinstance(self.attention, str):
                heads = graph.split(queries, steps.size, 1, buffers[1].shape[1] // steps.size)
                seen = [graph.first(one, columns[0], count) for one in held]
                graph.apply("ggml_flash_attn_ext", heads, *seen, mask, steps.scale, 0.0, 0.0, out=buffers[1])
            else:
                self.attention.add(graph, buffers[5], *columns, buffers[1], self._next)
            x = steps.after(draft, x, layer, buffers)
        draft.normed(x, steps.decoder.norm, buffers[2])
        return graph


def _plain(layer: PotLayer) -> bool:
    """Say whether a layer's entries, and so those of all, lie as ggml wants them: floats, with room."""
    keys, values = layer.keys, layer.values
    return (
        len(keys) == 1
        and layer.fill < layer.capacity
        and keys.shape == values.shape
        and keys.dtype == values.dtype == torch.float32
        and not (keys.data_ptr() | values.data_ptr()) % ALIGNMENT
    )


def compiled(size: int, group: int, scale: float) -> "Attention | str":
    """Return attention for this processor, or why there is none: empty where llvmlite is not installed."""
    try:
        from infinipot.hf.packed.compiled import attention  # needs llvmlite

        return attention(size, group, scale)
    except ModuleNotFoundError:
        return ""
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:  # or it is an old one
        why = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
        return f"{SLOWER}: llvmlite cannot be used here ({why})"


def tried(
    steps: Steps, pot: Pot, keys: Mapping[int, Tensor], token: Tensor, at: Tensor, frequencies: Tensor
) -> Iterator[tuple[WholeToken | None, Tensor]]:
    """Yield what a token comes to, beside its graph: without one, then with each, the fastest first."""
    found = compiled(steps.size, steps.widths[0] // steps.widths[1], steps.scale)
    wrong = "" if isinstance(found, str) else f"{SLOWER}: what llvmlite compiled comes to something else here"
    for whole in (None, WholeToken(steps, found), *([WholeToken(steps, wrong)] if wrong else [])):
        pot.clear()
        for index, one in keys.items():  # entries to attend to, whatever they mean
            pot.append(index, torch.cat((one, -one), 2), torch.cat((one, -one), 2))
        steps.whole = whole
        yield whole, steps.run(token, at, pot, frequencies)
