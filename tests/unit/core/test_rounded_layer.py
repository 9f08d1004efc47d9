"""Pots in 8 bits: how near they are to exact ones, what they take, how they are saved and copied."""

from __future__ import annotations

import pytest
import torch

from infinipot.core.attention import LogitSpec
from infinipot.core.config import ReadingMode
from infinipot.core.pot import LayerSpec, Pot
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer
from infinipot.core.rounding import rounded
from infinipot.errors import ConfigError, InfiniPotError

WIDTH, HEADS = 16, 2
FREQUENCIES = 10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def pair(offset: torch.Tensor | None = None, capacity: int = 64) -> tuple[RoundedLayer, PotLayer]:
    rotation = Rotation(FREQUENCIES, 2 * capacity)
    offset = torch.zeros(HEADS, WIDTH) if offset is None else offset
    return RoundedLayer(capacity, rotation, offset), PotLayer(capacity, capacity // 2, rotation)


def some(count: int, bias: torch.Tensor | None = None, start: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of random tokens with a bias, turned to positions from `start` on, and values."""
    keys, values = torch.randn(2, 1, HEADS, count, WIDTH)
    if bias is not None:
        keys = keys + bias[None, :, None]
    back = Rotation(-FREQUENCIES, 256)  # forward: frequencies with the other sign
    places = torch.arange(start, start + count).expand(keys.shape[:-1])
    return back.back(keys, places), values


def test_rounding_keeps_within_half_a_step():
    rows = torch.randn(50, 7, 32) * torch.logspace(-6, 6, 50)[:, None, None]
    found, scale = rounded(rows)
    assert found.dtype == torch.int8
    assert ((found * scale[..., None] - rows).abs() <= 0.5001 * scale[..., None]).all()
    zeros, scale = rounded(torch.zeros(3, 4))
    assert not zeros.any()
    assert not scale.any()


def test_what_was_read_before_is_nearly_exact_and_what_is_new_is_exact():
    eight, exact = pair()
    for start, count in ((0, 20), (20, 1), (21, 30)):
        keys, values = some(count, start=start)
        seen, wanted = eight.append(keys, values), exact.append(keys, values)
        assert [x.shape for x in seen] == [x.shape for x in wanted]
        for one, other in zip(seen, wanted, strict=True):
            assert torch.equal(one[:, :, start:], other[:, :, start:])
            assert start == 0 or 0 < relative(one[:, :, :start], other[:, :, :start]) < 0.01


def test_a_bias_of_the_keys_costs_nothing_once_it_is_known():
    bias = torch.zeros(HEADS, WIDTH)
    bias[:, 3] = 300.0  # as in the first and last layers of Qwen2.5
    errors = []
    for offset in (None, bias):
        eight, exact = pair(offset)
        first = some(40, bias)
        eight.append(*first)
        exact.append(*first)
        more = some(1, bias, start=40)
        seen, wanted = eight.append(*more)[0][:, :, :40], exact.append(*more)[0][:, :, :40]
        places = torch.arange(40).expand(seen.shape[:-1])
        differing = [exact.rotation.back(x, places) - bias[None, :, None] for x in (seen, wanted)]
        errors.append(relative(*differing))
    assert errors[0] > 0.2  # a step of 300 / 127 swallows keys of size 1
    assert errors[1] < 0.01


def test_kept_slots_turn_to_their_new_places_without_being_rounded_again():
    eight, exact = pair()
    for cycle in range(12):
        keys, values = some(eight.capacity - 4 - eight.fill, start=eight.fill)
        eight.append(keys, values)
        exact.append(keys, values)
        slots = torch.rand(1, HEADS, eight.fill).topk(30).indices.sort().values
        eight.keep(slots)
        exact.keep(slots)
        assert torch.equal(eight.source[:, :, :30], exact.source[:, :, :30]), cycle
    more = some(1, start=30)
    for one, other in zip(eight.append(*more), exact.append(*more), strict=True):
        assert relative(one, other) < 0.01


def test_one_entry_at_a_place_on_the_device_is_what_appending_writes():
    eight, _ = pair()
    eight.append(*some(20))
    twin = eight.copy()
    keys, values = some(1, start=20)
    seen = eight.write_at(torch.tensor([20]), keys, values)
    found = [x[:, :, :21].clone() for x in seen]
    wanted = twin.append(keys, values)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    for name in ("keys", "values", "key_scale", "value_scale"):
        assert torch.equal(getattr(eight, name)[:, :, :21], getattr(twin, name)[:, :, :21]), name


def pot(bits: int, mode: ReadingMode | None = None) -> Pot:
    spec = LayerSpec(FREQUENCIES, offset=torch.zeros(HEADS, 128))
    return Pot([spec] * 3, 64, 32, mode or ReadingMode(), bits)


def test_less_than_half_of_the_bytes_of_two_byte_entries():
    sizes = []
    for bits in (16, 8):
        made = pot(bits)
        for layer in range(3):
            made.append(layer, *torch.randn(2, 1, HEADS, 8, 128).bfloat16())
        sizes.append(made.nbytes)
    assert sizes[1] < 0.45 * sizes[0]


def test_saved_loaded_and_forked_pots_are_the_same_and_stand_alone():
    made = pot(8)
    entries = torch.randn(2, 1, HEADS, 8, 128)
    for layer in range(3):
        made.append(layer, *entries)
    loaded = pot(8)
    loaded.pot_layers[0].offset += 5  # a model elsewhere finds a slightly different one
    loaded.load(made.state(), torch.device("cpu"))
    fork = made.fork()
    queries, new = torch.randn(1, 4, 1, 128), torch.randn(2, 1, HEADS, 1, 128)
    outs = []
    for one in (made, loaded, fork):
        keys, values = one.append(0, *new)
        outs.append(one.attend(0, queries, keys, values, LogitSpec(0.1)))
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    fork.append(0, *new)
    assert made.pot_layers[0].fill == 9
    assert fork.bits == 8


def test_a_cleared_layer_holds_nothing_of_a_file_that_was_loaded():
    """A stranger's file may say anything, and the next text in this memory is somebody else's."""
    offset = torch.randn(HEADS, WIDTH)
    used, fresh = pair(offset)[0], pair(offset)[0]
    stranger, _ = pair(offset + 1000)
    for layer in (used, stranger):
        layer.append(*some(40))
    stranger.value_scale.fill_(3e38)  # a number, but what it is the scale of is none
    used.load(stranger.state(), torch.device("cpu"))
    twin = used.copy()
    for layer in (used, twin):
        layer.clear()
        assert torch.equal(layer.offset, offset)
    entry, place = some(1), torch.tensor([0])
    fresh.append(*entry)
    fresh.clear()
    for one, other in zip(used.write_at(place, *entry), entry, strict=True):
        assert one.isfinite().all()  # an empty slot counts 0 times, and 0 times no number is none
        assert torch.equal(one[:, :, :1], other)
    assert torch.equal(used.keys[:, :, :1], fresh.keys[:, :, :1])


def test_a_pot_of_other_bits_is_refused():
    made = pot(16)
    for layer in range(3):
        made.append(layer, *torch.randn(2, 1, HEADS, 8, 128))
    with pytest.raises(InfiniPotError, match="another model, recipe or dtype"):
        pot(8).load(made.state(), torch.device("cpu"))


@pytest.mark.parametrize("mode", [ReadingMode(distil="never"), ReadingMode(positions="kept")])
def test_methods_that_grow_or_let_positions_run_on_are_refused(mode: ReadingMode):
    with pytest.raises(ConfigError, match="pots of 8 bits") as refused:
        pot(8, mode=mode)
    assert refused.value.field == "pot_bits"
