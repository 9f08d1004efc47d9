"""Plain transformers, whose cache holds the whole text: what a pot is measured against.

Also the tokenizer of models with random weights, which have none.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from infinipot.testing.tokenizer import ByteTokenizer

BYTES = 4  # of a text in one token of `Words`, about as in real vocabularies


@torch.no_grad()
def read(model: Any, ids: Tensor) -> Any:
    """Return the cache after the text [1, n] went through the model in one forward."""
    cache = DynamicCache(config=model.config)
    model(ids, past_key_values=cache, logits_to_keep=1)
    return cache


@torch.no_grad()
def generate(model: Any, ids: Tensor, cache: Any, count: int) -> Iterator[int]:
    """Yield `count` greedy tokens after the prompt [1, n], each on the host as streaming needs."""
    for _ in range(count):
        logits = model(ids, past_key_values=cache, logits_to_keep=1).logits
        token = int(logits[0, -1].argmax())
        yield token
        ids = torch.full((1, 1), token, dtype=torch.long, device=ids.device)


def cache_bytes(cache: Any) -> int:
    """Return what a cache of transformers holds."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def entry_bytes(config: Any, itemsize: int) -> int:
    """Return the bytes of one token's keys and values in a cache of the whole text."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * config.num_key_value_heads * size * itemsize)


class Words(ByteTokenizer):
    """For random weights: as many tokens as a real tokenizer would make, and an answer never ends."""

    stop_ids = frozenset()

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text, one for every four bytes."""
        return super().encode(text)[::BYTES]
