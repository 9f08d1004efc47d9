"""One helper for people who live in transformers: inputs for `model.generate()` from a reader.

`generate()` takes positions from the attention mask, not from the cache: given only the new tokens it would
drop some of them or fail. And it cannot distil on the way, so room for the whole answer is made first.
"""

from typing import Any

import torch

from infinipot.errors import ConfigError
from infinipot.hf.cache import PotCache
from infinipot.hf.model import HFModel
from infinipot.hf.rope import moves_within
from infinipot.reading.reader import Reader


def generate_inputs(reader: Reader, question: str, max_new_tokens: int = 128) -> dict[str, Any]:
    """Return the arguments of `model.generate(**inputs)`, which writes into a fork of the reader's pot."""
    model = reader.model
    if reader.session.mode.positions != "reset" or reader.session.mode.distil == "prompt":
        raise ConfigError("generate() cannot follow this recipe's positions: use reader.ask()")
    if isinstance(model, HFModel) and moves_within(model.decoder, model.config, reader.pot.max_position):
        problem = f"this model's RoPE changes within {reader.pot.max_position} positions"
        remedy = "use reader.ask(), or a smaller capacity"
        raise ConfigError(f"{problem} and generate() cannot hold it still", remedy=remedy)
    reader = reader.fork()
    ids = reader.prompt(question, max_new_tokens)
    device = reader.model.device
    return {
        "input_ids": torch.tensor([ids], device=device),
        "attention_mask": torch.ones(1, reader.pot.fill + len(ids), dtype=torch.long, device=device),
        "past_key_values": PotCache(reader.pot),
        "max_new_tokens": max_new_tokens,
        "eos_token_id": sorted(reader.tokenizer.stop_ids) or None,
    }
