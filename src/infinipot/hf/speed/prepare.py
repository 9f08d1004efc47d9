"""A loaded model made fast on its device: weights joined, compiled or laid out anew. Results stay.

Only for models we have loaded ourselves: a model of the user's is left as it is.
"""

from __future__ import annotations

import ctypes

import torch

from infinipot.errors import ConfigError
from infinipot.hf.model import HFModel
from infinipot.hf.speed.fuse import fuse
from infinipot.hf.speed.joint import join
from infinipot.hf.speed.products import has_bfloat16, has_onednn, pack

MIXED = "mixed"  # float32 with products in bfloat16, on a CPU


def resolve(dtype: str, device: torch.device) -> tuple[str, bool]:
    """Return the dtype to load weights in, and whether products are then to be in bfloat16."""
    if dtype == MIXED and device.type != "cpu":
        raise ConfigError("mixed is for CPUs", field="dtype", remedy=f"use `dtype` bfloat16 on {device.type}")
    if dtype == MIXED and not has_bfloat16():
        raise ConfigError(
            "this processor has no bfloat16 instructions, so mixed would be slower",
            field="dtype",
            remedy="use `dtype` float32",
        )
    if device.type == "cpu" and dtype in ("auto", MIXED):
        return "float32", dtype == MIXED or has_bfloat16()
    return dtype, False


def give_back() -> None:
    """Hand what was freed back to the system: glibc would keep half a gigabyte of plain weights."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library: nothing to ask of it


def prepare(model: HFModel, mixed: bool = False, fused: bool = False) -> str:
    """Make the model fast; return the name of what it computes in."""
    name = str(model.model.dtype).removeprefix("torch.")
    if model.obstacle:
        return name
    if model.device.type == "cuda":
        fuse(model.decoder) if fused else join(model.decoder)
    elif model.device.type == "cpu" and name == "float32" and has_onednn():
        pack(model.model, model.decoder, torch.bfloat16 if mixed else torch.float32)
        model.head = model.model.get_output_embeddings()
        give_back()
        return MIXED if mixed else name
    return name
