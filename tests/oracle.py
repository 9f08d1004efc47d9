"""InfiniPot written out slowly, in float64, straight from the paper: the oracle of the fast path.

A Llama is computed by hand from its weights. Each layer and head holds a plain
Python list of entries (un-rotated key, value, novelty, source); every attention
rotates every key afresh to its place in the list. Nothing is shared with src/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch


@dataclass
class Entry:
    key: torch.Tensor  # [D] before RoPE
    value: torch.Tensor  # [D]
    source: int
    novelty: float = 0.0


def rotate(x: torch.Tensor, position: int, frequencies: torch.Tensor) -> torch.Tensor:
    half = len(frequencies)
    angle = position * frequencies
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


@dataclass
class SlowInfiniPot:
    model: torch.nn.Module  # a LlamaForCausalLM in float64
    capacity: int
    keep: int
    novelty: float
    entries: list[list[list[Entry]]] = field(default_factory=list)  # [layer][kv head]
    last_logits: torch.Tensor | None = None
    tokens: int = 0

    def __post_init__(self) -> None:
        config = self.model.config
        self.layers, self.kv_heads = config.num_hidden_layers, config.num_key_value_heads
        self.groups = config.num_attention_heads // self.kv_heads
        self.frequencies = self.model.model.rotary_emb.inv_freq.double()
        self.entries = [[[] for _ in range(self.kv_heads)] for _ in range(self.layers)]

    def cycle(self, chunk: list[int], catalyst: list[int]) -> None:
        """Fill, catalyst, score, select, keep (sections 3.2 to 3.3.3)."""
        self.read(chunk)
        saved, tokens = self.last_logits, self.tokens
        scores = [[[0.0] * len(head) for head in layer] for layer in self.entries]
        for token in catalyst:
            self._token(token, scores)
        for layer in range(self.layers):
            for head in range(self.kv_heads):
                held = self.entries[layer][head][: len(scores[layer][head])]  # the catalyst is dropped
                self.entries[layer][head] = [held[i] for i in self._select(held, scores[layer][head])]
        self.last_logits, self.tokens = saved, tokens

    def _select(self, held: list[Entry], score: list[float]) -> list[int]:
        """T most novel first, then the best by catalyst score; reading order."""
        count = round(self.novelty * self.keep)
        novel = sorted(range(len(held)), key=lambda i: -held[i].novelty)[:count]
        rest = sorted((i for i in range(len(held)) if i not in novel), key=lambda i: -score[i])
        return sorted(novel + rest[: self.keep - count])

    def read(self, tokens: list[int]) -> torch.Tensor:
        for token in tokens:
            self._token(token, None)
        return self.last_logits

    def _token(self, token: int, scores: list[list[list[float]]] | None) -> None:
        surprise = math.log(self.model.config.vocab_size)
        if self.last_logits is not None:
            surprise = -torch.log_softmax(self.last_logits, -1)[token].item()
        base = self.model.model
        x = base.embed_tokens.weight[token]
        for index, layer in enumerate(base.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_layernorm), surprise, scores)
            inner = self._norm(x, layer.post_attention_layernorm)
            gate = torch.nn.functional.silu(layer.mlp.gate_proj.weight @ inner)
            x = x + layer.mlp.down_proj.weight @ (gate * (layer.mlp.up_proj.weight @ inner))
        self.last_logits = self.model.lm_head.weight @ self._norm(x, base.norm)
        self.tokens += 1

    def _norm(self, x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
        return x / torch.sqrt((x * x).mean() + norm.variance_epsilon) * norm.weight

    def _attention(self, index, layer, x, surprise, scores) -> torch.Tensor:
        module = layer.self_attn
        q = (module.q_proj.weight @ x).view(-1, module.head_dim)
        k = (module.k_proj.weight @ x).view(-1, module.head_dim)
        v = (module.v_proj.weight @ x).view(-1, module.head_dim)
        out = []
        for head in range(self.kv_heads):
            held = self.entries[index][head]
            held.append(Entry(k[head], v[head], self.tokens, surprise))
            keys = torch.stack([rotate(e.key, i, self.frequencies) for i, e in enumerate(held)])
            values = torch.stack([e.value for e in held])
            for group in range(self.groups):
                query = rotate(q[head * self.groups + group], len(held) - 1, self.frequencies)
                share = torch.softmax(keys @ query / math.sqrt(module.head_dim), -1)
                out.append(share @ values)
                if scores is not None:
                    wanted = scores[index][head]
                    for i in range(len(wanted)):
                        wanted[i] += share[i].item() / self.groups
        return module.o_proj.weight @ torch.cat(out)
