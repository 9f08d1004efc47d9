import pytest
import torch

from infinipot.core.pot import LayerSpec, Pot, WindowLayer
from infinipot.errors import PotOverflowError

FREQUENCIES = 10000.0 ** (-torch.arange(0, 8, 2) / 8)


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    angles = positions[..., None] * FREQUENCIES
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def written(pot: Pot, count: int, layers: int = 1, catalyst: int = 0) -> list[torch.Tensor]:
    """Write random entries as a model would: keys rotated to their positions. Returns them un-rotated."""
    raw = [torch.randn(2, 3, count + catalyst, 8) for _ in range(layers)]
    with pot.writing(catalyst):
        places = torch.arange(pot.fill, pot.fill + count + catalyst)
        for index, keys in enumerate(raw):
            pot.append(index, rotate(keys, places), keys + 1)
    return raw


def test_keep_gathers_every_column_and_resets_positions() -> None:
    pot = Pot([LayerSpec(FREQUENCIES)], capacity=12, keep=6)
    raw = written(pot, 10)[0]
    pot.note_novelty(torch.arange(20.0).view(2, 10))
    slots = torch.rand(2, 3, 10).topk(6).indices.sort().values
    pot.keep([slots])
    layer = pot.pot_layers[0]
    picked = raw.gather(2, slots[..., None].expand(2, 3, 6, 8))
    torch.testing.assert_close(layer.keys[:, :, :6], rotate(picked, torch.arange(6)), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.values[:, :, :6], picked + 1)
    assert (layer.source[:, :, :6] == slots).all()
    assert (layer.novelty[0, :, :6] == slots[0]).all()
    assert (pot.fill, pot.tokens, pot.cycles, pot.room) == (6, 10, 1, 6)


def test_many_cycles_keep_rotating_from_the_anchor() -> None:
    pot = Pot([LayerSpec(FREQUENCIES)], capacity=12, keep=6)
    raws = torch.empty(2, 3, 0, 8)
    for _ in range(20):
        raws = torch.cat((raws, written(pot, 12 - pot.fill)[0]), 2)
        pot.keep([torch.rand(2, 3, 12).topk(6).indices.sort().values])
    layer = pot.pot_layers[0]
    original = raws.gather(2, layer.source[:, :, :6, None].expand(2, 3, 6, 8))
    torch.testing.assert_close(layer.keys[:, :, :6], rotate(original, torch.arange(6)), atol=1e-5, rtol=1e-5)
    assert pot.tokens == raws.shape[2] == 12 + 19 * 6


def test_more_than_the_anchors_have_room_for_may_stay() -> None:
    pot = Pot([LayerSpec(FREQUENCIES)], capacity=12, keep=6)
    raws = torch.empty(2, 3, 0, 8)
    for kept in (6, 10, 11, 6, 9, 6):
        raws = torch.cat((raws, written(pot, 12 - pot.fill)[0]), 2)
        pot.keep([torch.rand(2, 3, 12).topk(kept).indices.sort().values])
        layer = pot.pot_layers[0]
        assert (layer.fill, layer.anchored) == (kept, kept if kept <= 6 else 0)
        original = raws.gather(2, layer.source[:, :, :kept, None].expand(2, 3, kept, 8))
        torch.testing.assert_close(
            layer.keys[:, :, :kept], rotate(original, torch.arange(kept)), atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(layer.values[:, :, :kept], original + 1)


def test_overflow_is_refused_and_nothing_is_written() -> None:
    pot = Pot([LayerSpec(FREQUENCIES)] * 2, capacity=8, keep=4)
    written(pot, 5, layers=2)
    before = pot.pot_layers[0].keys.clone()
    with pytest.raises(PotOverflowError, match="pot of 8"):
        written(pot, 4, layers=2)
    assert [layer.fill for layer in pot.pot_layers] == [5, 5]
    assert torch.equal(pot.pot_layers[0].keys[:, :, :5], before[:, :, :5])


def test_a_forward_that_fails_half_way_leaves_the_pot_as_it_was() -> None:
    pot = Pot([LayerSpec(FREQUENCIES), LayerSpec(FREQUENCIES, window=4)], capacity=16, keep=4)
    written(pot, 6, layers=2)
    window = pot.layers[1].keys

    def interrupted() -> None:
        with pot.writing(catalyst=2):
            pot.append(0, torch.randn(2, 3, 3, 8), torch.randn(2, 3, 3, 8))
            pot.append(1, torch.randn(2, 3, 3, 8), torch.randn(2, 3, 3, 8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (pot.fill, pot.tokens, pot.catalyst_length) == (6, 6, 0)
    assert pot.layers[1].keys is window


def test_window_layers_hold_the_window_without_the_catalyst_and_are_rebased() -> None:
    pot = Pot([LayerSpec(FREQUENCIES), LayerSpec(FREQUENCIES, window=5)], capacity=16, keep=4)
    raw = torch.empty(2, 3, 0, 8)
    for _ in range(6):
        count = 13 - pot.fill
        raw = torch.cat((raw, written(pot, count, layers=2, catalyst=3)[1][:, :, :count]), 2)
        pot.keep([torch.rand(2, 3, 13).topk(4).indices.sort().values, None])
        window = pot.layers[1]
        assert isinstance(window, WindowLayer)
        assert window.entries == 4
        wanted = rotate(raw[:, :, -4:], torch.arange(4) + pot.fill - 4)
        torch.testing.assert_close(window.keys, wanted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(window.values, raw[:, :, -4:] + 1)


def test_a_window_as_wide_as_the_pot_is_a_pot() -> None:
    pot = Pot([LayerSpec(FREQUENCIES, window=16), LayerSpec(FREQUENCIES, window=15)], capacity=16, keep=8)
    assert [type(layer).__name__ for layer in pot.layers] == ["PotLayer", "WindowLayer"]


def test_forks_are_independent() -> None:
    pot = Pot([LayerSpec(FREQUENCIES), LayerSpec(FREQUENCIES, window=4)], capacity=8, keep=4)
    written(pot, 6, layers=2)
    twin = pot.fork()
    keys, window = pot.pot_layers[0].keys.clone(), pot.layers[1].keys.clone()
    written(twin, 2, layers=2)
    twin.keep([torch.arange(4).expand(2, 3, 4), None])
    assert (pot.fill, pot.cycles, twin.fill, twin.cycles) == (6, 0, 4, 1)
    assert torch.equal(pot.pot_layers[0].keys, keys)
    assert torch.equal(pot.layers[1].keys, window)
    assert pot.nbytes > 0
