"""Captured computation: what repeats at fixed shapes is recorded once and replayed (CUDA graphs).

A pot of fixed size makes every cycle the same computation on the same addresses,
and every decoded token too once fills are tensors on the device. `Static` replays
the reader's own code, so there is no second implementation to keep right; where
it cannot, it says why and the plain path runs. Knows nothing of transformers.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.core.pot_layer import PotLayer

SEEN = 4096  # keys that are counted at once: a server meets ever new ones
MOST = 8  # graphs of one kind: the steady cycle and a few more, so that their memory is bounded too

Numbers = list[tuple[int, int, int]]


class Static:
    """Graphs of one pot, or of none. A key names a computation, captured when it comes again and again."""

    def __init__(self, pot: Pot | None = None, capture: bool = True) -> None:
        self.pot, self.capture = pot, capture
        self.reason = ""  # why nothing is captured any more
        self._seen: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], Any, Any]] = {}
        self._pool: Any = None

    @staticmethod
    def obstacle(pot: Pot, device: torch.device) -> str:
        """Why this pot's cycles cannot be captured; empty where they can."""
        if found := Static.unsteady(pot, device):
            return found
        if "last" in pot.needs:
            return "the recipe looks back at the last token's attention, which moves in memory"
        if pot.mode.grows or pot.mode.positions != "reset":
            return "the recipe's shapes change from cycle to cycle"
        return ""

    @staticmethod
    def unsteady(pot: Pot, device: torch.device) -> str:
        """Why not even tokens can be written to this pot by a graph; empty where they can."""
        if device.type != "cuda":
            return f"graphs need a CUDA device, not {device.type}"
        if device.index is not None and device.index != torch.cuda.current_device():
            return "the model is not on the current card"
        if not all(isinstance(layer, PotLayer) for layer in pot.layers):
            return "the model has local layers, whose windows move in memory"
        if pot.mode.positions == "grouped":
            return "the recipe groups positions, which its own attention does"
        return ""

    def run(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Any], often: int = 1) -> Any:
        """Return compute(*inputs); once it came `often` times it is captured and replayed, always into
        the same tensors. Capturing costs as much as some dozen computations.

        It may change the pot's tensors in place, and the pot's own numbers in any way that
        depends on the key alone.
        """
        if key in self._graphs:
            graph, buffers, out, after = self._graphs[key] = self._graphs.pop(key)  # the latest is the last
            for buffer, given in zip(buffers, inputs, strict=True):
                buffer.copy_(given, non_blocking=True)
            graph.replay()
            self._set_numbers(after)
            return out
        if not self.capture:
            return compute(*inputs)
        if self._seen[key] < often:
            if len(self._seen) >= SEEN:
                self._seen.clear()
            self._seen[key] += 1
            return compute(*inputs)
        return self._record(key, inputs, compute)

    def _record(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Any]) -> Any:
        """Capture (which computes nothing yet), then replay; the graph unused for longest makes room."""
        if len(self._graphs) >= MOST:
            oldest = next(iter(self._graphs))
            del self._graphs[oldest], self._seen[oldest]
        buffers = [given.clone() for given in inputs]
        before = self._numbers()
        try:
            graph, out = self._captured(lambda: compute(*buffers))
        except RuntimeError as error:  # a model that asks the host on the way cannot be captured
            self.capture, self.reason = False, str(error).splitlines()[0]
            warnings.warn(f"not captured, so slower: {self.reason}", stacklevel=2)
            self._reset(before)  # nothing was computed
            return compute(*inputs)
        self._graphs[key] = (graph, buffers, out, _change(before, self._numbers()))
        graph.replay()
        return out

    def _captured(self, compute: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the same computation took uncaptured: the graph has memory of its own
        with torch.cuda.graph(graph, pool=self._pool):
            out = compute()
        self._pool = self._pool or graph.pool()
        return graph, out

    def _numbers(self) -> Numbers:
        """What the host knows of the pot: fill, tokens and anchored of each layer, and the cycles."""
        if self.pot is None:
            return []
        layers = [(layer.fill, layer.tokens, layer.anchored) for layer in self.pot.pot_layers]
        return [*layers, (self.pot.cycles, 0, 0)]

    def _reset(self, numbers: Numbers) -> None:
        if self.pot is not None:
            for layer, found in zip(self.pot.pot_layers, numbers[:-1], strict=True):
                layer.fill, layer.tokens, layer.anchored = found
            self.pot.cycles = numbers[-1][0]

    def _set_numbers(self, change: Any) -> None:
        if change is None or self.pot is None:
            return
        layers, cycles = change
        for layer, (fill, more, anchored) in zip(self.pot.pot_layers, layers, strict=True):
            layer.fill, layer.tokens, layer.anchored = fill, layer.tokens + more, anchored
        self.pot.cycles += cycles


def _change(before: Numbers, after: Numbers) -> Any:
    """Fill and anchored as they will be, tokens and cycles as they grow; None where nothing changes."""
    if before == after:
        return None
    layers = [(b[0], b[1] - a[1], b[2]) for a, b in zip(before[:-1], after[:-1], strict=True)]
    return layers, after[-1][0] - before[-1][0]
