"""Captured computation: what repeats at fixed shapes is recorded once and replayed (CUDA graphs).

A pot of fixed size makes every cycle the same computation on the same addresses, and every decoded token too
once fills are tensors on the device. `Graphs` replays the session's own code, so there is no second
implementation to keep right; where a computation cannot be captured the plain path runs, with the reason.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from infinipot.common.out_of_memory import out_of_memory
from infinipot.core.cuda.capturing import MODE, apart_from_capture
from infinipot.core.pot import Counters, Pot
from infinipot.core.pot_layer import PotLayer

SEEN = 4096  # keys that are counted at once: a server meets ever new ones
MOST = 12  # graphs of one pot: the steady cycle's two and a few more, so that their memory is bounded too


def decode_obstacle(pot: Pot, device: torch.device) -> str:
    """Why not even single tokens can be written to this pot by a graph; empty where they can."""
    if device.type != "cuda":
        return f"graphs need a CUDA device, not {device.type}"
    if device.index is not None and device.index != torch.cuda.current_device():
        return "the model is not on the current card"
    if not all(isinstance(layer, PotLayer) for layer in pot.layers):
        return "the model has local layers, whose windows move in memory"
    if pot.mode.positions == "grouped":
        return "the recipe groups positions, which its own attention does"
    return ""


def cycle_obstacle(pot: Pot, device: torch.device) -> str:
    """Why this pot's cycles cannot be captured; empty where they can."""
    if found := decode_obstacle(pot, device):
        return found
    if "last" in pot.needs:
        return "the recipe looks back at the last token's attention, which moves in memory"
    if pot.mode.grows or pot.mode.positions != "reset":
        return "the recipe's shapes change from cycle to cycle"
    return ""


@dataclass(frozen=True)
class Captured:
    """A graph, the tensors it reads and writes, and the pot's counters before and after."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    out: Any
    before: Counters | None
    after: Counters | None


class Graphs:
    """Graphs of one pot, or of none. A key names a computation, captured when it comes again and again."""

    def __init__(self, pot: Pot | None = None, capture: bool = True, most: int = MOST) -> None:
        self.pot, self.capture, self.most = pot, capture, most
        self.reason = ""  # why nothing is captured any more
        self.since = 0  # cycles of the pot from which on something is captured: else hardly anything repeats
        self.left = math.inf  # captures that may still be made: not all of the host's memory for one returns
        self.captured: dict[Hashable, Captured] = {}
        self.held: dict[Hashable, Any] = {}  # what a graph reads beside its inputs and must not be freed
        self._seen: Counter[Hashable] = Counter()
        self._pool: Any = None

    def run(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Any], often: int = 1) -> Any:
        """Return compute(*inputs). A computation that came `often` times is captured, then replayed, always
        into the same tensors. Capturing costs as much as some dozen computations.

        `compute` may change the pot's tensors in place, and the pot's counters in any way that depends on
        the key alone.
        """
        if key in self.captured:
            return self._replay(key, inputs)
        if not self._captures:
            return compute(*inputs)
        if self._seen[key] < often:
            if len(self._seen) >= SEEN:
                self._seen.clear()
            self._seen[key] += 1
            return compute(*inputs)
        return self._record(key, inputs, compute)

    @property
    def _captures(self) -> bool:
        return self.capture and self.left > 0 and (self.pot is None or self.pot.cycles >= self.since)

    def _replay(self, key: Hashable, inputs: list[Tensor]) -> Any:
        found = self.captured[key] = self.captured.pop(key)  # the latest is the last
        for buffer, given in zip(found.inputs, inputs, strict=True):
            buffer.copy_(given, non_blocking=True)
        found.graph.replay()
        if self.pot is not None and found.before and found.after and found.before != found.after:
            now = self.pot.counters()
            tokens = now.tokens + found.after.tokens - found.before.tokens
            cycles = now.cycles + found.after.cycles - found.before.cycles
            self.pot.set_counters(replace(found.after, tokens=tokens, cycles=cycles))
        return found.out

    def _record(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Any]) -> Any:
        """Capture (which computes nothing yet), then replay; the graph unused for longest makes room."""
        if len(self.captured) >= self.most:
            oldest = next(iter(self.captured))
            del self.captured[oldest], self._seen[oldest]
        buffers = [given.clone() for given in inputs]
        before = self.pot.counters() if self.pot else None
        try:
            graph, out = self.capture_graph(lambda: compute(*buffers))
        except RuntimeError as error:  # a model that asks the host on the way cannot be captured
            if out_of_memory(error) or out_of_memory(error.__context__):
                self._seen[key] = 0  # there may be memory another time
            else:
                self.capture, self.reason = False, str(error).splitlines()[0]
                warnings.warn(f"not captured, so slower: {self.reason}", stacklevel=2)
            if self.pot and before:  # nothing was computed
                self.pot.set_counters(before)
            return compute(*inputs)
        self.left -= 1
        self.captured[key] = Captured(graph, buffers, out, before, self.pot.counters() if self.pot else None)
        graph.replay()
        return out

    def capture_graph(self, compute: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Return a graph of the computation, and the tensors its replay writes."""
        graph = torch.cuda.CUDAGraph()
        with apart_from_capture():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # what was taken uncaptured: the graph has memory of its own
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode=MODE):
                out = compute()
        self._pool = self._pool or graph.pool()
        return graph, out
