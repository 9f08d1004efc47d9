"""What NVIDIA's kvpress keeps of one case: scores, kept entries, compressed keys and values, per layer.

kvpress patches attention for the whole process and wants an older transformers, so this runs in an
environment of its own (oracle/requirements.txt) and speaks in safetensors. It knows nothing of infinipot and
compares nothing; it only checks that what it wrote down is what kvpress has left in the cache.

python -m venv KVPRESS && KVPRESS/bin/pip install -r oracle/requirements.txt
KVPRESS/bin/python oracle/kvpress_dump.py CASE.safetensors OUT.safetensors

Out: `plain.layerN.{keys,values}` [1, kv_heads, tokens, head_dim] without a press, and for each press
`PRESS.layerN.scores` [1, kv_heads, tokens]; `.kept` [1, kv_heads, kept], ascending; `.keys`, `.values`
[1, kv_heads, kept, head_dim], rows as in `.kept` (kvpress' own are in topk order where it does not rerotate).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from kvpress import BasePress, KeyRerotationPress, ScorerPress, SnapKVPress, StreamingLLMPress, TOVAPress
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

RATIO = 0.5  # the share dropped
ATTENTION = "sdpa"  # returns no weights: presses recompute what they need, as under flash attention


def presses() -> dict[str, BasePress]:
    """The presses that are asked, by their names in the output."""
    return {
        "snapkv": SnapKVPress(RATIO, window_size=8, kernel_size=5),
        "tova": TOVAPress(RATIO),
        "streaming": StreamingLLMPress(RATIO, n_sink=4),
        "streaming_rerotated": KeyRerotationPress(StreamingLLMPress(RATIO, n_sink=4)),
        "tova_rerotated": KeyRerotationPress(TOVAPress(RATIO)),
    }


def load(case: Path) -> tuple[LlamaForCausalLM, Tensor]:
    """The model and the token ids of a case."""
    with safe_open(case, "pt") as file:
        config = LlamaConfig(**json.loads(file.metadata()["config"]), attn_implementation=ATTENTION)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    ids = tensors.pop("input_ids")
    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict(tensors)
    return model, ids


def prefill(model: LlamaForCausalLM, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keys and values left in the cache, per layer."""
    cache = DynamicCache()
    model(ids, past_key_values=cache, use_cache=True)
    return [(layer.keys, layer.values) for layer in cache.layers]


def record_scores(press: ScorerPress) -> list[Tensor]:
    """Have the press write down a copy of every score it returns; the list fills layer by layer."""
    scores: list[Tensor] = []
    score = press.score

    def and_record(*args: Any, **named: Any) -> Tensor:
        scores.append(score(*args, **named))
        return scores[-1].clone()

    press.score = and_record
    return scores


def rows(entries: Tensor, indices: Tensor) -> Tensor:
    """Entries [1, heads, n, head_dim] at indices [1, heads, m]."""
    return entries.gather(2, indices[..., None].expand(*indices.shape, entries.shape[-1]))


def dump(press: BasePress, model: LlamaForCausalLM, ids: Tensor) -> dict[str, Tensor]:
    """All that one press leaves, by `layerN.what`."""
    rerotates = isinstance(press, KeyRerotationPress)
    recorded = record_scores(press.press if rerotates else press)
    plain = prefill(model, ids)
    with press(model):
        pressed = prefill(model, ids)
    assert len(recorded) == len(pressed) == len(plain)
    out = {}
    for index, (scores, full, (keys, values)) in enumerate(zip(recorded, plain, pressed, strict=True)):
        order = scores.topk(int(ids.shape[1] * (1 - RATIO)), dim=-1).indices  # as both compress() have it
        kept, rank = order.sort(dim=-1)
        if not rerotates:
            assert torch.equal(keys, rows(full[0], order)), "kvpress did not keep the keys its scores say"
            assert torch.equal(values, rows(full[1], order)), "kvpress did not keep the values its scores say"
            keys, values = rows(keys, rank), rows(values, rank)
        assert torch.equal(values, rows(full[1], kept)), "kvpress did not keep the values its scores say"
        found = {"scores": scores, "kept": kept, "keys": keys, "values": values}
        out |= {f"layer{index}.{name}": tensor.contiguous() for name, tensor in found.items()}
    return out


def main() -> None:
    """Read a case, ask every press, write what each has left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    told = {name: version(name) for name in ("kvpress", "transformers", "torch")}
    told |= {"attention": ATTENTION, "case_sha256": hashlib.sha256(options.case.read_bytes()).hexdigest()}
    told["presses"] = json.dumps({name: repr(press) for name, press in presses().items()})
    with torch.inference_mode():
        model, ids = load(options.case)
        tensors = {}
        for index, (keys, values) in enumerate(prefill(model, ids)):
            tensors |= {f"plain.layer{index}.keys": keys, f"plain.layer{index}.values": values}
        for name, press in presses().items():
            tensors |= {f"{name}.{what}": tensor for what, tensor in dump(press, model, ids).items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, options.out, metadata=told)


if __name__ == "__main__":
    main()
