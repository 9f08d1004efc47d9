"""Pots of 8 bits on a card: kernels against plain torch, captured against plain, alone against together."""

from __future__ import annotations

import torch

from gpu.random_models import (
    DEVICE,
    model,
    plain_torch,
    read,
    reader,
    relative,
    same_slots,
    slots_in_common,
    tokens,
)
from gpu.test_kernels import addresses
from infinipot.core.attention import attend_fixed
from infinipot.core.cuda import kernels
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer, buffer
from infinipot.reading.answer import answer_all
from infinipot.reading.sampling import Generation

SHAPES = ((4096, 32, 8, 128), (1000, 12, 2, 128), (2048, 9, 3, 64))  # slots, query heads, KV heads, dimension


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).bfloat16()


def layer(slots: int, kv_heads: int, dim: int, fill: int) -> RoundedLayer:
    """A layer filled by plain torch, with an offset as large as Qwen's bias."""
    rotation = Rotation(500000.0 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim), 2 * slots)
    offset = torch.randn(kv_heads, dim, device=DEVICE)
    offset[:, 5] += 100
    made = RoundedLayer(slots, rotation, offset)
    with plain_torch():
        made.append(some(1, kv_heads, fill, dim) * 2, some(1, kv_heads, fill, dim))
    return made


def test_a_chunk_and_what_it_attends_to() -> None:
    for slots, _, kv_heads, dim in SHAPES:
        fill, count = slots // 2 - 7, slots // 2 - 30
        one = layer(slots, kv_heads, dim, fill)
        twin = one.copy()
        keys, values = (some(1, count, kv_heads, dim).transpose(1, 2) for _ in range(2))
        found = [x.clone() for x in one.append(keys, values)]
        with plain_torch():
            wanted = twin.append(keys, values)
        for own, other in zip(found, wanted, strict=True):
            assert relative(own, other) < 0.0005
            assert torch.equal(own[:, :, fill:], other[:, :, fill:])
        for name in ("keys", "values"):
            mine, theirs = (getattr(x, name)[:, :, : fill + count].int() for x in (one, twin))
            assert int((mine - theirs).abs().max()) <= 1
            assert float((mine != theirs).float().mean()) < 0.01
        assert torch.equal(one.source, twin.source)


def test_one_new_token_a_pot() -> None:
    for slots, heads, kv_heads, dim in SHAPES:
        for fills in ((1, 255), (256, slots // 2), (slots - 1, slots - 1)):
            layers = [layer(slots, kv_heads, dim, fill) for fill in fills]
            twins = [one.copy() for one in layers]
            queries, fresh, values = (some(2, many, 1, dim) for many in (heads, kv_heads, kv_heads))
            at = torch.tensor([one.addresses for one in layers], device=DEVICE).T.contiguous()
            length, turn = torch.tensor(fills, device=DEVICE), layers[0].rotation
            found = kernels.attend_rounded(
                queries, fresh, values, at, turn.cos, turn.sin, length, slots, dim**-0.5
            )
            for row in range(2):
                here = slice(row, row + 1)
                k, v = (x.double() for x in twins[row].write_at(length[here], fresh[here], values[here]))
                wanted = attend_fixed(queries[here].double(), k, v, dim**-0.5, length[here])
                assert relative(found[here], wanted) < 0.03, (slots, heads, dim, fills[row])


def test_the_buffer_is_shared_and_small() -> None:
    entries = some(1, 2, 8, 64), some(1, 2, 8, 64)
    assert buffer(*entries, 512) is buffer(*entries, 512)


def test_captured_keeps_what_plain_keeps() -> None:
    """In float32 no kernel serves: graphs alone, and both paths round the same numbers."""
    captured, plain = reader(model(), bits=8), reader(model(), plain=True, bits=8)
    ids = tokens(6000)
    read(captured, ids)
    with plain_torch():
        read(plain, ids)
    assert captured.session.graphs is not None
    assert captured.session.graphs.captured
    assert slots_in_common(captured, plain) > 0.995
    mine, theirs = (one.session.state.last_hidden for one in (captured, plain))
    assert mine is not None
    assert theirs is not None
    assert relative(mine, theirs) < 0.001


def test_keeping_slots_of_all_layers() -> None:
    slots, kv_heads, dim = 4096, 8, 128
    layers = [layer(slots, kv_heads, dim, slots - 6) for _ in range(4)]
    twins = [one.copy() for one in layers]
    for count in (slots // 2, slots // 3):
        chances = torch.rand(4, 1, kv_heads, layers[0].fill, device=DEVICE)
        chosen = chances.topk(count).indices.sort().values
        table = torch.stack([addresses(one.tensors()) for one in layers])
        kernels.keep_rounded(table, chosen, slots, dim, True, True)
        for one, twin, places in zip(layers, twins, chosen, strict=True):
            twin.keep(places)
            one.fill = count
            for mine, theirs in zip(one.tensors(), twin.tensors(), strict=True):
                assert torch.equal(mine[:, :, :count], theirs[:, :, :count])


def test_kernels_keep_nearly_what_plain_torch_keeps() -> None:
    """8 bits move slots, by kernels no more than by plain torch: over several texts, since models waver."""
    on = model(torch.bfloat16, head_dim=128)
    shares = [0.0, 0.0]
    for seed in range(4):
        fast, slow = reader(on, bits=8), reader(on, plain=True, bits=8)
        exact, ids = reader(on, plain=True), tokens(3000, seed)
        read(fast, ids)
        with plain_torch():
            read(slow, ids)
            read(exact, ids)
        shares[0] += slots_in_common(fast, exact) / 4
        shares[1] += slots_in_common(slow, exact) / 4
    assert shares[0] >= shares[1] - 0.05, shares
    assert fast.pot.nbytes < 0.45 * exact.pot.nbytes


def test_a_cleared_reader_and_a_fork_replay_the_same() -> None:
    on = model(torch.bfloat16, head_dim=128)
    used, fresh = reader(on, bits=8), reader(on, bits=8)
    read(used, tokens(6000, seed=2))
    list(used.generate([1, 2, 3], Generation(40)))
    used.clear()
    for one in (used, fresh):
        read(one, tokens(5000))
    assert same_slots(used, fresh)
    said = list(used.fork().generate([4, 5], Generation(64)))
    assert list(fresh.generate([4, 5], Generation(64))) == said


def test_answers_together_are_those_of_one_by_one() -> None:
    on = model(torch.bfloat16, head_dim=128)
    many = [reader(on, bits=8) for _ in range(5)]
    for seed, one in enumerate(many):
        read(one, tokens(900 * (seed + 1), seed))
    prompts = [[5 + n, 6, 7] for n in range(5)]
    said: list[list[int]] = [[] for _ in many]
    for index, token in answer_all([one.fork() for one in many], prompts, Generation(40)):
        said[index].append(token)
    alone = [
        list(one.fork().generate(prompt, Generation(40), final=True))
        for one, prompt in zip(many, prompts, strict=True)
    ]
    same = sum(a == b for one, two in zip(said, alone, strict=True) for a, b in zip(one, two, strict=True))
    assert same >= 0.8 * 5 * 40  # a batch's products round in another order, and random models waver
