"""Every Triton kernel against its slow twin: on a GPU as it is, elsewhere in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from cudnn_in_torch import attend, attend_as_on_a_card
from infinipot.core import attention, keep, pot_layer, rounded_layer, scores
from infinipot.core import pot as pot_module
from infinipot.core.attention import _merged, attend_fixed
from infinipot.core.columns import SLOTS
from infinipot.core.cuda import dispatch, kernels
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer, buffer
from infinipot.hf.cuda import fp8

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(4, 2, 64), (9, 3, 64), (2, 2, 128)]  # query heads, KV heads, dimension


def some(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def addresses(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors], device=DEVICE)


def close(found: torch.Tensor, wanted: torch.Tensor, most: float = 2e-3) -> bool:
    wanted = wanted.double()
    return float((found.double() - wanted).norm() / wanted.norm()) < most


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
@pytest.mark.parametrize("fills", [(0, 3), (255, 256), (299, 300)])
def test_one_new_token_a_pot(heads, kv_heads, dim, fills):
    slots = 300
    keys, values = ([some(1, kv_heads, slots, dim) for _ in fills] for _ in range(2))
    queries = some(2, heads, 1, dim)
    fresh, fresh_values = some(2, kv_heads, 1, dim), some(2, kv_heads, 1, dim)
    before = [key.clone() for key in keys]
    length = torch.tensor(fills, device=DEVICE)
    found = kernels.attend_rows(
        queries, fresh, fresh_values, addresses(keys), addresses(values), length, slots, dim**-0.5
    )
    for row, fill in enumerate(fills):
        if fill < slots:
            before[row][:, :, fill] = fresh[row, :, 0]
            assert torch.equal(values[row][0, :, fill], fresh_values[row, :, 0])
        assert torch.equal(keys[row], before[row])  # the new entry is there, and nothing else changed
        wanted = attend_fixed(
            queries[row : row + 1].double(),
            keys[row].double(),
            values[row].double(),
            dim**-0.5,
            length[row : row + 1],
        )
        assert close(found[row], wanted[0])


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
def test_rows_of_one_pot_see_each_other_and_a_row_of_nobody_writes_nothing(heads, kv_heads, dim):
    slots, fills = 300, (257, 255, 256, 7, -1)  # three tokens of the first pot, the last one first
    pots = [0, 0, 0, 1, 0]
    keys, values = ([some(1, kv_heads, slots, dim) for _ in range(2)] for _ in range(2))
    queries = some(5, heads, 1, dim)
    fresh, fresh_values = some(5, kv_heads, 1, dim), some(5, kv_heads, 1, dim)
    before = [key.clone() for key in keys]
    at = [addresses([several[pot] for pot in pots]) for several in (keys, values)]
    length = torch.tensor(fills, device=DEVICE)
    found = kernels.attend_rows(queries, fresh, fresh_values, *at, length, slots, dim**-0.5, shared=True)
    for row, (pot, fill) in enumerate(zip(pots[:4], fills[:4], strict=True)):
        before[pot][:, :, fill] = fresh[row, :, 0]
    for row, pot in enumerate(pots[:4]):
        assert torch.equal(keys[pot], before[pot])
        part, seen = slice(row, row + 1), (keys[pot].double(), values[pot].double())
        assert close(found[row], attend_fixed(queries[part].double(), *seen, dim**-0.5, length[part])[0])
    assert found[4].isfinite().all()


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
@pytest.mark.parametrize(("count", "seen"), [(3, 200), (40, 130), (1, 128), (20, 20)])
def test_what_the_catalyst_attends_to(heads, kv_heads, dim, count, seen):
    queries = some(2, count, heads, dim).transpose(1, 2)
    keys = some(2, kv_heads, seen + 9, dim)[:, :, :seen]
    wanted = scores.received(queries.double(), keys.double(), dim**-0.5)
    assert close(kernels.received(queries, keys, dim**-0.5), wanted)
    if count < seen:
        sums = [one[:, :, -count:] for one in log_sums(queries, keys, dim**-0.5)]
        assert close(kernels.received(queries, keys, dim**-0.5, sums), wanted)


def log_sums(queries, keys, scale):
    """Log-sum-exps of the logits over new and over cached keys, as attention in two parts knows them."""
    count, seen, group = queries.shape[2], keys.shape[2], queries.shape[1] // keys.shape[1]
    logits = queries.float() @ keys.float().repeat_interleave(group, 1).mT * scale
    hidden = torch.ones(count, seen, dtype=torch.bool, device=DEVICE).triu(seen - count + 1)
    logits = logits.masked_fill(hidden, float("-inf"))
    parts = logits[..., seen - count :], logits[..., : seen - count]
    rows = torch.zeros(*queries.shape[:2], 5, device=DEVICE)  # of text before the catalyst
    return [torch.cat((rows, part.logsumexp(-1)), dim=2) for part in parts]


def layer(rotation: Rotation, fill: int, kv_heads: int, dim: int) -> PotLayer:
    made = PotLayer(96, 48, rotation)
    made.append(some(1, kv_heads, fill, dim), some(1, kv_heads, fill, dim))
    made.novelty.uniform_()
    made.running.uniform_()
    made.sentence.random_(9)
    return made


@pytest.mark.parametrize(("kv_heads", "dim"), [(2, 64), (1, 128)])
def test_keeping_slots_of_all_layers(kv_heads, dim):
    rotation = Rotation(10000.0 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim), 192)
    layers = [layer(rotation, 90, kv_heads, dim) for _ in range(3)]
    twins = [one.copy() for one in layers]
    for count in (48, 66, 40, 30):  # with anchors of the time before, but for more slots than have some
        slots = torch.rand(3, 1, kv_heads, layers[0].fill, device=DEVICE).topk(count).indices.sort().values
        table = torch.stack([addresses(one.tensors()) for one in layers])
        kernels.keep(
            table,
            slots,
            rotation.cos,
            rotation.sin,
            layers[0].anchored,
            96,
            48,
            layers[0].keys.dtype,
            True,
            True,
        )
        for one, twin, chosen in zip(layers, twins, slots, strict=True):
            twin.keep(chosen)
            one.fill, one.anchored = count, twin.anchored
            one.dropped.copy_(twin.dropped)
            for name in ("values", "source", "novelty", "running", "sentence", "anchors", "written"):
                assert torch.equal(getattr(one, name)[:, :, :count], getattr(twin, name)[:, :, :count]), name
            assert close(one.keys[:, :, :count], twin.keys[:, :, :count])
            more = some(1, kv_heads, 96 - count, dim), some(1, kv_heads, 96 - count, dim)
            one.append(*more)
            twin.append(*more)
            twin.sentence.copy_(one.sentence)  # of new slots it is noted by the pot


@pytest.mark.parametrize("bits", [16, 8])
def test_all_layers_count_what_they_drop(bits, monkeypatch):
    """In one launch, by addresses; later entries then know their place in the text."""
    rotation = Rotation(10000.0 ** (-torch.arange(0, 64, 2, device=DEVICE) / 64), 192)
    layers = [layer(rotation, 90, 2, 64) if bits == 16 else eight(90, 2, 64) for _ in range(3)]
    twins = [one.copy() for one in layers]
    for module in (keep, pot_layer, rounded_layer):
        monkeypatch.setattr(module, "kernels", lambda _: kernels)
    for one in layers:
        one.rotation = layers[0].rotation
    table = keep.addresses(layers)
    assert table is not None
    for count in (48, 40):
        slots = torch.rand(3, 1, 2, layers[0].fill, device=DEVICE).topk(count).indices.sort().values
        keep.keep_all(layers, list(slots), table)
        for one, twin, chosen in zip(layers, twins, slots, strict=True):
            twin.keep(chosen)
            assert one.dropped.item() == twin.dropped.item() == one.tokens - one.fill > 0
            new = some(1, 2, 4, 64), some(1, 2, 4, 64)
            one.append(*new)
            twin.append(*new)
            assert torch.equal(one.source[:, :, : one.fill], twin.source[:, :, : one.fill])
            assert one.source[0, 0, one.fill - 1] == one.tokens - 1


def test_appending_a_chunk():
    rotation = Rotation(torch.ones(32, device=DEVICE), 192)
    one = layer(rotation, 20, 2, 64)
    twin = one.copy()
    keys, values = (some(1, 70, 2, 64).transpose(1, 2) for _ in range(2))
    columns = [getattr(one, column.name) for column in SLOTS]
    kernels.append(keys, values, columns, one.dropped, one.fill)
    twin.append(keys, values)
    for name in ("keys", "values", "source", "novelty", "running"):
        assert torch.equal(getattr(one, name)[:, :, :90], getattr(twin, name)[:, :, :90]), name


@pytest.mark.parametrize("batch", [1, 2])
def test_a_chunk_is_turned_where_it_is_appended(batch):
    """By the kernel out of rows of queries, keys and values as one product gives them, and plainly before."""
    rotation = Rotation(torch.ones(32, device=DEVICE), 192)
    heads, kv_heads, count, dim = 6, 2, 70, 64
    one = PotLayer(96, 48, rotation)
    one.append(some(batch, kv_heads, 20, dim), some(batch, kv_heads, 20, dim))
    one.dropped += 5
    twin, rows = one.copy(), some(batch, count, heads + 2 * kv_heads, dim)
    twin.dropped += 5
    angle = 6 * torch.rand(count, dim // 2, device=DEVICE)
    cos, sin = angle.cos(), angle.sin()
    queries, keys, values = rows.transpose(1, 2).split([heads, kv_heads, kv_heads], dim=1)
    wanted, turned = (turned_by(x.clone(), cos, sin) for x in (queries, keys))
    twin.append(turned, values)
    columns = [getattr(one, column.name) for column in SLOTS]
    kernels.append(keys, values, columns, one.dropped, one.fill, [queries, cos, sin])
    assert close(queries, wanted, 1e-3)
    assert close(one.keys[:, :, :90], twin.keys[:, :, :90], 1e-3)
    for name in ("values", "source", "novelty", "running"):
        assert torch.equal(getattr(one, name)[:, :, :90], getattr(twin, name)[:, :, :90]), name
    assert one.source[0, 0, 89] == 94


def turned_by(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


@pytest.mark.parametrize("rows", [1, 33])
def test_two_attentions_as_one(rows):
    new, old = some(2, rows, 3, 64).transpose(1, 2), some(2, 3, rows, 64)
    lse, other = some(2, 3, rows, dtype=torch.float32), some(2, 3, rows, 1, dtype=torch.float32)
    wanted = _merged(new.clone(), old, lse, other)
    assert close(kernels.merge(new, old, lse, other), wanted)


# Pots in 8 bits --------------------------------------------------------------------


def eight(fill: int, kv_heads: int, dim: int, slots: int = 96, bias: float = 0.0) -> RoundedLayer:
    """A layer in 8 bits with an offset, filled by the plain path."""
    rotation = Rotation(10000.0 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim), 2 * slots)
    made = RoundedLayer(slots, rotation, some(kv_heads, dim, dtype=torch.float32) + bias)
    if fill:
        dispatch_off(made, some(1, kv_heads, fill, dim), some(1, kv_heads, fill, dim))
    return made


def dispatch_off(layer: RoundedLayer, *entries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Append by the plain path, on a GPU too; what it returns is copied out of the shared buffer."""
    before, dispatch.KERNELS = dispatch.KERNELS, False
    try:
        keys, values = layer.append(*entries)
        return keys.clone(), values.clone()
    finally:
        dispatch.KERNELS = before


@pytest.mark.parametrize(("kv_heads", "dim"), [(2, 64), (1, 128)])
@pytest.mark.parametrize("fill", [0, 20, 33])
def test_a_chunk_in_8_bits_and_what_it_attends_to(kv_heads, dim, fill):
    one = eight(fill, kv_heads, dim)
    twin = one.copy()
    keys, values = (some(1, 40, kv_heads, dim).transpose(1, 2) for _ in range(2))
    if not one.keys.numel():
        one._allocate(keys, values)
    seen, turn = buffer(keys, values, one.capacity), one.rotation
    kernels.widen(one.tensors(), one.offset, turn.cos, turn.sin, seen.keys, seen.values, one.fill)
    into = (one.tensors(), one.offset, turn.cos, turn.sin, seen.keys, seen.values)
    kernels.append_rounded(keys, values, *into, one.dropped, one.fill)
    found = [x[:, :, : fill + 40].clone() for x in (seen.keys, seen.values)]
    for own, other in zip(found, dispatch_off(twin, keys, values), strict=True):
        assert close(own, other)
        assert torch.equal(own[:, :, fill:], other[:, :, fill:])
    for name in ("keys", "values"):  # a sum in another order may round one step further
        mine, theirs = (getattr(x, name)[:, :, : fill + 40].int() for x in (one, twin))
        assert (mine - theirs).abs().max() <= 1, name
        assert (mine != theirs).float().mean() < 0.01, name
    for name in ("key_scale", "value_scale", "source", "novelty", "running"):
        assert torch.allclose(
            getattr(one, name)[:, :, : fill + 40], getattr(twin, name)[:, :, : fill + 40]
        ), name


def test_keeping_slots_in_8_bits_of_all_layers():
    layers = [eight(90, 2, 64) for _ in range(3)]
    for one in layers:
        one.sentence.random_(9)
    twins = [one.copy() for one in layers]
    slots = torch.rand(3, 1, 2, 90, device=DEVICE).topk(70).indices.sort().values
    table = torch.stack([addresses(one.tensors()) for one in layers])
    kernels.keep_rounded(table, slots, 96, 64, True, True)
    for one, twin, chosen in zip(layers, twins, slots, strict=True):
        twin.keep(chosen)
        for own, other in zip(one.tensors(), twin.tensors(), strict=True):
            assert torch.equal(own[:, :, :70], other[:, :, :70])


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
@pytest.mark.parametrize("fills", [(0, 3), (255, 256), (299, 300)])
def test_one_new_token_a_pot_in_8_bits(heads, kv_heads, dim, fills):
    slots = 300
    layers = [eight(fill, kv_heads, dim, slots, bias=3.0) for fill in fills]
    queries, fresh, values = (some(2, count, 1, dim) for count in (heads, kv_heads, kv_heads))
    for row, one in enumerate(layers):
        if not one.keys.numel():
            one._allocate(fresh[row : row + 1], values[row : row + 1])
    twins = [one.copy() for one in layers]
    at = torch.tensor([one.addresses for one in layers], device=DEVICE).T.contiguous()
    length, turn = torch.tensor(fills, device=DEVICE), layers[0].rotation
    found = kernels.attend_rounded(queries, fresh, values, at, turn.cos, turn.sin, length, slots, dim**-0.5)
    for row, fill in enumerate(fills):
        here, own, twin = slice(row, row + 1), layers[row], twins[row]
        if fill < slots:
            seen = twin.write_at(length[here], fresh[here], values[here])
        else:  # padding: nothing is written
            seen = buffer(fresh[here], values[here], slots)
            twin._widen(seen, slots)
            seen = (seen.keys, seen.values)
        wanted = attend_fixed(queries[here].double(), *(x.double() for x in seen), dim**-0.5, length[here])
        assert close(found[row], wanted[0], 0.005)
        for mine, theirs in zip(own.tensors()[:4], twin.tensors()[:4], strict=True):
            assert torch.allclose(
                mine.float(), theirs.float(), atol=1.01 if mine.dtype == torch.int8 else 1e-6
            )


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE of heads [..., D] by cos, sin [D / 2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
@pytest.mark.parametrize("fills", [(0, 3), (63, 64), (299, 300), (130, -1)])
def test_one_new_token_whose_heads_are_turned_on_the_way(heads, kv_heads, dim, fills):
    slots, apart = 300, (heads, kv_heads, kv_heads)
    keys, values = ([some(1, kv_heads, slots, dim) for _ in fills] for _ in range(2))
    qkv, length = some(2, sum(apart) * dim), torch.tensor(fills, device=DEVICE)
    places = torch.tensor([7, 2900], device=DEVICE)
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim)
    cos, sin = kernels.angles_at(places, frequencies, 1.5, qkv.dtype)
    angles = places.double()[:, None] * frequencies
    assert close(cos, 1.5 * angles.cos())
    assert close(sin, 1.5 * angles.sin())
    twins = [[one.clone() for one in several] for several in (keys, values)]
    queries, new, new_values = qkv.view(2, -1, 1, dim).split(apart, dim=1)
    queries, new = (
        turned(x.float(), cos[:, None, None].float(), sin[:, None, None].float()).half()
        for x in (queries, new)
    )
    wanted = kernels.attend_rows(
        queries, new, new_values, *(addresses(several) for several in twins), length, slots, dim**-0.5
    )
    at = addresses(keys), addresses(values)
    found = kernels.attend_turned(qkv, cos, sin, *at, length, slots, dim**-0.5, kv_heads)
    assert kernels.turns(qkv, dim, heads // kv_heads, slots)
    for row, fill in enumerate(fills):
        if fill >= 0:
            assert close(found[row].view(-1), wanted[row].view(-1))
        assert close(keys[row], twins[0][row], 1e-4)
        assert torch.equal(values[row], twins[1][row])
        if 0 <= fill < slots:
            assert not torch.equal(keys[row][:, :, fill], torch.zeros_like(keys[row][:, :, fill]))
            assert torch.equal(values[row][0, :, fill], new_values[row, :, 0])
    for one, wanted in zip(kernels.apart(qkv, cos, sin, kv_heads), (queries, new, new_values), strict=True):
        assert one.is_contiguous()
        assert close(one, wanted[:, :, 0], 1e-4)


@pytest.mark.parametrize("width", [64, 1000])
@pytest.mark.parametrize("adds", [True, False])
def test_a_sum_and_its_norm(width, adds):
    x, more, weight = some(3, width), some(3, width), some(width)
    total, out = kernels.add_norm(x, more if adds else None, weight, 1e-5)
    wanted = x + more if adds else x
    assert torch.equal(total, wanted)
    wide = wanted.double()
    assert close(out, weight * wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt())


def within_a_step(found: tuple[torch.Tensor, torch.Tensor], wanted: torch.Tensor) -> bool:
    """Rows in 8-bit floats, of which a few may have gone the other way: an eighth of their size apart.

    Triton's interpreter halves a number that is rounded up to a power of two: some of a hundred are.
    """
    (data, scale), (other, size) = found, fp8.rounded_rows(wanted)
    wide, twin = data.float() * scale, other.float() * size
    far = (wide - twin).abs() > twin.abs() / 7 + size / 256
    halved = (wide - twin / 2).abs() <= twin.abs() / 100
    allowed = 0.0 if DEVICE == "cuda" else 0.05
    return close(scale, size) and bool((~far | halved).all()) and float(far.float().mean()) <= allowed


@pytest.mark.parametrize(("rows", "width"), [(3, 64), (2, 1000)])
def test_gates_and_what_they_let_through(rows, width):
    x = some(rows, 2 * width)
    wanted = torch.nn.functional.silu(x[:, :width].float()) * x[:, width:].float()
    assert close(kernels.gated(x), wanted)
    assert within_a_step(kernels.gated(x, rounds=True), wanted)


@pytest.mark.parametrize(("batch", "heads", "queries", "dim"), [(1, 4, 5, 64), (2, 3, 7, 64)])
def test_two_attentions_as_one_that_is_rounded(batch, heads, queries, dim):
    new, old = (some(batch, queries, heads, dim).transpose(1, 2) for _ in range(2))
    sums = torch.randn(2, batch, heads, queries, device=DEVICE)
    rounded = kernels.merge_rounded(new, old, *sums)
    wanted = kernels.merge(new.clone(), old, *sums)
    assert within_a_step(rounded, wanted.transpose(1, 2).reshape(batch * queries, -1))


def test_attention_in_two_parts_tells_its_sums_and_may_be_merged_otherwise(monkeypatch):
    attend_as_on_a_card(monkeypatch)
    queries, keys, values = some(1, 4, 9, 64), some(1, 2, 30, 64), some(1, 2, 30, 64)
    wanted = attention._split(queries.float(), keys.float(), values.float(), 0.1)
    sums: list[torch.Tensor] = []
    found = attention.lower_right(queries, keys, values, 0.1, sums)
    assert close(found, wanted)
    last = kernels.received(queries[:, :, -3:], keys, 0.1, [one[:, :, -3:] for one in sums])
    assert close(last, scores.received(queries[:, :, -3:].double(), keys.double(), 0.1))
    parts: list[tuple[torch.Tensor, ...]] = []
    attention.lower_right(queries, keys, values, 0.1, None, lambda *some: parts.append(some) or some[0])
    rounded = kernels.merge_rounded(*parts[0])
    assert within_a_step(rounded, found.transpose(1, 2).reshape(9, -1))


def test_a_pot_hands_the_catalyst_s_sums_on(monkeypatch):
    attend_as_on_a_card(monkeypatch)
    monkeypatch.setattr(pot_module, "attend", attend)
    monkeypatch.setattr(pot_layer, "kernels", lambda _: kernels)
    given: list[int] = []
    received = kernels.received
    monkeypatch.setattr(kernels, "received", lambda *all_: given.append(len(all_[3])) or received(*all_))
    made = pot_module.Pot([pot_module.LayerSpec(torch.ones(32, device=DEVICE))], 64, 32)
    made.append(0, some(1, 2, 20, 64), some(1, 2, 20, 64))
    queries, keys, values = some(1, 4, 12, 64), some(1, 2, 12, 64), some(1, 2, 12, 64)
    with made.writing(catalyst=5):
        seen = made.append(0, keys, values)
        made.attend(0, queries, *seen, attention.LogitSpec(0.1))
        found = made.layers[0].catalyst
    assert given == [2]
    wanted = scores.received(queries[:, :, -5:].double(), seen[0].double(), 0.1)[..., :-5]
    assert close(found, wanted)


@pytest.mark.parametrize("width", [64, 1000])
def test_a_row_that_is_rounded_where_it_is_computed(width):
    x, more, weight = some(3, width), some(3, width), some(width)
    total, found = kernels.add_norm(x, more, weight, 1e-5, rounds=True)
    plain, wanted = kernels.add_norm(x, more, weight, 1e-5)
    assert torch.equal(total, plain)
    assert within_a_step(found, wanted)
    assert within_a_step(kernels.round_rows(wanted), wanted)
