"""The exact window of a local attention layer: its last entries, never distilled, only re-based."""

from typing import Any

import torch
from torch import Tensor

from infinipot.core.rope import Rotation
from infinipot.core.state import OTHER, State, damaged


class WindowLayer:
    """The last `window` - 1 entries of a layer that attends to nothing older, so that it needs no pot.

    Its positions must follow when the pot layers' positions are reset.
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

    def clear(self) -> None:
        """Forget every entry."""
        self.rewind((torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.long)))

    def rebase(self, shift: int) -> None:
        """Move every key `shift` positions back."""
        self.turned = self.turned + shift
        self.keys = self.rotation.back(self.anchors, self.turned.expand(self.anchors.shape[:-1]))

    def copy(self) -> "WindowLayer":
        """Return a second window with the same content."""
        twin = WindowLayer(self.window, self.rotation)
        twin.rewind(self.mark())
        return twin

    def tensors(self) -> list[Tensor]:
        """Every buffer this layer holds."""
        return list(self.mark())

    def state(self) -> State:
        """Return the window's content."""
        names = ("keys", "values", "anchors", "turned")
        return State({name: getattr(self, name) for name in names} if self.keys.numel() else {})

    def load(self, state: State, device: torch.device) -> None:
        """Take over a state."""
        self.clear()
        keys = state.tensors.get("keys")
        if keys is None:
            return
        if keys.dim() != 4 or keys.shape[2] > self.window or not keys.is_floating_point():
            raise damaged("window is wider than the model's", OTHER)
        keys = keys.to(device)
        width = state.tensors.get("values", keys).shape[-1]
        values = state.tensor("values", keys, *keys.shape[:3], width)
        anchors = state.tensor("anchors", keys, *keys.shape)
        self.rewind((keys, values, anchors, state.tensor("turned", self.turned.to(device), keys.shape[2])))
        turned, span = self.turned, len(self.rotation.cos)
        if turned.numel() and not 0 <= int(turned.min()) <= int(turned.max()) < span:
            self.clear()
            raise damaged("window was turned further than there are places")
