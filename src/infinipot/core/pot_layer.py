"""The slots of one attention layer that is distilled.

Slot i holds a key, a value and the numbers of `columns` beside them; `keep` moves the chosen slots to the
front and turns their keys to their new places (CR-RoPE, section 3.5). Knows no model, text or policy.
"""

from collections.abc import Sequence, Set
from typing import Any, ClassVar

import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec
from infinipot.core.columns import COLUMNS, NUMBERS, SLOTS, STARTING_AT_ZERO, Column, pick
from infinipot.core.cuda.dispatch import fused, kernels
from infinipot.core.evidence import Evidence
from infinipot.core.rope import Rotation
from infinipot.core.scores import received
from infinipot.core.state import State, damaged
from infinipot.errors import PotOverflowError


class PotLayer:
    """The slots of one layer that attends to everything.

    A layer that `grows` takes more memory when it is full instead of refusing; one that does not `reset`
    leaves every key where it was written.
    """

    columns: ClassVar[tuple[Column, ...]] = COLUMNS

    def __init__(
        self, capacity: int, keep: int, rotation: Rotation, reset: bool = True, grows: bool = False
    ) -> None:
        self.capacity, self.max_anchors, self.rotation = capacity, keep, rotation
        self.reset, self.grows = reset, grows
        self.fill = 0
        self.tokens = 0  # tokens ever written here, the catalyst's excepted
        self.anchored = 0  # leading slots that were kept before, so their anchor is not the key itself
        self.catalyst: Tensor | None = None  # [B, Hkv, S] attention received from the last catalyst
        self.last: Tensor | None = None  # [B, Hkv, S] attention received from the last tokens
        self.summed = False  # `running` was observed
        self.numbered = False  # `sentence` is asked for
        self.keys = self.values = self.anchors = torch.empty(0)
        self.written = self.source = self.novelty = self.running = self.sentence = torch.empty(0)
        self.dropped = torch.empty(0)  # `tokens` less `fill`, on the device: a captured graph counts so

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        # Head counts come from the tensors: under tensor parallelism the config's are wrong.
        turns = self.reset and not self.grows  # else no key is ever turned
        slots = {"fill": self.capacity, "anchored": self.max_anchors if turns else 0}
        for column in self.columns:
            setattr(self, column.name, column.empty(keys, values, slots[column.length]))
        self.dropped = torch.full((1,), self.tokens - self.fill, dtype=torch.long, device=keys.device)

    @property
    def entries(self) -> int:
        """KV entries held per head."""
        return self.fill

    def append(self, keys: Tensor, values: Tensor, turn: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Write new entries [B, Hkv, n, D] after the last slot, by a kernel that turns them where that has
        queries and angles to `turn` them by; return all keys and values."""
        if self.keys.numel() == 0:
            self._allocate(keys, values)
        count = keys.shape[2]
        end = self.fill + count
        if end > self.capacity:
            self._enlarge(end)
        self._write(keys, values, end, turn)
        self.fill, self.tokens = end, self.tokens + count
        return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)

    def _write(self, keys: Tensor, values: Tensor, end: int, turn: list[Tensor] | None) -> None:
        fast = kernels(keys.device)
        if fast and fast.serves(keys, self.keys) and values.shape == keys.shape:
            into = [getattr(self, column.name) for column in SLOTS]
            fast.append(keys, values, into, self.dropped, self.fill, turn)
            return
        assert turn is None
        count = end - self.fill
        self.keys.narrow(2, self.fill, count).copy_(keys)
        self.values.narrow(2, self.fill, count).copy_(values)
        self._number(end)

    def _number(self, end: int) -> None:
        """Fill the numbers beside new slots, up to `end`."""
        count = end - self.fill  # narrow: an answer's tokens come one by one, and each layer has its columns
        places = self.fill if count == 1 else torch.arange(self.fill, end, device=self.dropped.device)
        self.source.narrow(2, self.fill, count).copy_(self.dropped + places)
        for name in STARTING_AT_ZERO:
            getattr(self, name).narrow(2, self.fill, count).zero_()

    def write_at(self, place: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one entry [1, Hkv, 1, D] at place [1], uncounted; return the keys and values of all slots."""
        self.keys.index_copy_(2, place, keys)
        self.values.index_copy_(2, place, values)
        return self.keys, self.values

    @property
    def by_address(self) -> bool:
        """Say whether kernels can write and read the layer where its `addresses` say it lies."""
        fast = kernels(self.keys.device)
        return bool(fast and fast.serves(self.keys, self.keys) and self.keys.shape == self.values.shape)

    @property
    def addresses(self) -> list[int]:
        """Where the buffers lie that a new token is written to and attends to."""
        return [self.keys.data_ptr(), self.values.data_ptr()]

    def commit(self, count: int, novelty: Tensor | None = None) -> None:
        """Count `count` entries that a graph wrote after the last slot, with their novelty if it is known."""
        end = self.fill + count
        self._number(end)
        if novelty is not None:
            self.novelty[:, :, self.fill : end] = novelty.to(self.novelty.device)
        self.fill, self.tokens = end, self.tokens + count

    def reserve(self, wanted: int) -> None:
        """See to it that `wanted` slots are there, where the layer grows."""
        if self.grows and wanted > self.capacity:
            self._enlarge(wanted)

    def _enlarge(self, wanted: int) -> None:
        """Make room for `wanted` slots: the next power of two, so that this is rare and sizes are few."""
        if not self.grows:
            problem = f"{wanted} entries do not fit a pot of {self.capacity}"
            raise PotOverflowError(problem, remedy="use a Reader, which distils in time")
        bigger = self.copy(capacity=1 << (wanted - 1).bit_length())
        for name in (*(column.name for column in self.columns), "capacity"):
            setattr(self, name, getattr(bigger, name))

    def evidence(self, index: int, opening: int, recent: int) -> Evidence:
        """Return what is known of the slots of this layer, the model's `index`th."""
        source, novelty = self.source[:, :, : self.fill], self.novelty[:, :, : self.fill]
        running = self.running[:, :, : self.fill] if self.summed else None
        sentence = self.sentence[:, :, : self.fill] if self.numbered else None
        return Evidence(index, source, novelty, self.catalyst, self.last, running, opening, recent, sentence)

    def observe(
        self, queries: Tensor, keys: Tensor, spec: LogitSpec, needs: Set[str], window: int, catalyst: int,
        sums: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        """Take from the attention of queries [B, Hq, Q, D] on all keys what a policy will ask for.

        The last `catalyst` queries are not text: they leave their own score and no other trace.
        """
        scale, softcap = spec.scale, spec.softcap
        if catalyst and "catalyst" in needs:
            sums = [one[:, :, -catalyst:] for one in sums]
            self.catalyst = _received(queries[:, :, -catalyst:], keys, spec, sums)[..., :-catalyst]
        text, end = queries.shape[2] - catalyst, keys.shape[2] - catalyst
        if not text:
            return
        queries, keys = queries[:, :, :text], keys[:, :, :end]
        if "last" in needs:
            self.last = received(queries[:, :, -window:], keys, scale, softcap)
        if "running" in needs:
            self.summed = True
            self.running[:, :, :end] += received(queries, keys, scale, softcap)

    def trim(self, count: int) -> None:
        """Forget the last `count` entries."""
        self.fill, self.tokens = self.fill - count, self.tokens - count

    def mark(self) -> Any:
        """Return what `rewind` needs to undo an append."""
        running = self.running[..., : self.fill].clone() if self.summed else None
        return self.fill, self.tokens, self.last, running

    def rewind(self, mark: Any) -> None:
        """Forget what was appended since `mark`."""
        self.fill, self.tokens, self.last, running = mark
        if running is not None:
            self.running[..., : self.fill] = running

    def keep(self, slots: Tensor) -> None:
        """Keep the slots [B, Hkv, n] (sorted) and nothing else; with `reset`, slot i then has position i.

        More than `max_anchors` have no room for their anchors: these keys as they are become their own.
        """
        count = slots.shape[-1]
        if self.reset:
            anchors, written = self._anchors(slots)
            places = torch.arange(count, device=slots.device)
            self.keys[:, :, :count] = self.rotation.back(anchors, written - places)
            self.anchored = count if count <= self.max_anchors else 0
            self.anchors[:, :, : self.anchored] = anchors[:, :, : self.anchored]
            self.written[:, :, : self.anchored] = written[:, :, : self.anchored]
        else:
            self.keys[:, :, :count] = pick(self.keys, slots)
        self.values[:, :, :count] = pick(self.values, slots)
        for column in NUMBERS:
            numbers = getattr(self, column.name)
            numbers[:, :, :count] = numbers.gather(2, slots)
        self.dropped += self.fill - count
        self.fill = count
        self.catalyst, self.last = None, None if self.last is None else self.last.gather(2, slots)

    def _anchors(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys as first written, and the positions they were written at."""
        keys = pick(self.keys, slots)
        if self.anchored == 0:
            return keys, slots
        old = slots < self.anchored
        earlier = slots.clamp(max=self.anchored - 1)
        anchors = torch.where(old[..., None], pick(self.anchors, earlier), keys)
        return anchors, torch.where(old, self.written.gather(2, earlier), slots)

    def copy(self, capacity: int | None = None) -> "PotLayer":
        """Return a second pot layer with the same content, larger if so wished."""
        twin = self._empty(capacity or self.capacity)
        twin.numbered = self.numbered
        twin.restore(self)
        return twin

    def _empty(self, capacity: int) -> "PotLayer":
        return PotLayer(capacity, self.max_anchors, self.rotation, self.reset, self.grows)

    def clear(self) -> None:
        """Forget every entry; the memory stays."""
        self.fill = self.tokens = self.anchored = 0
        self.catalyst = self.last = None
        self.dropped.fill_(0)

    def restore(self, other: "PotLayer") -> None:
        """Take over another layer's content without moving in memory."""
        self.fill, self.tokens, self.anchored = other.fill, other.tokens, other.anchored
        self.last, self.summed = other.last, other.summed  # `last` is replaced, never written
        self.dropped.fill_(self.tokens - self.fill)
        if not other.keys.numel():  # empty, so nothing here counts
            return
        if not self.keys.numel():
            self._allocate(other.keys, other.values)
        for column in self.columns:
            end = getattr(self, column.length)
            getattr(self, column.name)[:, :, :end] = getattr(other, column.name)[:, :, :end]

    def tensors(self) -> list[Tensor]:
        """Every buffer this layer holds."""
        return [getattr(self, column.name) for column in self.columns]

    def state(self) -> State:
        """Return its content: views, as long as they are filled."""
        filled = {"running": self.summed, "sentence": self.numbered}
        tensors = {
            column.name: getattr(self, column.name)[:, :, : getattr(self, column.length)]
            for column in self.columns
            if self.keys.numel() and filled.get(column.name, True)
        }
        if self.last is not None:
            tensors["last"] = self.last
        names = ("fill", "tokens", "anchored", "summed")
        return State(tensors, {name: int(getattr(self, name)) for name in names})

    def load(self, state: State, device: torch.device) -> None:
        """Take over a state without moving in memory; it must fit this layer."""
        fill = state.number("fill", 0, 2**62 if self.grows else self.capacity)
        anchored = state.number("anchored", 0, min(fill, self.max_anchors))
        tokens, summed = state.number("tokens", fill, 2**62), bool(state.number("summed", 0, 1))
        if fill:
            keys, values = (state.tensors.get(name) for name in ("keys", "values"))
            if self.keys.numel() == 0 and keys is not None and values is not None and keys.dim() == 4:
                self._allocate(keys.to(device), values.to(device))
            if fill > self.capacity:
                self._enlarge(fill)
            self._load_columns(state, {"fill": fill, "anchored": anchored}, tokens)
        self.fill, self.tokens, self.anchored, self.summed = fill, tokens, anchored, summed
        self.catalyst, self.last = None, None
        if "last" in state.tensors:
            self.last = state.tensor("last", self.novelty, *self.source.shape[:2], fill)
        self.dropped.fill_(tokens - fill)

    def _load_columns(self, state: State, ends: dict[str, int], tokens: int) -> None:
        found = {}
        for column in self.columns:
            name, mine, end = column.name, getattr(self, column.name), ends[column.length]
            if name == "running" and name not in state.tensors:
                found[name] = torch.zeros_like(mine[:, :, :end])
            elif name == "sentence" and name not in state.tensors:
                found[name] = torch.zeros_like(mine[:, :, :end])
                if self.numbered:  # each slot is one of its own
                    found[name] += torch.arange(end, device=mine.device)
            else:
                found[name] = state.tensor(name, mine, *mine.shape[:2], end, *mine.shape[3:])
        for name, most in (("source", tokens), ("written", self.capacity)):
            places = found.get(name, torch.empty(0))
            if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < most:
                raise damaged(f"{name} holds places that do not exist")
        for name, tensor in found.items():
            getattr(self, name)[:, :, : tensor.shape[2]] = tensor


def _received(queries: Tensor, keys: Tensor, spec: LogitSpec, sums: Sequence[Tensor]) -> Tensor:
    """`scores.received`, by whatever is fastest on the device."""
    fast = kernels(keys.device)
    if fast and spec.softcap is None and fast.serves(queries, keys):
        return fast.received(queries, keys, spec.scale, sums)  # type: ignore[no-any-return]  # loaded by name
    return fused(received, keys.device)(queries, keys, spec.scale, spec.softcap)
