"""Captured computation: what repeats at fixed shapes is recorded once and replayed (CUDA graphs).

A pot of fixed size makes every cycle the same computation on the same addresses,
and every decoded token too once the fill is a tensor on the device. `Static`
replays the reader's own code, so there is no second implementation to keep
right; where it cannot, it says why and the plain path runs. Knows nothing of
transformers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from infinipot.layers import PotLayer
from infinipot.pot import Pot
from infinipot.scores import surprise

MOST = 8  # graphs of one pot: the steady cycle and a few more, so that their memory is bounded too


class Static:
    """Graphs of one pot. A key names a computation; it is captured when it comes a second time."""

    def __init__(self, pot: Pot, capture: bool = True) -> None:
        self.pot, self.capture = pot, capture
        self.reason = ""  # why nothing is captured any more
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, Any]] = {}
        self._pool: Any = None

    @staticmethod
    def obstacle(pot: Pot, device: torch.device) -> str:
        """Why this pot cannot be captured; empty where it can."""
        if device.type != "cuda":
            return f"graphs need a CUDA device, not {device.type}"
        if device.index is not None and device.index != torch.cuda.current_device():
            return "the model is not on the current card"
        if "last" in pot.needs:
            return "the recipe looks back at the last token's attention, which moves in memory"
        if not all(isinstance(layer, PotLayer) for layer in pot.layers):
            return "the model has local layers, whose windows move in memory"
        if pot.manner.grows or pot.manner.positions != "reset":
            return "the recipe's shapes change from cycle to cycle"
        return ""

    def run(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Tensor]) -> Tensor:
        """Return compute(*inputs), replayed from its third time on.

        It may change the pot's tensors in place, and the pot's own numbers in any way that
        depends on the key alone.
        """
        if key in self._graphs:
            graph, buffers, out, after = self._graphs[key]
            for buffer, given in zip(buffers, inputs, strict=True):
                buffer.copy_(given, non_blocking=True)
            graph.replay()
            _set_numbers(self.pot, after)
            return out
        if key not in self._seen or not self.capture or len(self._graphs) >= MOST:
            self._seen.add(key)
            return compute(*inputs)
        return self._record(key, inputs, compute)

    def _record(self, key: Hashable, inputs: list[Tensor], compute: Callable[..., Tensor]) -> Tensor:
        """Capture (which computes nothing yet), then replay."""
        buffers = [given.clone() for given in inputs]
        before = _numbers(self.pot)
        try:
            graph, out = self._captured(lambda: compute(*buffers))
        except RuntimeError as error:  # a model that asks the host on the way cannot be captured
            self.capture, self.reason = False, str(error).splitlines()[0]
            warnings.warn(f"not captured, so slower: {self.reason}", stacklevel=2)
            _set_all(self.pot, before)  # nothing was computed
            return compute(*inputs)
        self._graphs[key] = (graph, buffers, out, _change(before, _numbers(self.pot)))
        graph.replay()
        return out

    def _captured(self, compute: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._pool):
            out = compute()
        self._pool = self._pool or graph.pool()
        return graph, out


def _numbers(pot: Pot) -> list[tuple[int, int, int]]:
    """What the host knows of a pot: fill, tokens and anchored of each layer, and the cycles."""
    return [(layer.fill, layer.tokens, layer.anchored) for layer in pot.pot_layers] + [(pot.cycles, 0, 0)]


def _set_all(pot: Pot, numbers: list[tuple[int, int, int]]) -> None:
    for layer, found in zip(pot.pot_layers, numbers[:-1], strict=True):
        layer.fill, layer.tokens, layer.anchored = found
    pot.cycles = numbers[-1][0]


def _change(before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]) -> Any:
    """Fill and anchored as they will be, tokens and cycles as they grow; None where nothing changes."""
    if before == after:
        return None
    layers = [(b[0], b[1] - a[1], b[2]) for a, b in zip(before[:-1], after[:-1], strict=True)]
    return layers, after[-1][0] - before[-1][0]


def _set_numbers(pot: Pot, change: Any) -> None:
    if change is None:
        return
    layers, cycles = change
    for layer, (fill, more, anchored) in zip(pot.pot_layers, layers, strict=True):
        layer.fill, layer.tokens, layer.anchored = fill, layer.tokens + more, anchored
    pot.cycles += cycles


class Decoder:
    """Tokens one by one at fixed shapes: the plain path's logits, whatever the fill.

    The pot's own numbers are set right by `end`, once for all tokens.
    """

    def __init__(
        self,
        static: Static,
        forward: Callable[[Tensor, Pot], Tensor],
        head: Callable[[Tensor], Tensor],
    ) -> None:
        self.static, self._forward, self._head = static, forward, head
        self._noting = False  # somebody will want to know how novel the tokens were
        self.hidden = self._length = self._logits = torch.empty(0)
        self._novelty: list[Tensor] = []
        self.written = 0  # tokens the pot has not been told of yet

    def begin(self, hidden: Tensor, novelty: bool) -> Tensor:
        """Go on from the pot as it is, after the hidden state [1, 1, H]; return logits [1, V]."""
        if not self.hidden.numel():
            self.hidden = hidden.clone()
            self._length = torch.zeros(1, dtype=torch.long, device=hidden.device)
        self._length.fill_(self.static.pot.fill)
        self._noting = novelty
        self._logits = self._head(hidden[:, -1])
        return self._logits

    def step(self, token: int) -> Tensor:
        """Write a token; return the logits [1, V] of the next one."""
        given = torch.full((1, 1), token, dtype=torch.long, device=self._length.device)
        if self._noting:
            self._novelty.append(surprise(self._logits, given[0]))
        pot = self.static.pot
        pot.length, pot.observing = self._length, False
        try:
            with torch.no_grad():
                self._logits = self.static.run("decode", [given], self._step)
        except BaseException:
            del self._novelty[self.written :]
            raise
        finally:
            pot.length, pot.observing = None, True
        self.written += 1
        return self._logits

    def _step(self, token: Tensor) -> Tensor:
        hidden = self._forward(token, self.static.pot)
        self.hidden.copy_(hidden)
        self._length += 1
        return self._head(hidden[:, -1])

    def end(self) -> bool:
        """Tell the pot what was written; say whether anything was."""
        if not self.written:
            return False
        novelty = torch.cat(self._novelty) if self._noting else torch.zeros(self.written)  # [n]
        for layer in self.static.pot.pot_layers:
            layer.settle(self.written, novelty)
        self._novelty, self.written = [], 0
        return True
