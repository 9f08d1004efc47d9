"""Slow twins: GGUF files as transformers unpacks them, and a product of packed weights by unpacking all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from infinipot.hf.packed.blocks import slowly_unpacked
from infinipot.hf.packed.modules import PackedLinear
from infinipot.hf.quiet import quiet


def unpacked(path: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) with every weight in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with quiet():
        whole = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=whole, dtype=torch.float32)
        return model.eval(), AutoTokenizer.from_pretrained(**source)


def slowly(module: PackedLinear, x: torch.Tensor) -> torch.Tensor:
    """Return what a module gives for x [..., in]."""
    weight = slowly_unpacked(module.shared.weights[module.index])
    return torch.nn.functional.linear(x, weight, module.bias)
