"""The pot: a fixed number of KV entries per layer and head.

Slot i of a pot layer has position i: new tokens are written after the last
slot, and `keep` moves the chosen slots to the front and turns their keys to
their new places (CR-RoPE, section 3.5). Each slot carries columns beside its key and value
(where in the text it came from, how novel it was) that move with it, so a
policy needs no state of its own. Knows nothing of models, text or policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infinipot.errors import PotOverflowError
from infinipot.rope import Rotation


@dataclass(frozen=True)
class LayerSpec:
    """What a pot must know of one attention layer: its RoPE, and its window if it is a local one."""

    frequencies: Tensor  # [R/2] of the layer's RoPE
    window: int | None = None


@dataclass(frozen=True)
class Evidence:
    """All a policy may see of one layer when it chooses; S slots are filled."""

    layer: int
    source: Tensor  # [B, Hkv, S] position in the text, counted from 0
    novelty: Tensor  # [B, Hkv, S] -log p when it was read; zeros where nobody asked for it
    catalyst: Tensor | None  # [B, Hkv, S] attention received from the catalyst
    opening: int = 0  # first slots that must stay
    recent: int = 0  # last slots that must stay

    @property
    def protected(self) -> Tensor:
        """[S], true for slots that must stay."""
        places = torch.arange(self.source.shape[-1], device=self.source.device)
        return (places < self.opening) | (places >= len(places) - self.recent)


class PotLayer:
    """The slots of one layer that attends to everything."""

    window = None

    def __init__(self, capacity: int, keep: int, rotation: Rotation) -> None:
        self.capacity, self.keep_most, self.rotation = capacity, keep, rotation
        self.fill = 0
        self.tokens = 0  # tokens ever written here, the catalyst's excepted
        self.anchored = 0  # leading slots that were kept before, so their anchor is not the key itself
        self.score: Tensor | None = None  # [B, Hkv, S] left here by the last watched forward
        self.keys = self.values = self.anchors = torch.empty(0)
        self.written = self.source = self.novelty = torch.empty(0)

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        # Head counts come from the tensors: under tensor parallelism the config's are wrong.
        batch, heads, _, dim = keys.shape
        shape = (batch, heads, self.capacity)
        self.keys = keys.new_zeros(*shape, dim)
        self.values = values.new_zeros(*shape, values.shape[-1])
        self.anchors = keys.new_zeros(batch, heads, self.keep_most, dim)
        self.written = torch.zeros(batch, heads, self.keep_most, dtype=torch.long, device=keys.device)
        self.source = torch.zeros(shape, dtype=torch.long, device=keys.device)
        self.novelty = torch.zeros(shape, dtype=torch.float32, device=keys.device)

    @property
    def entries(self) -> int:
        """KV entries held per head."""
        return self.fill

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new entries [B, Hkv, n, D] after the last slot; return all keys and values."""
        if self.keys.numel() == 0:
            self._allocate(keys, values)
        count = keys.shape[2]
        end = self.fill + count
        if end > self.capacity:
            raise PotOverflowError(
                f"{end} entries do not fit a pot of {self.capacity}: use a Reader, which distils in time"
            )
        self.keys[:, :, self.fill : end] = keys
        self.values[:, :, self.fill : end] = values
        self.source[:, :, self.fill : end] = torch.arange(
            self.tokens, self.tokens + count, device=keys.device
        )
        self.novelty[:, :, self.fill : end] = 0
        self.fill, self.tokens = end, self.tokens + count
        return self.keys[:, :, :end], self.values[:, :, :end]

    def trim(self, count: int) -> None:
        """Forget the last `count` entries."""
        self.fill, self.tokens = self.fill - count, self.tokens - count

    def mark(self) -> Any:
        """Return what `rewind` needs to undo an append."""
        return self.fill, self.tokens

    def rewind(self, mark: Any) -> None:
        """Forget what was appended since `mark`."""
        self.fill, self.tokens = mark

    def keep(self, slots: Tensor) -> None:
        """Keep the slots [B, Hkv, n] (sorted) and nothing else; slot i then has position i."""
        count = slots.shape[-1]
        anchors, written = self._anchors(slots)
        places = torch.arange(count, device=slots.device)
        self.keys[:, :, :count] = self.rotation.back(anchors, written - places)
        self.anchors[:, :, :count] = anchors
        self.written[:, :, :count] = written
        self.values[:, :, :count] = _pick(self.values, slots)
        self.source[:, :, :count] = self.source.gather(2, slots)
        self.novelty[:, :, :count] = self.novelty.gather(2, slots)
        self.fill = self.anchored = count
        self.score = None

    def _anchors(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys as first written, and the positions they were written at."""
        keys = _pick(self.keys, slots)
        if self.anchored == 0:
            return keys, slots
        old = slots < self.anchored
        earlier = slots.clamp(max=self.anchored - 1)
        anchors = torch.where(old[..., None], _pick(self.anchors, earlier), keys)
        return anchors, torch.where(old, self.written.gather(2, earlier), slots)

    def copy(self) -> PotLayer:
        """Return a second pot layer with the same content."""
        twin = PotLayer(self.capacity, self.keep_most, self.rotation)
        twin.fill, twin.tokens, twin.anchored = self.fill, self.tokens, self.anchored
        if self.keys.numel():
            twin._allocate(self.keys, self.values)
            for name, length in _COLUMNS.items():
                end = self.fill if length == "fill" else self.anchored
                getattr(twin, name)[:, :, :end] = getattr(self, name)[:, :, :end]
        return twin

    def tensors(self) -> list[Tensor]:
        """Every buffer this layer holds."""
        return [getattr(self, name) for name in _COLUMNS]


_COLUMNS = {
    "keys": "fill",
    "values": "fill",
    "source": "fill",
    "novelty": "fill",
    "anchors": "anchored",
    "written": "anchored",
}


class WindowLayer:
    """The last `window` - 1 entries of a local layer, exactly; never distilled, only re-based.

    It attends to nothing older, so it needs no pot; but its positions must follow
    when the pot layers' positions are reset.
    """

    def __init__(self, window: int, rotation: Rotation) -> None:
        self.window, self.rotation = window, rotation
        self.keys = self.values = self.anchors = torch.empty(0)
        self.turned = torch.empty(0, dtype=torch.long)  # [n] positions each key was moved back since written

    @property
    def entries(self) -> int:
        """KV entries held per head."""
        return self.keys.shape[2] if self.keys.numel() else 0

    def append(self, keys: Tensor, values: Tensor, volatile: int) -> tuple[Tensor, Tensor]:
        """Return the window's and the new keys and values; remember all but the last `volatile`."""
        if self.keys.numel() == 0:
            self.keys = self.anchors = keys[:, :, :0]
            self.values = values[:, :, :0]
            self.turned = self.turned.to(keys.device)
        seen, seen_values = torch.cat((self.keys, keys), 2), torch.cat((self.values, values), 2)
        end = seen.shape[2] - volatile
        start = max(0, end - self.window + 1)
        self.anchors = torch.cat((self.anchors, keys), 2)[:, :, start:end].clone()
        self.turned = torch.cat((self.turned, self.turned.new_zeros(keys.shape[2])))[start:end]
        self.keys, self.values = seen[:, :, start:end].clone(), seen_values[:, :, start:end].clone()
        return seen, seen_values

    def mark(self) -> Any:
        """Return what `rewind` needs to undo an append: tensors are replaced, never written."""
        return self.keys, self.values, self.anchors, self.turned

    def rewind(self, mark: Any) -> None:
        """Forget what was appended since `mark`."""
        self.keys, self.values, self.anchors, self.turned = mark

    def rebase(self, shift: int) -> None:
        """Move every key `shift` positions back."""
        self.turned = self.turned + shift
        self.keys = self.rotation.back(self.anchors, self.turned.expand(self.anchors.shape[:-1]))

    def copy(self) -> WindowLayer:
        """Return a second window with the same content."""
        twin = WindowLayer(self.window, self.rotation)
        twin.rewind(self.mark())
        return twin

    def tensors(self) -> list[Tensor]:
        """Every buffer this layer holds."""
        return [self.keys, self.values, self.anchors, self.turned]


class Pot:
    """All layers of one model: at most `capacity` entries per layer and head, whatever is read."""

    def __init__(self, specs: Sequence[LayerSpec], capacity: int, keep: int) -> None:
        self.capacity, self.keep_most = capacity, keep
        rotations: dict[int, Rotation] = {}  # layers of one RoPE share one table
        for spec in specs:
            if id(spec.frequencies) not in rotations:
                rotations[id(spec.frequencies)] = Rotation(spec.frequencies, 2 * capacity)
        self.layers = [self._layer(spec, rotations[id(spec.frequencies)]) for spec in specs]
        self.cycles = 0
        self.watch = 0  # how many last tokens of the coming forward are catalyst: scored, then dropped

    def _layer(self, spec: LayerSpec, rotation: Rotation) -> PotLayer | WindowLayer:
        # A window at least as wide as the pot hides nothing: such a layer is distilled like any other.
        if spec.window is None or spec.window >= self.capacity:
            return PotLayer(self.capacity, self.keep_most, rotation)
        return WindowLayer(spec.window, rotation)

    @property
    def pot_layers(self) -> list[PotLayer]:
        """The layers that are distilled."""
        return [layer for layer in self.layers if isinstance(layer, PotLayer)]

    @property
    def fill(self) -> int:
        """Filled slots of the pot layers: the next token's position."""
        return self.pot_layers[0].fill

    @property
    def tokens(self) -> int:
        """Tokens ever written, the catalyst's excepted."""
        return self.pot_layers[0].tokens

    @property
    def room(self) -> int:
        """Free slots."""
        return self.capacity - self.fill

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.tensors())

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values [B, Hkv, n, D]; return everything its queries may see."""
        into = self.layers[layer]
        return (
            into.append(keys, values) if isinstance(into, PotLayer) else into.append(keys, values, self.watch)
        )

    @contextmanager
    def writing(self, catalyst: int = 0) -> Iterator[None]:
        """Around a forward of tokens and, last, a catalyst: all of it is written, or nothing.

        The catalyst's entries are there while it runs, and dropped at the end.
        """
        before = [layer.mark() for layer in self.layers]
        self.watch = catalyst
        try:
            yield
            for full in self.pot_layers:
                full.trim(catalyst)
        except BaseException:
            for layer, mark in zip(self.layers, before, strict=True):
                layer.rewind(mark)
            raise
        finally:
            self.watch = 0

    def note_novelty(self, novelty: Tensor) -> None:
        """Write novelty [B, n] into the column of the last n slots, for every layer and head."""
        for layer in self.pot_layers:
            layer.novelty[:, :, layer.fill - novelty.shape[1] : layer.fill] = novelty[:, None].to(
                layer.novelty.device
            )

    def evidence(self, opening: int = 0, recent: int = 0) -> list[Evidence | None]:
        """What is known of each layer's slots; None for a local layer, which is not distilled."""
        return [self._evidence(index, opening, recent) for index in range(len(self.layers))]

    def _evidence(self, index: int, opening: int, recent: int) -> Evidence | None:
        layer = self.layers[index]
        if not isinstance(layer, PotLayer):
            return None
        return Evidence(
            layer=index,
            source=layer.source[:, :, : layer.fill],
            novelty=layer.novelty[:, :, : layer.fill],
            catalyst=layer.score,
            opening=opening,
            recent=recent,
        )

    def keep(self, slots: Sequence[Tensor | None]) -> None:
        """Keep the given slots [B, Hkv, n] of every pot layer, and reset positions to 0 .. n - 1."""
        before = self.fill
        for layer, chosen in zip(self.layers, slots, strict=True):
            if isinstance(layer, PotLayer) and chosen is not None:
                layer.keep(chosen)
        shift = before - self.fill
        for layer in self.layers:
            if isinstance(layer, WindowLayer):
                layer.rebase(shift)
        self.cycles += 1

    def fork(self) -> Pot:
        """Return an independent pot with the same content."""
        twin = Pot([], self.capacity, self.keep_most)
        twin.layers = [layer.copy() for layer in self.layers]
        twin.cycles = self.cycles
        return twin


def _pick(tensor: Tensor, slots: Tensor) -> Tensor:
    """Gather [B, Hkv, S, D] at slots [B, Hkv, n]."""
    return tensor.gather(2, slots[..., None].expand(*slots.shape, tensor.shape[-1]))
