"""One agreement case: a small random Llama and 96 token ids, in one safetensors file.

Weights carry their state-dict names, the token ids are `input_ids` [1, 96], and the model's configuration is
JSON in the file's metadata, so that two processes with different transformers build the same model. Knows
neither transformers nor kvpress, nor what will be asked of the model.

python oracle/case.py CASE.safetensors --seed 0
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TOKENS = 96
STD = 0.02
SHARPEN = 8.0  # on queries and on keys: without it attention is near uniform and every choice is a near tie
CONFIG: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of all weights, by state-dict name."""
    hidden, inner, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    queries = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    every = {"model.embed_tokens.weight": (vocab, hidden)}
    for index in range(CONFIG["num_hidden_layers"]):
        every |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return every | {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}


def make_case(path: Path, seed: int) -> None:
    """Write the case of this seed."""
    chance = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes().items():
        noise = torch.randn(shape, generator=chance)
        tensors[name] = 1 + 0.1 * noise if "norm" in name else STD * noise
        if "q_proj" in name or "k_proj" in name:
            tensors[name] *= SHARPEN
    tensors["input_ids"] = torch.randint(CONFIG["vocab_size"], (1, TOKENS), generator=chance)
    save_file(tensors, path, metadata={"config": json.dumps(CONFIG), "seed": str(seed)})


def main() -> None:
    """Write one case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make_case(options.case, options.seed)


if __name__ == "__main__":
    main()
