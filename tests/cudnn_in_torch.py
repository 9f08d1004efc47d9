"""cuDNN's attention in plain torch, so that what is built on it is tested without a card."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from infinipot.core import attention
from infinipot.core.cuda import kernels


def cudnn(
    queries: Tensor, keys: Tensor, values: Tensor, _bias: Any, _sums: bool, _dropout: float, causal: bool,
    _debug: bool, *, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs, and log-sum-exps [B, H, Q, 1] of the logits."""
    group = queries.shape[1] // keys.shape[1]
    logits = queries.float() @ keys.float().repeat_interleave(group, 1).mT * scale
    if causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), float("-inf"))
    out = logits.softmax(-1) @ values.float().repeat_interleave(group, 1)
    return out.to(queries.dtype), logits.logsumexp(-1, keepdim=True)


def attend_as_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on attention of several tokens goes as on a card that has cuDNN."""
    monkeypatch.setattr(attention, "_has_cudnn", lambda *_: True)
    monkeypatch.setattr(attention, "MANY", 2)
    monkeypatch.setattr(attention, "kernels", lambda _: kernels)
    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", cudnn)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, spec: attention.LogitSpec, sums: Any = None
) -> Tensor:
    """`attention.attend` of several tokens, whatever device they are on."""
    return attention.lower_right(queries, keys, values, spec.scale, sums, spec.merge)
