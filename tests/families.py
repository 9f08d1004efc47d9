"""Small random models of every supported family, built from their real config classes."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers as tf

SMALL = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 512,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [2.0, 3.0, 4.0],
    "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.75,
}
GEMMA = {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}
LOCAL, GLOBAL = "sliding_attention", "full_attention"

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-2": ("Llama", {"num_key_value_heads": 6}),
    "llama-3": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "llama-3.1": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-3.2": ("Llama", {"rope_parameters": {**LLAMA3_ROPE, "factor": 32.0}, "tie_word_embeddings": True}),
    "llama-dynamic": (
        "Llama",
        {
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
            "max_position_embeddings": 64,
        },
    ),
    "mistral-v0.1": ("Mistral", {"sliding_window": 256}),
    "mistral-v0.2": ("Mistral", {"sliding_window": None}),
    "mistral-v0.3": ("Mistral", {"sliding_window": None, "vocab_size": 352}),
    "gemma-2": (
        "Gemma2",
        {
            **GEMMA,
            "num_hidden_layers": 4,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma-3": (
        "Gemma3Text",
        {**GEMMA, "num_hidden_layers": 4, "layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL]},
    ),
    "phi-3": ("Phi3", {"partial_rotary_factor": 0.75}),
    "phi-3-longrope": ("Phi3", {"original_max_position_embeddings": 64, "rope_parameters": LONGROPE}),
    "qwen2.5": ("Qwen2", {}),
    "qwen2.5-yarn": ("Qwen2", {"rope_parameters": YARN_ROPE}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}
CLASSES = {"Gemma3Text": tf.Gemma3ForCausalLM}


@cache
def build(family: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model of the family in eager attention; the same one every time."""
    name, extra = FAMILIES[family]
    config = getattr(tf, f"{name}Config")(**{**SMALL, **extra})
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    cls = CLASSES.get(name) or getattr(tf, f"{name}ForCausalLM")
    model = cls(config).to(dtype).eval()
    with torch.no_grad():  # larger weights: attention that really chooses
        for name_, parameter in model.named_parameters():
            if parameter.ndim == 2 and ("q_proj" in name_ or "k_proj" in name_ or "qkv" in name_):
                parameter.mul_(8)
    return model
