"""Our attention as a transformers attention implementation named "infinipot".

Serves models with and without a pot: without padding it is lower-right causal and needs no mask at all; with
padding, packing or a static cache it uses the mask transformers builds. What the pot wants to know of the
attention is taken on the way. No model code is patched.
"""

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from infinipot.core.attention import LogitSpec, attend, attend_masked
from infinipot.core.pot import Pot
from infinipot.core.rows import Rows
from infinipot.hf.light import uncompiled
from infinipot.hf.speed import threads

NAME = "infinipot"


@uncompiled  # it changes the pot
def infinipot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    pot: Pot | Rows | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention output [B, Q, Hq, Dv]; shows queries and keys to the pot, if there is one."""
    threads.follow()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    index, mixed = int(getattr(module, "layer_idx", 0)), bool(getattr(module, "mixed", False))
    spec = LogitSpec(scale, sliding_window, softcap, mixed)
    if attention_mask is not None:
        out = attend_masked(query, key, value, scale, attention_mask, softcap)
        if isinstance(pot, Pot):
            pot.observe(index, query, key, spec)
    elif pot is not None:
        out = pot.attend(index, query, key, value, spec)
    else:
        out = attend(query, key, value, spec)
    return out.transpose(1, 2).contiguous(), None


def infinipot_mask(
    attention_mask: Tensor | None = None, allow_is_causal_skip: bool = True, **told: Any
) -> Tensor | None:
    """None where plain lower-right causal attention is meant; otherwise the explicit boolean mask."""
    first = told.get("q_offset", 0)
    end = told.get("kv_offset", 0) + told["kv_length"]
    aligned = isinstance(first, int) and first + told["q_length"] == end
    padded = attention_mask is not None and not bool(attention_mask.all())
    if allow_is_causal_skip and aligned and not padded:
        return None
    return sdpa_mask(attention_mask=attention_mask, allow_is_causal_skip=False, **told)  # type: ignore[no-any-return]


def register() -> None:
    """Make the implementation known to transformers; harmless when repeated."""
    AttentionInterface.register(NAME, infinipot_attention)
    # Without a mask function of the same name transformers drops masks silently.
    AttentionMaskInterface.register(NAME, infinipot_mask)
