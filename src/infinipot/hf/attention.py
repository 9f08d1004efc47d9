"""Our attention as a transformers attention implementation named "infinipot".

Serves models with and without a pot: without padding it is lower-right causal
and needs no mask at all; with padding, packing or a static cache it uses the
mask transformers builds. What the pot wants to know of the attention is taken
on the way. No model code is patched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from infinipot.attention import attend, attend_fixed, attend_grouped, attend_masked
from infinipot.compiling import fused
from infinipot.pot import Pot

NAME = "infinipot"
KERNEL = True  # false: plain torch, for comparison


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it changes the pot: not for the compiler
def infinipot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    pot: Pot | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention output [B, Q, Hq, Dv]; shows queries and keys to the pot, if there is one."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    index = int(getattr(module, "layer_idx", 0))
    if attention_mask is not None:
        out = attend_masked(query, key, value, scale, attention_mask, softcap)
    elif pot is not None and pot.length is not None:
        out = _one_fixed(query, key, value, scale, pot.length, softcap)
    elif pot is not None and pot.grouped(index):
        rotation, manner = pot.layers[index].rotation, pot.manner
        out = attend_grouped(query, key, value, scale, rotation, manner.group, manner.window, softcap)
    else:
        out = attend(query, key, value, scale, sliding_window, softcap)
    if pot is not None:
        pot.observe(index, query, key, scale, softcap)
    return out.transpose(1, 2).contiguous(), None


def _one_fixed(
    query: Tensor, key: Tensor, value: Tensor, scale: float, length: Tensor, softcap: float | None
) -> Tensor:
    """One token on a pot whose fill only the device knows: by our kernel where it can."""
    if KERNEL and query.device.type == "cuda" and softcap is None:
        from infinipot import kernels

        if kernels.serves(query, key):
            return kernels.attend_filled(query, key, value, scale, length)
    return fused(attend_fixed, query.device)(query, key, value, scale, length, softcap)


def infinipot_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Tensor | None:
    """None where plain lower-right causal attention is meant; otherwise the explicit boolean mask."""
    aligned = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    padded = attention_mask is not None and not bool(attention_mask.all())
    if allow_is_causal_skip and aligned and not padded:
        return None
    mask: Tensor | None = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        **kwargs,
    )
    return mask


def register() -> None:
    """Make the implementation known to transformers; harmless when repeated."""
    AttentionInterface.register(NAME, infinipot_attention)
    # Without a mask function of the same name transformers drops masks silently.
    AttentionMaskInterface.register(NAME, infinipot_mask)


def use(model: Any) -> None:
    """Switch a transformers model to this implementation."""
    register()
    model.set_attn_implementation(NAME)
