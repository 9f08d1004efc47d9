"""Captured = plain: graphs, fused layers and kernels keep the slots and say the tokens of plain torch."""

from __future__ import annotations

import torch

from gpu.random_models import model, plain_torch, read, reader, same_slots, slots_in_common, tokens
from infinipot.hf.speed.prepare import fuse
from infinipot.reading.sampling import Generation

LONGER_THAN_THE_POT = Generation(600)


def agree(head_dim: int, fused: bool, units: str | None = None) -> None:
    fast, slow = model(head_dim=head_dim), model(head_dim=head_dim)
    if fused:
        fuse(fast.decoder)
    captured, plain = reader(fast, units=units), reader(slow, plain=True, units=units)
    assert captured.session.graphs is not None, captured.session.capture_obstacle
    ids = tokens(6000)
    read(captured, ids)
    with plain_torch():
        read(plain, ids)
    assert same_slots(captured, plain), "other slots were kept"
    assert captured.session.graphs.captured, "nothing was captured"
    said = list(captured.generate([1, 2, 3], LONGER_THAN_THE_POT))
    with plain_torch():
        assert said == list(plain.generate([1, 2, 3], LONGER_THAN_THE_POT)), "other tokens were said"
    assert same_slots(captured, plain), "other slots were kept while answering"
    assert captured.session.graphs.reason == ""


def test_heads_of_64() -> None:
    agree(64, fused=False)


def test_heads_of_128() -> None:
    agree(128, fused=False)


def test_whole_sentences() -> None:
    agree(64, fused=False, units="sentences")


def test_fused_layers() -> None:
    agree(64, fused=True)


def test_bfloat16_keeps_nearly_the_same() -> None:
    """Rounding moves some slots: captured and plain differ no more than plain differs from float32."""
    narrow, exact = model(torch.bfloat16), model(torch.float32)
    captured, plain, wide = reader(narrow), reader(narrow, plain=True), reader(exact, plain=True)
    ids = tokens(6000)
    read(captured, ids)
    with plain_torch():
        read(plain, ids)
        read(wide, ids)
    assert slots_in_common(captured, plain) >= slots_in_common(plain, wide) - 0.05
    assert slots_in_common(captured, wide) >= slots_in_common(plain, wide) - 0.05


def test_a_cleared_reader_replays_the_same() -> None:
    """Graphs know the pot's addresses: what was read before leaves nothing in them."""
    used, fresh = reader(model()), reader(model())
    read(used, tokens(6000, seed=2))
    list(used.generate([1, 2, 3], Generation(40)))
    used.clear()
    for one in (used, fresh):
        read(one, tokens(5000))
    assert same_slots(used, fresh)
    assert list(used.generate([4, 5], Generation(64))) == list(fresh.generate([4, 5], Generation(64)))


def test_a_fork_and_its_origin_do_not_disturb_each_other() -> None:
    origin = reader(model())
    read(origin, tokens(5000))
    twin = origin.fork()
    said = list(twin.generate([4, 5], Generation(64)))
    read(twin, tokens(3000, seed=3))
    assert list(origin.fork().generate([4, 5], Generation(64))) == said
