"""GGUF files as transformers unpacks them: the slow twin of our own loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from infinipot.hf.quiet import quiet


def unpacked(path: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) with every weight in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with quiet():
        whole = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=whole, dtype=torch.float32)
        return model.eval(), AutoTokenizer.from_pretrained(**source)
