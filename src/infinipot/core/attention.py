"""Exact attention of new tokens on a filled pot, with grouped heads.

Queries are the last rows of the keys: query i of Q sees keys up to K - Q + i (lower-right causal), at most
`window` of them. Libraries' causal flag means upper-left, and an explicit mask costs a [Q, K] tensor and
repeated KV heads, so the common case is split in two maskless calls merged by log-sum-exp. The slow, obvious
version of everything here is in the tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core.cuda.dispatch import fused, kernels
from infinipot.core.mixed_attention import attend_mixed
from infinipot.core.rope import Rotation
from infinipot.core.scores import softcapped, wide_products

MANY = 256  # queries from which on splitting in two calls pays
LONG = 1024  # slots from which on one token's attention on a CPU goes in two halves
ROWS = 512  # queries a block of the banded path, which bounds its mask and logits


@dataclass(frozen=True)
class LogitSpec:
    """How a layer's attention logits are made: their scale, the window of keys they see, their soft limit.

    mixed  many tokens on a CPU may be multiplied in bfloat16.
    merge  how attention on new and on cached keys becomes one where it is computed so: takes both outputs
           and their log-sum-exps. What it returns is returned, whatever that is.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    mixed: bool = False
    merge: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec, sums: list[Tensor] | None = None
) -> Tensor:
    """Attention output [B, Hq, Q, Dv] of queries [B, Hq, Q, D] on keys [B, Hkv, K, D].

    Where a kernel knows them, `sums` gets log-sum-exps [B, Hq, Q] of its logits, over parts of the keys.
    """
    if spec.softcap is not None or (spec.window is not None and spec.window < keys.shape[2]):
        return _banded(queries, keys, values, spec)
    if queries.shape[2] == 1:
        return _one(queries, keys, values, spec.scale)
    if spec.mixed and queries.shape[2] >= MANY:
        return attend_mixed(queries, keys, values, spec.scale)
    if queries.device.type == "cpu":
        return _split(queries, keys, values, spec.scale)
    return lower_right(queries, keys, values, spec.scale, sums, spec.merge)


def _one(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One new token: fold its group of heads into query rows, so KV heads are never repeated."""
    batch, heads, _, dim = queries.shape
    folded = queries.reshape(batch, keys.shape[1], heads // keys.shape[1], dim)
    if queries.device.type == "cpu" and batch == 1 and keys.shape[2] >= LONG:
        return _halves(folded, keys, values, scale).reshape(1, heads, 1, -1)
    return F.scaled_dot_product_attention(folded, keys, values, scale=scale).reshape(batch, heads, 1, -1)


def _halves(rows: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Rows [1, Hkv, G, D] on the slots' two halves as a batch of two: an odd head leaves one core idle."""
    count = (keys.shape[2] + 1) // 2
    apart = keys.shape[2] - count  # one less than `count` if the number of slots is odd: then one comes twice
    twice = None
    if apart < count:
        twice = rows.new_zeros(2, 1, 1, count)
        twice[1, ..., 0] = float("-inf")
    halves = [
        x.as_strided((2, x.shape[1], count, x.shape[3]), (apart * x.stride(2), *x.stride()[1:]))
        for x in (keys, values)
    ]
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(rows.expand(2, -1, -1, -1), *halves, 0.0, False, attn_mask=twice, scale=scale)
    share = torch.sigmoid(lse[1:] - lse[:1])[..., None]  # in few steps that need no second thread
    return torch.lerp(out[:1], out[1:], share.to(out.dtype))


def _split(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """CPU: all queries on the cached keys, causal on the new ones, merged by log-sum-exp."""
    batch, heads, new, dim = queries.shape
    kv_heads, old = keys.shape[1], keys.shape[2] - new
    repeat = heads // kv_heads
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    fresh_keys = keys[:, :, old:].repeat_interleave(repeat, dim=1)
    fresh_values = values[:, :, old:].repeat_interleave(repeat, dim=1)
    fresh, fresh_lse = flash(queries, fresh_keys, fresh_values, 0.0, True, scale=scale)
    if old == 0:
        return fresh  # type: ignore[no-any-return]  # torch.ops is untyped
    folded = queries.reshape(batch, kv_heads, repeat * new, dim)
    cached, cached_lse = flash(folded, keys[:, :, :old], values[:, :, :old], 0.0, False, scale=scale)
    share = torch.sigmoid(cached_lse.reshape(batch, heads, new) - fresh_lse)[..., None]
    return torch.lerp(fresh, cached.reshape(batch, heads, new, -1), share.to(fresh.dtype))


def attend_fixed(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, length: Tensor, softcap: float | None = None
) -> Tensor:
    """One new token on the first `length` + 1 of all slots, at shapes that do not depend on the length.

    length [1] lives on the device, so that a captured graph serves every fill. Slots go in pieces, so that
    few heads still keep a large chip busy.
    """
    batch, heads, _, dim = queries.shape
    kv_heads, slots = keys.shape[1], keys.shape[2]
    pieces = next(count for count in (16, 8, 4, 2, 1) if slots % count == 0)
    rows = queries.reshape(batch, kv_heads, 1, heads // kv_heads, dim)
    split = keys.view(batch, kv_heads, pieces, slots // pieces, dim)
    rows = rows.expand(-1, -1, pieces, -1, -1)
    logits = softcapped(wide_products(rows, split) * scale, softcap)  # [B, Hkv, pieces, G, S / pieces]
    places = torch.arange(slots, device=keys.device).view(pieces, 1, -1)
    logits = logits.masked_fill(places > length, float("-inf"))
    top = logits.amax((2, 4), keepdim=True)
    share = (logits - top).exp_()
    total = share.sum((2, 4))  # [B, Hkv, G]
    parts = share.to(values.dtype) @ values.view(batch, kv_heads, pieces, slots // pieces, -1)
    out = parts.float().sum(2) / total[..., None]
    return out.to(queries.dtype).reshape(batch, heads, 1, -1)


def _split_cudnn(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, sums: list[Tensor] | None, merge: Any
) -> Tensor:
    """Hopper and later: cuDNN on the cached and on the new keys, merged by log-sum-exp as on a CPU."""
    attend_with = torch.ops.aten._scaled_dot_product_cudnn_attention
    old = keys.shape[2] - queries.shape[2]
    new, new_lse = attend_with(
        queries, keys[:, :, old:], values[:, :, old:], None, True, 0.0, True, False, scale=scale
    )[:2]
    if sums is not None:
        sums.append(new_lse.reshape(new.shape[:3]))
    if old == 0:
        return new  # type: ignore[no-any-return]  # torch.ops is untyped
    cached, cached_lse = attend_with(
        queries, keys[:, :, :old], values[:, :, :old], None, True, 0.0, False, False, scale=scale
    )[:2]
    if sums is not None:
        sums.append(cached_lse.reshape(new.shape[:3]))
    fast = kernels(queries.device)
    if fast and fast.serves(queries, keys):
        return (merge or fast.merge)(new, cached, new_lse, cached_lse)  # type: ignore[no-any-return]  # loaded by name
    return fused(_merged, queries.device)(new, cached, new_lse, cached_lse)


def _merged(new: Tensor, cached: Tensor, new_lse: Tensor, cached_lse: Tensor) -> Tensor:
    """Two attentions [B, H, Q, D] over different keys as one, by their log-sum-exps [B, H, Q, ...]."""
    share = torch.sigmoid(cached_lse.reshape(new.shape[:3]) - new_lse.reshape(new.shape[:3]))[..., None]
    return torch.lerp(new.float(), cached.float(), share).to(new.dtype)


@cache
def _has_cudnn(device: torch.device, dtype: torch.dtype, dim: int) -> bool:
    """Where cuDNN's attention is the faster one."""
    half = dtype in (torch.bfloat16, torch.float16) and dim <= 128 and dim % 8 == 0
    if device.type != "cuda" or not half or not torch.backends.cudnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


@cache
def has_flash(device: torch.device, dtype: torch.dtype, dim: int) -> bool:
    """Say where the flash kernel can be called: no other device has it, nor a card before Ampere."""
    half = dtype in (torch.bfloat16, torch.float16) and dim <= 256
    return half and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def lower_right(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, sums: list[Tensor] | None = None,
    merge: Any = None,
) -> Tensor:  # fmt: skip
    """Accelerators: where there is one, the flash kernel with its own lower-right alignment and KV heads."""
    if queries.shape[2] >= MANY and _has_cudnn(queries.device, queries.dtype, queries.shape[-1]):
        return _split_cudnn(queries, keys, values, scale, sums, merge)
    if has_flash(queries.device, queries.dtype, queries.shape[-1]):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(queries, keys, values, 0.0, True, False, scale=scale)[0]  # type: ignore[no-any-return]
    repeat = queries.shape[1] // keys.shape[1]
    if queries.shape[2] == keys.shape[2]:
        return F.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=scale, enable_gqa=repeat > 1
        )
    from torch.nn.attention.bias import causal_lower_right  # takes torch's compiler along, and seconds

    bias = causal_lower_right(queries.shape[2], keys.shape[2])
    keys, values = keys.repeat_interleave(repeat, dim=1), values.repeat_interleave(repeat, dim=1)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=scale)


def _banded(queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
    """Sliding windows and soft-capped logits, a block of queries at a time on the keys it can see."""
    batch, heads, new, dim = queries.shape
    kv_heads, old, window = keys.shape[1], keys.shape[2] - new, spec.window or keys.shape[2]
    grouped = queries.reshape(batch, kv_heads, heads // kv_heads, new, dim)
    parts = []
    for start in range(0, new, ROWS):
        rows = grouped[:, :, :, start : start + ROWS]
        at = old + start + torch.arange(rows.shape[3], device=keys.device)[:, None]  # key index of each query
        low, high = max(0, old + start - window + 1), old + start + rows.shape[3]
        place = torch.arange(low, high, device=keys.device)
        hidden = (place > at) | (place <= at - window)
        logits = softcapped(rows @ keys[:, :, None, low:high].mT * spec.scale, spec.softcap)
        parts.append(_weighted(logits, hidden, values[:, :, None, low:high]))
    return torch.cat(parts, dim=3).reshape(batch, heads, new, -1)


def _weighted(logits: Tensor, hidden: Tensor, values: Tensor, lowest: float = float("-inf")) -> Tensor:
    """Values [..., K, Dv] weighted by logits [..., Q, K], which are used up; `hidden` ones are not seen."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide.masked_fill_(hidden, lowest).softmax(-1).to(values.dtype) @ values


def attend_grouped(
    queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec, rotation: Rotation, group: int
) -> Tensor:
    """Self-Extend on a full cache, where key i has position i.

    A key nearer than the window counts with its true distance; beyond, key p counts as at p // group and
    query p as at p // group + window - window // group.
    """
    window = spec.window or keys.shape[2]
    batch, heads, new, _ = queries.shape
    seen = keys.shape[2]
    places = torch.arange(seen, device=keys.device)
    rotation.reach(seen)
    far_keys = rotation.back(keys, (places - places // group).expand(keys.shape[:-1]))
    parts = []
    for start in range(0, new, ROWS // 4):
        rows = queries[:, :, start : start + ROWS // 4] * spec.scale
        first, end = seen - new + start, seen - new + start + rows.shape[2]  # positions of these queries
        at = torch.arange(first, end, device=keys.device)
        shift = at - (at // group + window - window // group)  # negative only where nothing is that far
        far_rows = rotation.back(rows, shift.clamp(min=0).expand(rows.shape[:-1]))
        # Keys before `low` are far for all of these queries, from `high` on near for all: no product twice.
        low, high = max(0, first - window + 1), max(0, end - window)
        far = _logits(far_rows, far_keys[:, :, :high])
        near = _logits(rows, keys[:, :, low:end])
        mixed = at[:, None] - places[low:high] >= window
        near[..., : high - low] = torch.where(mixed, far[..., low:], near[..., : high - low])
        logits = softcapped(torch.cat((far[..., :low], near), dim=-1), spec.softcap)
        parts.append(_weighted(logits, places[:end] > at[:, None], values[:, :, None, :end]))
    return torch.cat(parts, dim=3).reshape(batch, heads, new, -1)


def _logits(queries: Tensor, keys: Tensor) -> Tensor:
    """Products [B, Hkv, G, Q, K] of queries [B, Hq, Q, D] with keys [B, Hkv, K, D]."""
    batch, heads, new, dim = queries.shape
    return queries.reshape(batch, keys.shape[1], heads // keys.shape[1], new, dim) @ keys[:, :, None].mT


def attend_masked(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor, softcap: float | None = None
) -> Tensor:
    """Attention under an explicit boolean mask [B, 1, Q, K] (true = seen), for padded batches."""
    logits = softcapped(_logits(queries, keys) * scale, softcap)
    # Not -inf: a row of padding sees nothing, and must not become NaN.
    lowest = torch.finfo(torch.promote_types(logits.dtype, torch.float32)).min
    out = _weighted(logits, ~mask[:, :, None], values[:, :, None], lowest)
    return out.reshape(*queries.shape[:3], -1)
