"""Importance of slots: pure tensor functions from equations 2 and 4 of the paper.

Large temporaries are never made: catalyst queries and vocabulary rows go in blocks.
"""

from collections.abc import Callable, Iterable
from math import log2

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core.config import Pooling
from infinipot.core.cuda.dispatch import fused

QUERY_BLOCK = 64
VOCAB_LOGITS = 25_000_000  # logits that exist at once: 100 MB in float32, whatever the vocabulary
DEVICE_LOGITS = 50_000_000  # on an accelerator, in their own type: no more than gate and up take together
TWOS = log2(torch.e)
LARGEST = 1e4  # nats
TILE = 128  # tokens an accelerator multiplies at once: 514 would cost as much as 640


def received(
    queries: Tensor, keys: Tensor, scale: float, softcap: float | None = None, block: int = QUERY_BLOCK
) -> Tensor:
    """Attention every key receives from the queries (eq. 2 when they are the catalyst's).

    queries [B, Hq, P, D] are those of the last P keys of [B, Hkv, S, D]. Softmax runs over all keys a query
    sees; sums over the queries, averages over the query heads that share a KV head -> [B, Hkv, S].
    """
    batch, heads, count, dim = queries.shape
    groups, slots = heads // keys.shape[1], keys.shape[2]
    grouped = queries.reshape(batch, keys.shape[1], groups, count, dim)
    places = torch.arange(slots, device=keys.device)
    exact = torch.promote_types(keys.dtype, torch.float32)
    total = torch.zeros(batch, keys.shape[1], slots, dtype=exact, device=keys.device)
    for start in range(0, count, block):
        part = grouped[..., start : start + block, :].flatten(2, 3)  # [B, Hkv, G p, D]
        logits = softcapped(wide_products(part, keys) * scale, softcap)
        logits = logits.view(batch, keys.shape[1], groups, -1, slots)  # [B, Hkv, G, p, S]
        last = slots - count + start + torch.arange(logits.shape[-2], device=keys.device)
        logits = logits.masked_fill(places > last[:, None], float("-inf"))
        total += logits.softmax(-1).sum(-2).mean(2)
    return total


def wide_products(queries: Tensor, keys: Tensor) -> Tensor:
    """Products [..., Q, K] of queries [..., Q, D] and keys [..., K, D], in float32 at least.

    An accelerator multiplies half precision and adds in float32 by itself: no wide copy of the keys.
    """
    if queries.device.type == "cuda" and queries.dtype in (torch.bfloat16, torch.float16):
        rows, columns = (x.reshape(-1, *x.shape[-2:]) for x in (queries, keys))
        flat = torch.bmm(rows, columns.mT, out_dtype=torch.float32)
        return flat.view(*queries.shape[:-1], keys.shape[-2])
    exact = torch.promote_types(keys.dtype, torch.float32)
    return queries.to(exact) @ keys.to(exact).mT


def softcapped(logits: Tensor, softcap: float | None) -> Tensor:
    """Gemma-2's soft limit on attention logits; the identity without one."""
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def pool(score: Tensor, kernel: int, pooling: Pooling) -> Tensor:
    """Average or maximum over `kernel` neighbouring slots of [B, Hkv, S]; edges use what is there."""
    if kernel == 1:
        return score
    if pooling == "max":
        return F.max_pool1d(score, kernel, stride=1, padding=kernel // 2)
    return F.avg_pool1d(score, kernel, stride=1, padding=kernel // 2, count_include_pad=False)


def by_run(score: Tensor, number: Tensor) -> Tensor:
    """The mean over each run of neighbouring slots [B, Hkv, S] with the same number, at each of them."""
    slots = torch.arange(score.shape[-1], device=score.device)
    cuts = number[..., 1:] != number[..., :-1]
    first, last = F.pad(cuts, (1, 0), value=True), F.pad(cuts, (0, 1), value=True)
    start = torch.where(first, slots, 0).cummax(-1).values
    stop = torch.where(last, slots, len(slots)).flip(-1).cummin(-1).values.flip(-1) + 1
    # Apple's cards have no float64; no novelty is larger, and an infinite one would spoil all sums after it.
    exact = torch.float32 if score.device.type == "mps" else torch.float64
    sums = F.pad(score.nan_to_num().clamp(-LARGEST, LARGEST).to(exact).cumsum(-1), (1, 0))
    return ((sums.gather(-1, stop) - sums.gather(-1, start)) / (stop - start)).to(score.dtype)


def first_best(score: Tensor, count: int) -> Tensor:
    """The `count` best slots [B, Hkv, count]; of slots that are worth the same, the first ones."""
    return score.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def surprise(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p [T] of the targets [T] under logits [T, V], in float32 whatever the logits' type."""
    wide = logits.float()
    return wide.logsumexp(-1) - wide.gather(1, targets[:, None])[:, 0]


def novelty(
    hidden: Tensor, targets: Tensor, head: Callable[[Tensor], Tensor], vocabulary: int, most: int = 0
) -> Tensor:
    """-log p of each target given the hidden state before it (eq. 4), float32.

    hidden [B, T, H], targets [B, T] -> [B, T]. At most `most` logits exist at a time,
    and they are consumed in place: [tokens, vocabulary] would dwarf the pot.
    """
    flat, wanted = hidden.flatten(0, 1), targets.flatten().to(hidden.device)
    whole = hidden.device.type == "cuda"  # one kernel consumes them: no float32 copy
    rows = max(1, (most or (DEVICE_LOGITS if whole else VOCAB_LOGITS)) // vocabulary)
    rows -= rows % TILE if whole and rows > TILE else 0
    found = torch.empty(wanted.shape, dtype=torch.float32, device=hidden.device)
    for start in range(0, flat.shape[0], rows):
        logits = head(flat[start : start + rows])
        if whole:
            found[start : start + rows] = fused(surprise, logits.device)(logits, wanted[start : start + rows])
            continue
        logits = logits.float()
        picked = logits.gather(1, wanted[start : start + rows, None].to(logits.device))[:, 0]
        highest = logits.amax(1, keepdim=True)
        total = logits.sub_(highest).exp_().sum(1).log_().add_(highest[:, 0])
        found[start : start + rows] = total.sub_(picked)
    return found.view(targets.shape)


def novelty_by_parts(
    targets: Tensor, parts: Iterable[tuple[int, Tensor]], softcap: float | None = None
) -> Tensor:
    """`novelty` of targets [...] from logits that come in parts, which are used up.

    A part is its first row of the vocabulary and logits [T, n] of all tokens, valid until the next: so a head
    that is unpacked part by part is unpacked once.
    """
    wanted, top = targets.reshape(-1), torch.empty(0)
    total = picked = top
    for start, given in parts:
        logits = softcapped(given.to(torch.promote_types(given.dtype, torch.float32)), softcap)
        if not len(top):
            wanted, top = wanted.to(logits.device), logits.new_full((len(wanted),), float("-inf"))
            total, picked = torch.zeros_like(top), torch.zeros_like(top)
        place = wanted - start
        inside = (place >= 0) & (place < logits.shape[1])
        own = logits.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
        picked = torch.where(inside, own, picked)
        higher = torch.maximum(top, logits.amax(1))
        # exp2 takes a fifth of the time of exp on a CPU
        total = total * (top - higher).exp() + logits.sub_(higher[:, None]).mul_(TWOS).exp2_().sum(1)
        top = higher
    return (top + total.log() - picked).view(targets.shape)
