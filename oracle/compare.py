"""Whether our policies keep what NVIDIA's kvpress keeps, where both implement the same method.

For each seed: writes a case (case.py), has kvpress choose in its own environment
(kvpress_dump.py), chooses with our policies on the same weights and tokens, and
compares kept slots and, for key re-rotation, the turned keys. Exits with 1 on any
disagreement beyond the documented differences (README.md beside this).

python oracle/compare.py --kvpress KVPRESS/bin/python [--out RESULT.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from case import TOKENS, make_case
from infinipot.core.pot import Pot
from infinipot.hf.model import HFModel
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry

HERE = Path(__file__).parent
KEPT = TOKENS // 2
CLOSE = 1e-5
# The press's name -> our policy. kvpress always keeps the last token under TOVA; ours does when told so.
PRESSES: dict[str, tuple[str, dict[str, Any], int]] = {
    "snapkv": ("snapkv", {"window": 8, "kernel": 5, "pooling": "mean"}, 0),
    "tova": ("tova", {}, 1),
    "streaming": ("streaming-llm", {"sinks": 4}, 0),
    "streaming_rerotated": ("streaming-llm", {"sinks": 4}, 0),
    "tova_rerotated": ("tova", {}, 1),
}


def tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    with safe_open(path, "pt") as file:
        names = file.keys()  # not a mapping, so not to be iterated itself
        return {name: file.get_tensor(name) for name in names}, file.metadata()


def our_model(case: Path) -> tuple[HFModel, Tensor]:
    """The case's model behind ours, and its tokens."""
    found, told = tensors(case)
    ids = found.pop("input_ids")
    model = LlamaForCausalLM(LlamaConfig(**json.loads(told["config"]))).float()
    model.load_state_dict(found)
    return HFModel(model), ids


def filled(model: HFModel, ids: Tensor, policy: Policy) -> Pot:
    """A pot that holds all tokens and what the policy wants to know of them."""
    pot = model.new_pot(TOKENS, KEPT)
    pot.needs, pot.window = policy.needs, policy.last
    with pot.writing():
        model.forward(ids, pot)
    return pot


def agreement(name: str, model: HFModel, ids: Tensor, theirs: dict[str, Tensor]) -> dict[str, Any]:
    """Slots and keys of one press against ours, over all layers and heads."""
    policy_name, knobs, recent = PRESSES[name]
    policy = registry()[policy_name](**knobs)
    pot = filled(model, ids, policy)
    evidence = [replace(one, recent=recent) for one in pot.evidence() if one is not None]
    slots = [policy.select(one, KEPT) for one in evidence]
    wanted = [theirs[f"{name}.layer{index}.kept"] for index in range(len(slots))]
    same = sum(
        bool((a == b).all())
        for ours, press in zip(slots, wanted, strict=True)
        for a, b in zip(ours[0], press[0], strict=True)
    )
    found = {"press": name, "heads": sum(len(ours[0]) for ours in slots), "heads_with_the_same_slots": same}
    if name.endswith("_rerotated"):
        pot.keep(slots)
        found["keys_off_by"] = max(
            float((layer.keys[:, :, :KEPT] - theirs[f"{name}.layer{index}.keys"]).abs().max())
            for index, layer in enumerate(pot.pot_layers)
        )
    return found


def compare(kvpress: Path, seed: int, folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All presses on the case of one seed, and what kvpress says of itself."""
    case, out = folder / f"case{seed}.safetensors", folder / f"out{seed}.safetensors"
    make_case(case, seed)
    subprocess.run([kvpress, HERE / "kvpress_dump.py", case, out], check=True)
    model, ids = our_model(case)
    theirs, told = tensors(out)
    plain = filled(model, ids, registry()["streaming-llm"]())
    for index, layer in enumerate(plain.pot_layers):  # both sides must see the same model
        torch.testing.assert_close(layer.keys, theirs[f"plain.layer{index}.keys"], atol=CLOSE, rtol=CLOSE)
    return [{"seed": seed, **agreement(name, model, ids, theirs)} for name in PRESSES], told


def main() -> int:
    """Compare, print a table, keep the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kvpress", type=Path, required=True, help="python of kvpress' environment")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows, told = [], {}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for seed in options.seeds:
            found, told = compare(options.kvpress, seed, Path(folder))
            rows += found
    print(f"kvpress {told['kvpress']}, transformers {told['transformers']}, torch {told['torch']}")
    for row in rows:
        keys = f"  keys off by {row['keys_off_by']:.1e}" if "keys_off_by" in row else ""
        same = f"{row['heads_with_the_same_slots']}/{row['heads']} heads"
        print(f"seed {row['seed']}  {row['press']:<20} {same}{keys}")
    if options.out:
        told.pop("case_sha256")
        options.out.write_text(json.dumps({"kvpress": told, "rows": rows}, indent=1) + "\n")
    good = all(
        row["heads_with_the_same_slots"] == row["heads"] and row.get("keys_off_by", 0) < CLOSE for row in rows
    )
    print("agree" if good else "DISAGREE")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
