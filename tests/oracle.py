"""Every method written out slowly, in float64, straight from its paper: the oracle of the fast path.

A Llama is computed by hand from its weights, one token at a time. Each layer and
head holds a plain Python list of entries (un-rotated key, value, and what the
methods want to know of it); every attention rotates every key afresh. Nothing
is shared with src/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Entry:
    key: torch.Tensor  # [D] before RoPE
    value: torch.Tensor  # [D]
    source: int
    novelty: float = 0.0
    running: float = 0.0  # attention received from every token so far, mean over the group's query heads


def rotate(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    half = len(frequencies)
    angle = positions[..., None] * frequencies
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


@dataclass
class SlowPot:
    """One sequence in one model; `reset` is CR-RoPE, `group` and `window` are Self-Extend's."""

    model: Any  # a LlamaForCausalLM in float64
    reset: bool = True
    group: int = 1
    window: int = 10**9
    entries: list[list[list[Entry]]] = field(default_factory=list)  # [layer][kv head]
    history: list[list[list[list[float]]]] = field(default_factory=list)  # [token][layer][kv head][slot]
    last_logits: torch.Tensor | None = None
    tokens: int = 0

    def __post_init__(self) -> None:
        config = self.model.config
        self.layers, self.kv_heads = config.num_hidden_layers, config.num_key_value_heads
        self.groups = config.num_attention_heads // self.kv_heads
        self.frequencies = self.model.model.rotary_emb.inv_freq.double()
        self.entries = [[[] for _ in range(self.kv_heads)] for _ in range(self.layers)]

    @torch.no_grad()
    def read(self, tokens: list[int]) -> torch.Tensor | None:
        for token in tokens:
            self._token(token)
        return self.last_logits

    def received(self, layer: int, head: int, count: int) -> list[float]:
        """Attention every slot received from the last `count` tokens."""
        rows = [token[layer][head] for token in self.history[-count:]]
        return [sum(row[i] for row in rows if i < len(row)) for i in range(len(rows[-1]))]

    def ask_catalyst(self, catalyst: list[int]) -> list[list[list[float]]]:
        """Equation 2: what every slot receives from the catalyst, which leaves no trace."""
        saved = self.last_logits, self.tokens, self.history
        running = [[[e.running for e in head] for head in layer] for layer in self.entries]
        slots = len(self.entries[0][0])
        self.read(catalyst)
        found = [
            [self.received(layer, head, len(catalyst))[:slots] for head in range(self.kv_heads)]
            for layer in range(self.layers)
        ]
        self.last_logits, self.tokens, self.history = saved[0], saved[1], saved[2][: -len(catalyst)]
        for layer, row in zip(self.entries, running, strict=True):
            for head, sums in zip(layer, row, strict=True):
                del head[slots:]
                for entry, value in zip(head, sums, strict=True):
                    entry.running = value
        return found

    def keep(self, choose: Callable[[int, int, list[Entry]], list[int]]) -> None:
        for layer in range(self.layers):
            for head in range(self.kv_heads):
                held = self.entries[layer][head]
                self.entries[layer][head] = [held[i] for i in choose(layer, head, held)]

    def sources(self, layer: int, head: int) -> list[int]:
        return [entry.source for entry in self.entries[layer][head]]

    def _token(self, token: int) -> None:
        surprise = math.log(self.model.config.vocab_size)
        if self.last_logits is not None:
            surprise = -torch.log_softmax(self.last_logits, -1)[token].item()
        base = self.model.model
        x = base.embed_tokens.weight[token]
        self.history.append([])
        for index, layer in enumerate(base.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_layernorm), surprise)
            inner = self._norm(x, layer.post_attention_layernorm)
            gate = torch.nn.functional.silu(layer.mlp.gate_proj.weight @ inner)
            x = x + layer.mlp.down_proj.weight @ (gate * (layer.mlp.up_proj.weight @ inner))
        self.last_logits = self.model.lm_head.weight @ self._norm(x, base.norm)
        self.tokens += 1

    def _norm(self, x: torch.Tensor, norm: Any) -> torch.Tensor:
        scaled: torch.Tensor = x / torch.sqrt((x * x).mean() + norm.variance_epsilon) * norm.weight
        return scaled

    def _products(self, queries: torch.Tensor, keys: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Un-rotated queries [G, D] of the last place times un-rotated keys [n, D]: [G, n]."""
        at = places[-1]
        near = rotate(queries, at, self.frequencies) @ rotate(keys, places, self.frequencies).T
        grouped = at // self.group + self.window - self.window // self.group
        far_keys = rotate(keys, places // self.group, self.frequencies)
        far = rotate(queries, grouped, self.frequencies) @ far_keys.T
        return torch.where(at - places < self.window, near, far)

    def _attention(self, index: int, layer: Any, x: torch.Tensor, surprise: float) -> torch.Tensor:
        module = layer.self_attn
        q = (module.q_proj.weight @ x).view(-1, module.head_dim)
        k = (module.k_proj.weight @ x).view(-1, module.head_dim)
        v = (module.v_proj.weight @ x).view(-1, module.head_dim)
        out, received = [], []
        for head in range(self.kv_heads):
            held = self.entries[index][head]
            held.append(Entry(k[head], v[head], self.tokens, surprise))
            places = torch.tensor([i if self.reset else e.source for i, e in enumerate(held)])
            queries = q[head * self.groups : (head + 1) * self.groups]
            products = self._products(queries, torch.stack([e.key for e in held]), places)
            shares = torch.softmax(products / math.sqrt(module.head_dim), -1)  # [G, n]
            out += list(shares @ torch.stack([e.value for e in held]))
            mean = shares.mean(0).tolist()
            for entry, share in zip(held, mean, strict=True):
                entry.running += share
            received.append(mean)
        self.history[-1].append(received)
        mixed: torch.Tensor = module.o_proj.weight @ torch.cat(out)
        return mixed


def best(scores: list[float], count: int, among: list[int]) -> list[int]:
    """The `count` indices of highest score."""
    return sorted(among, key=lambda i: -scores[i])[: max(0, count)]
