"""Every Triton kernel against its plain twin in float64, at the shapes of real models.

tests/unit/core/test_kernels.py does the same at small shapes in Triton's interpreter, where there is no card.
"""

from __future__ import annotations

import torch

from gpu.random_models import DEVICE, relative
from infinipot.core import attention, scores
from infinipot.core.columns import SLOTS
from infinipot.core.cuda import kernels
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation

SHAPES = ((4096, 32, 8, 128), (1000, 12, 2, 128), (2048, 9, 3, 64))  # slots, query heads, KV heads, dimension
HALF, FINER = torch.bfloat16, torch.float16  # the kernel of attention knows these two
MOST = {HALF: 0.01, FINER: 2e-3}


def some(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def addresses(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors], device=DEVICE)


def decode(dtype: torch.dtype) -> None:
    for slots, heads, kv_heads, dim in SHAPES:
        for fills in ((0, 1), (255, 256), (slots // 2, slots - 1)):
            query, new, new_values = (
                some(2, many, 1, dim, dtype=dtype) for many in (heads, kv_heads, kv_heads)
            )
            keys, values = ([some(1, kv_heads, slots, dim, dtype=dtype) for _ in fills] for _ in range(2))
            length = torch.tensor(fills, device=DEVICE)
            found = kernels.attend_rows(
                query, new, new_values, addresses(keys), addresses(values), length, slots, dim**-0.5
            )
            for row, fill in enumerate(fills):
                assert torch.equal(keys[row][0, :, fill], new[row, :, 0])
                part, k, v = slice(row, row + 1), keys[row].double(), values[row].double()
                wanted = attention.attend_fixed(query[part].double(), k, v, dim**-0.5, length[part])
                assert relative(found[part], wanted) < MOST[dtype], (slots, heads, dim, fill)


def test_one_new_token_a_pot_in_bfloat16() -> None:
    decode(HALF)


def test_one_new_token_a_pot_in_float16() -> None:
    decode(FINER)


def test_rows_of_one_pot_see_each_other() -> None:
    for slots, heads, kv_heads, dim in SHAPES:
        fills = [*range(slots - 300, slots - 44), 5, -1]  # a prompt of 256 tokens, the last of them first
        fills[:256] = [fills[255], *fills[:255]]
        pots = [0] * 256 + [1, 0]
        query, new, new_values = (some(258, many, 1, dim) for many in (heads, kv_heads, kv_heads))
        keys, values = ([some(1, kv_heads, slots, dim) for _ in range(2)] for _ in range(2))
        keys_at, values_at = (addresses([several[pot] for pot in pots]) for several in (keys, values))
        length = torch.tensor(fills, device=DEVICE)
        found = kernels.attend_rows(
            query, new, new_values, keys_at, values_at, length, slots, dim**-0.5, shared=True
        )
        for row, (pot, fill) in enumerate(zip(pots[:257], fills[:257], strict=True)):
            assert torch.equal(keys[pot][0, :, fill], new[row, :, 0])
            part, k, v = slice(row, row + 1), keys[pot].double(), values[pot].double()
            wanted = attention.attend_fixed(query[part].double(), k, v, dim**-0.5, length[part])
            assert relative(found[part], wanted) < MOST[HALF], (slots, heads, dim, fill)
        assert found[257].isfinite().all()


def test_what_the_catalyst_attends_to() -> None:
    for slots, heads, kv_heads, dim in SHAPES:
        queries = some(1, 26, heads, dim).transpose(1, 2)
        keys = some(1, kv_heads, slots, dim)
        found = kernels.received(queries, keys, dim**-0.5)
        wanted = scores.received(queries.double(), keys.double(), dim**-0.5)
        assert relative(found, wanted) < MOST[HALF], (slots, heads, dim)


def test_what_the_catalyst_attends_to_by_what_attention_knows() -> None:
    for slots, heads, kv_heads, dim in SHAPES:
        queries = some(1, 300, heads, dim).transpose(1, 2)
        keys, values = some(1, kv_heads, slots, dim), some(1, kv_heads, slots, dim)
        sums: list[torch.Tensor] = []
        attention.lower_right(queries, keys, values, dim**-0.5, sums)
        assert len(sums) == 2 or not attention._has_cudnn(queries.device, HALF, dim)
        last = queries[:, :, -26:]
        found = kernels.received(last, keys, dim**-0.5, [one[:, :, -26:] for one in sums])
        wanted = scores.received(last.double(), keys.double(), dim**-0.5)
        assert relative(found, wanted) < MOST[HALF], (slots, heads, dim)


def test_two_attentions_as_one() -> None:
    one, other = some(1, 2048, 32, 128).transpose(1, 2), some(1, 2048, 32, 128).transpose(1, 2)
    lse, other_lse = torch.randn(2, 1, 32, 2048, device=DEVICE)
    share = torch.sigmoid(other_lse - lse)[..., None].double()
    wanted = torch.lerp(one.double(), other.double(), share)
    merged = kernels.merge(one.clone(), other, lse, other_lse)
    assert relative(merged, wanted) < MOST[HALF]
    data, scale = kernels.merge_rounded(one, other, lse, other_lse)
    rows, size = kernels.round_rows(merged.transpose(1, 2).reshape(2048, -1))
    assert relative(data.float() * scale, rows.float() * size) < MOST[HALF]


def layer(rotation: Rotation, slots: int, kv_heads: int, dim: int) -> PotLayer:
    made = PotLayer(slots, slots // 2, rotation)
    made.append(some(1, kv_heads, slots - 6, dim), some(1, kv_heads, slots - 6, dim))
    made.novelty.uniform_()
    made.running.uniform_()
    made.sentence.random_(9)
    return made


def test_keeping_slots_of_all_layers() -> None:
    slots, kv_heads, dim, many = 4096, 8, 128, 4
    rotation = Rotation(10000.0 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim), 2 * slots)
    layers = [layer(rotation, slots, kv_heads, dim) for _ in range(many)]
    twins = [one.copy() for one in layers]
    for count in (slots // 2, slots - 400, slots // 3):  # more slots than have anchors, between
        chances = torch.rand(many, 1, kv_heads, layers[0].fill, device=DEVICE)
        chosen = chances.topk(count).indices.sort().values
        table = torch.stack([addresses(one.tensors()) for one in layers])
        anchored, dtype = layers[0].anchored, layers[0].keys.dtype
        kernels.keep(
            table, chosen, rotation.cos, rotation.sin, anchored, slots, slots // 2, dtype, True, True
        )
        for one, twin, places in zip(layers, twins, chosen, strict=True):
            twin.keep(places)
            one.fill, one.anchored = count, twin.anchored
            one.dropped.copy_(twin.dropped)
            for name in ("values", "source", "novelty", "running", "sentence", "anchors", "written"):
                assert torch.equal(getattr(one, name)[:, :, :count], getattr(twin, name)[:, :, :count]), name
            assert relative(one.keys[:, :, :count], twin.keys[:, :, :count]) < MOST[HALF]
            more = some(1, kv_heads, slots - count, dim), some(1, kv_heads, slots - count, dim)
            one.append(*more)
            twin.append(*more)
            twin.sentence.copy_(one.sentence)  # of new slots it is noted by the pot


def test_appending_a_chunk() -> None:
    rotation = Rotation(torch.ones(64, device=DEVICE), 8192)
    one = PotLayer(4096, 2048, rotation)
    one.append(some(1, 8, 1000, 128), some(1, 8, 1000, 128))
    twin = one.copy()
    keys, values = (some(1, 2048, 8, 128).transpose(1, 2) for _ in range(2))
    kernels.append(keys, values, [getattr(one, column.name) for column in SLOTS], one.dropped, one.fill)
    twin.append(keys, values)
    for name in ("keys", "values", "source", "novelty", "running"):
        assert torch.equal(getattr(one, name)[:, :, :3048], getattr(twin, name)[:, :, :3048]), name
