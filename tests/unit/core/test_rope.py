import torch

from infinipot.core.rope import Rotation


def turned_forward(keys: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """RoPE as models apply it, in float64."""
    angles = positions[..., None].double() * frequencies.double()
    half = frequencies.numel()
    a, b, rest = keys.double().split((half, half, keys.shape[-1] - 2 * half), dim=-1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin(), rest), dim=-1)


def test_turning_back_is_rotating_directly() -> None:
    frequencies = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    keys = torch.randn(2, 3, 50, 20, dtype=torch.float64)  # 4 dimensions do not turn: partial RoPE
    written = torch.randint(100, 4096, (2, 3, 50))
    wanted = torch.randint(0, 100, (2, 3, 50))
    rotation = Rotation(frequencies, 4096)
    assert rotation.width == 16
    back = rotation.back(turned_forward(keys, written, frequencies), written - wanted)
    torch.testing.assert_close(back, turned_forward(keys, wanted, frequencies), atol=1e-6, rtol=1e-6)


def test_anchored_bf16_keys_stay_within_bounds_over_500_cycles() -> None:
    """Anchored turning stays at the bf16 floor; turning the rounded copy again and again does not."""
    frequencies = 500000.0 ** (-torch.arange(0, 128, 2) / 128)
    keys = torch.randn(256, 128, dtype=torch.float64)
    written = torch.full((256,), 4000)
    anchor = turned_forward(keys, written, frequencies).bfloat16()
    rotation = Rotation(frequencies, 4096)
    again, place = anchor, written.clone()
    for _ in range(500):  # each cycle moves every kept key some places to the front
        step = torch.randint(0, 8, (256,))
        place = place - step
        again = rotation.back(again, step)
    anchored = rotation.back(anchor, written - place)
    direct = turned_forward(keys, place, frequencies)
    assert relative(anchored, direct) < 0.004
    assert relative(again, direct) > 0.02


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())
