"""Shapes of well-known models, to be filled with random weights: speed does not depend on what they say."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ROPE = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0}
_LLAMA3 = {**_ROPE, "rope_type": "llama3", "original_max_position_embeddings": 8192}
_SIZES = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
_NAMES = (*_SIZES, "num_attention_heads", "num_key_value_heads", "max_position_embeddings")


def _shape(sizes: tuple[Any, ...], rope: float | dict[str, Any] = 10000.0, **more: Any) -> dict[str, Any]:
    """Return what `AutoConfig.for_model` takes; `sizes` are those of `_NAMES`, `rope` may be its theta."""
    full = rope if isinstance(rope, dict) else {"rope_type": "default", "rope_theta": rope}
    return {**dict(zip(_NAMES, sizes, strict=True)), "rope_parameters": full, **more}


SHAPES: dict[str, dict[str, Any]] = {
    "llama-3-8b": _shape(("llama", 128256, 4096, 14336, 32, 32, 8, 8192), 500000.0),
    "llama-3.2-1b": _shape(
        ("llama", 128256, 2048, 8192, 16, 32, 8, 131072), _LLAMA3, head_dim=64, tie_word_embeddings=True
    ),
    "qwen2.5-1.5b": _shape(("qwen2", 151936, 1536, 8960, 28, 12, 2, 32768), 1e6, tie_word_embeddings=True),
    "mistral-7b": _shape(
        ("mistral", 32768, 4096, 14336, 32, 32, 8, 32768), 1e6, head_dim=128, sliding_window=None
    ),
    "smollm2": _shape(("llama", 49152, 576, 1536, 30, 9, 3, 8192), 1e5, tie_word_embeddings=True),
    "tiny": _shape(("llama", 512, 64, 128, 2, 4, 2, 8192)),
}


def build(name: str, device: "torch.device", dtype: "torch.dtype", weights: str = "full") -> Any:
    """Return a transformers model of that shape; its weights are made on the device and nowhere else.

    `weights` int4, int8 or fp8 holds them in few bits: they are drawn one by one, never all of them wide.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(**SHAPES[name])
    if weights in ("int4", "int8", "fp8"):
        from infinipot.hf.cuda.load import Drawn, Filler
        from infinipot.hf.packed.load import skeleton

        model = skeleton(config, dtype)
        Filler(Drawn(model, device, dtype), weights, device, dtype).fill(model)
        return model.eval().requires_grad_(False)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)
