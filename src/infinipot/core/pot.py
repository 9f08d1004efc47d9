"""The pot: a fixed number of KV entries per layer and head, and what a policy may know of them.

New tokens are written after the last slot; `keep` moves the chosen slots to the front. Evidence moves along
with its slot, so a policy needs no state of its own. Knows nothing of models, text or policies. A pot may be
told to grow, for methods that do not bound their memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec, attend, attend_grouped
from infinipot.core.config import DEFAULT_MODE, ReadingMode
from infinipot.core.evidence import Evidence, Need
from infinipot.core.keep import addresses, keep_all
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer
from infinipot.core.state import State, damaged, joined
from infinipot.core.window_layer import WindowLayer

ENDLESS = 2**62  # room of a pot that grows


@dataclass(frozen=True)
class LayerSpec:
    """What a pot must know of one attention layer: its RoPE, its window if it is a local one, and for 8 bits
    what its keys have in common."""

    frequencies: Tensor  # [R/2] of the layer's RoPE
    window: int | None = None
    offset: Tensor | None = None  # [Hkv, D] of keys at position 0


@dataclass(frozen=True)
class Counters:
    """What the host knows of a pot: filled slots, tokens ever written, slots with anchors, distillations."""

    fill: int
    tokens: int
    anchored: int
    cycles: int


class Pot:
    """All layers of one model: at most `capacity` entries per layer and head, unless it is to grow.

    bits  16: entries as the model makes them; 8: rounded, in less than half the memory.
    """

    def __init__(
        self,
        specs: Sequence[LayerSpec],
        capacity: int,
        keep: int,
        mode: ReadingMode = DEFAULT_MODE,
        bits: int = 16,
    ) -> None:
        if bits == 8:
            mode.require_rounding()
        self.bits = bits
        self.capacity, self.max_anchors, self.mode = capacity, keep, mode
        self.max_position = capacity  # positions for which a model's RoPE must hold still
        self.lengths = frozenset({1})  # numbers of tokens that come again and again
        self.needs: frozenset[Need] = frozenset({"catalyst"})  # what `observe` takes down
        self.window = 1  # tokens whose attention counts as that of the last
        local = not all(spec.window is not None for spec in specs)  # else nothing would be left to distil
        ropes = {id(spec.frequencies): spec.frequencies for spec in specs}  # layers of one share one table
        rotations = {key: Rotation(frequencies, 2 * capacity) for key, frequencies in ropes.items()}
        self.layers = [self._layer(spec, rotations[id(spec.frequencies)], local) for spec in specs]
        self.cycles = 0
        self.catalyst_length = 0  # last tokens of the coming forward that are scored, then dropped
        self.observing = True
        self.by_address = True  # a model's attention is one that kernels know, for any pot at its address
        self._table: Tensor | None = None  # addresses of all layers, once they are there

    def _layer(self, spec: LayerSpec, rotation: Rotation, local: bool) -> PotLayer | WindowLayer:
        # A window at least as wide as the pot hides nothing: such a layer is distilled like any other.
        narrow = spec.window is not None and (local if self.mode.grows else spec.window < self.capacity)
        if spec.window is not None and narrow:
            return WindowLayer(spec.window, rotation)
        if self.bits == 8:
            assert spec.offset is not None
            return RoundedLayer(self.capacity, rotation, spec.offset)
        reset = self.mode.positions == "reset"
        return PotLayer(self.capacity, self.max_anchors, rotation, reset, self.mode.grows)

    @property
    def pot_layers(self) -> list[PotLayer]:
        """The layers that are distilled."""
        return [layer for layer in self.layers if isinstance(layer, PotLayer)]

    @property
    def fill(self) -> int:
        """Filled slots of the pot layers."""
        return self.pot_layers[0].fill

    @property
    def tokens(self) -> int:
        """Tokens ever written, the catalyst's excepted."""
        return self.pot_layers[0].tokens

    @property
    def position(self) -> int:
        """The next token's position."""
        return self.tokens if self.mode.positions == "kept" else self.fill

    @property
    def room(self) -> int:
        """Free slots."""
        return ENDLESS if self.mode.grows else self.capacity - self.fill

    def counters(self) -> Counters:
        """What the host counts of this pot, the same for all pot layers."""
        first = self.pot_layers[0]
        return Counters(first.fill, first.tokens, first.anchored, self.cycles)

    def set_counters(self, counters: Counters) -> None:
        """Count what a captured graph has done, or undo what a failed capture has counted."""
        for layer in self.pot_layers:
            layer.fill, layer.tokens, layer.anchored = counters.fill, counters.tokens, counters.anchored
        self.cycles = counters.cycles

    def reserve(self, slots: int) -> None:
        """See to it that so many slots are there, where the pot grows."""
        for layer in self.pot_layers:
            layer.reserve(slots)

    @property
    def slots(self) -> int:
        """Slots of all layers and heads together."""
        return sum(layer.source.numel() for layer in self.pot_layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.tensors())

    def occupy(self) -> None:
        """Take the memory of every slot now, where an operating system gives pages when they are written."""
        for layer in self.layers:
            for tensor in layer.tensors():
                tensor.add_(0)

    def append(
        self, layer: int, keys: Tensor, values: Tensor, turn: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values [B, Hkv, n, D]; return everything its queries may see."""
        into = self.layers[layer]
        if not isinstance(into, PotLayer):
            return into.append(keys, values, self.catalyst_length)
        return into.append(keys, values, turn)

    def places(self, count: int, device: torch.device) -> Tensor:
        """Positions [1, n] of the next tokens."""
        return torch.arange(self.position, self.position + count, device=device)[None]

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
        """Attention of new queries [B, Hq, n, D] on what `append` returned; observed on the way."""
        into, mode, sums = self.layers[layer], self.mode, list[Tensor]()
        if mode.positions == "grouped" and isinstance(into, PotLayer):  # a local layer sees nothing far away
            extended = replace(spec, window=mode.window)
            out = attend_grouped(queries, keys, values, extended, into.rotation, mode.group)
        else:
            out = attend(queries, keys, values, spec, sums)
        self.observe(layer, queries, keys, spec, sums)
        return out

    @property
    def is_unobserved(self) -> bool:
        """Say whether a token's attention is the usual one and leaves nothing that a policy asks for."""
        seen = self.observing and self.needs & {"last", "running"}
        return not seen and not self.catalyst_length and self.mode.positions != "grouped"

    def observe(
        self, layer: int, queries: Tensor, keys: Tensor, spec: LogitSpec, sums: Sequence[Tensor] = ()
    ) -> None:
        """Take down what the policy will want to know of one layer's attention; `sums` are of `attend`."""
        seen = self.layers[layer]
        if self.observing and isinstance(seen, PotLayer):
            seen.observe(queries, keys, spec, self.needs, self.window, self.catalyst_length, sums)

    @contextmanager
    def writing(self, catalyst: int = 0, observing: bool = True) -> Iterator[None]:
        """Around a forward of tokens and, last, a catalyst: all of it is written, or nothing.

        The catalyst's entries are dropped at the end. Tokens that are never distilled need not be observed.
        """
        before = [layer.mark() for layer in self.layers]
        self.catalyst_length, self.observing = catalyst, observing
        try:
            yield
            for full in self.pot_layers:
                full.trim(catalyst)
        except BaseException:
            for layer, mark in zip(self.layers, before, strict=True):
                layer.rewind(mark)
            raise
        finally:
            self.catalyst_length, self.observing = 0, True

    def note_novelty(self, novelty: Tensor) -> None:
        """Write novelty [B, n] into the column of the last n slots, for every layer and head."""
        for layer in self.pot_layers:
            noted = novelty[:, None].to(layer.novelty.device)
            layer.novelty[:, :, layer.fill - novelty.shape[1] : layer.fill] = noted

    def note_sentences(self, numbers: Tensor) -> None:
        """Write the numbers of sentences [B, n] into the column of the last n slots, as novelty is."""
        for layer in self.pot_layers:
            noted = numbers[:, None].to(layer.sentence.device)
            layer.sentence[:, :, layer.fill - numbers.shape[1] : layer.fill] = noted

    def evidence(self, opening: int = 0, recent: int = 0) -> list[Evidence | None]:
        """What is known of each layer's slots; None for a local layer, which is not distilled."""
        return [
            layer.evidence(index, opening, recent) if isinstance(layer, PotLayer) else None
            for index, layer in enumerate(self.layers)
        ]

    def keep(self, slots: Sequence[Tensor | None]) -> None:
        """Keep the given slots [B, Hkv, n] of every pot layer; positions become 0 .. n - 1 if they reset."""
        before = self.fill
        if self._table is None:
            self._table = addresses(self.pot_layers)
        keep_all(self.pot_layers, [chosen for chosen in slots if chosen is not None], self._table)
        for layer in self.layers:
            if isinstance(layer, WindowLayer) and self.mode.positions == "reset":
                layer.rebase(before - self.fill)
        self.cycles += 1

    def clear(self) -> None:
        """Forget everything; no tensor moves."""
        for layer in self.layers:
            layer.clear()
        self.cycles = 0

    def restore(self, other: "Pot") -> None:
        """Take over another pot's content in place: no tensor of a pot layer moves."""
        for layer, saved in zip(self.layers, other.layers, strict=True):
            if isinstance(layer, PotLayer) and isinstance(saved, PotLayer):
                layer.restore(saved)
            elif isinstance(layer, WindowLayer) and isinstance(saved, WindowLayer):
                layer.rewind(saved.mark())
        self.cycles = other.cycles

    def state(self) -> State:
        """Return its content: views on this pot."""
        found = joined({f"{index:03d}": layer.state() for index, layer in enumerate(self.layers)})
        return State(found.tensors, {**found.numbers, "cycles": self.cycles, "layers": len(self.layers)})

    def load(self, state: State, device: torch.device) -> None:
        """Take over a state in place; one that does not fit leaves the pot empty."""
        try:
            state.number("layers", len(self.layers), len(self.layers))
            cycles = state.number("cycles", 0, 2**62)
            for index, layer in enumerate(self.layers):
                layer.load(state.part(f"{index:03d}"), device)
            if len({(layer.fill, layer.tokens, layer.anchored) for layer in self.pot_layers}) > 1:
                raise damaged("layers differ in length")
        except BaseException:
            self.clear()
            raise
        self.cycles = cycles

    def fork(self) -> "Pot":
        """Return an independent pot with the same content."""
        twin = Pot([], self.capacity, self.max_anchors, self.mode, self.bits)
        twin.layers = [layer.copy() for layer in self.layers]
        twin.cycles, twin.max_position = self.cycles, self.max_position
        twin.needs, twin.window, twin.lengths = self.needs, self.window, self.lengths
        twin.by_address = self.by_address
        return twin
