import pytest
import torch

from infinipot.core import attention, mixed_attention
from infinipot.core.attention import LogitSpec, attend, attend_grouped, attend_masked
from infinipot.core.mixed_attention import attend_mixed
from infinipot.core.rope import Rotation


def slow_attention(queries, keys, values, scale, window=None, softcap=None):
    """Lower-right causal attention with an explicit mask, in float64."""
    repeat = queries.shape[1] // keys.shape[1]
    keys, values = (x.double().repeat_interleave(repeat, 1) for x in (keys, values))
    logits = queries.double() @ keys.mT * scale
    if softcap:
        logits = torch.tanh(logits / softcap) * softcap
    new, seen = logits.shape[-2:]
    at, place = torch.arange(seen - new, seen)[:, None], torch.arange(seen)
    hidden = (place > at) | (place <= at - (window or seen))
    return logits.masked_fill(hidden, -torch.inf).softmax(-1) @ values


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (7, None), (None, 3.0), (7, 3.0), (999, None)])
@pytest.mark.parametrize(("new", "cached"), [(1, 20), (1, 0), (13, 0), (13, 20), (20, 3)])
@pytest.mark.parametrize(("heads", "kv_heads", "batch"), [(2, 2, 1), (6, 2, 3)])
def test_attend_is_masked_softmax_attention(
    monkeypatch, heads, kv_heads, batch, new, cached, window, softcap
) -> None:
    monkeypatch.setattr(attention, "ROWS", 5)
    queries = torch.randn(batch, heads, new, 8)
    keys, values = torch.randn(2, batch, kv_heads, cached + new, 8)
    found = attend(queries, keys, values, LogitSpec(0.9, window, softcap))
    wanted = slow_attention(queries, keys, values, 0.9, window, softcap)
    torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=1e-5)


HALF = torch.float16


@pytest.mark.parametrize(
    ("device", "card", "dtype", "dim", "flash"),
    [
        ("cuda", (8, 0), HALF, 64, True),
        ("cuda", (9, 0), torch.bfloat16, 256, True),
        ("cuda", (7, 5), HALF, 64, False),  # T4
        ("cuda", (7, 0), HALF, 64, False),  # V100
        ("cuda", (8, 0), torch.float32, 64, False),
        ("cuda", (8, 0), HALF, 288, False),
        ("mps", (9, 9), HALF, 64, False),
        ("cpu", (9, 9), HALF, 64, False),
    ],
)
def test_the_flash_kernel_is_for_cards_that_have_it(monkeypatch, device, card, dtype, dim, flash) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: card)
    attention.has_flash.cache_clear()
    try:
        assert attention.has_flash(torch.device(device), dtype, dim) is flash
    finally:
        attention.has_flash.cache_clear()


@pytest.mark.parametrize(("dtype", "most"), [(HALF, 2e-3), (torch.float32, 2e-6)])
@pytest.mark.parametrize(("new", "cached"), [(13, 0), (13, 20), (20, 3), (300, 20)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2)])
def test_accelerators_without_that_kernel_compute_the_same(new, cached, heads, kv_heads, dtype, most) -> None:
    """As Apple's and older cards do: here on the CPU, which lacks the kernel too."""
    queries = torch.randn(2, heads, new, 8).to(dtype)
    keys, values = torch.randn(2, 2, kv_heads, cached + new, 8).to(dtype)
    found = attention.lower_right(queries, keys, values, 0.9)
    assert found.dtype == dtype
    wanted = slow_attention(queries, keys, values, 0.9)
    torch.testing.assert_close(found.double(), wanted, atol=most, rtol=most)


@pytest.mark.parametrize("seen", [10, 11])
def test_one_token_in_two_halves_of_a_larger_buffer(monkeypatch, seen: int) -> None:
    monkeypatch.setattr(attention, "LONG", 4)
    queries = torch.randn(1, 6, 1, 8)
    keys, values = torch.randn(2, 1, 3, 16, 8)[:, :, :, 2 : 2 + seen]
    found = attend(queries, keys, values, LogitSpec(0.9))
    wanted = slow_attention(queries, keys, values, 0.9)
    torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=1e-5)


def test_explicit_masks_are_obeyed_and_empty_rows_are_finite() -> None:
    queries, keys, values = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.rand(2, 1, 3, 5) > 0.4
    mask[..., 0] = True
    mask[0, 0, 0] = False
    found = attend_masked(queries, keys, values, 0.5, mask)
    wide = keys.repeat_interleave(2, 1), values.repeat_interleave(2, 1)
    logits = (queries @ wide[0].mT * 0.5).masked_fill(~mask, -torch.inf)
    wanted = logits.softmax(-1) @ wide[1]
    assert found.isfinite().all()
    torch.testing.assert_close(found[1], wanted[1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("softcap", [None, 4.0])
@pytest.mark.parametrize(
    ("new", "seen", "window", "group"), [(300, 400, 50, 3), (7, 40, 8, 2), (1, 9, 100, 2)]
)
def test_grouped_attention_is_self_extend(new: int, seen: int, window: int, group: int, softcap) -> None:
    """Each pair of tokens on its own: near by true distance, far in groups."""
    frequencies = 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    bare_q, bare_k = torch.randn(2, 6, new, 8).double(), torch.randn(2, 2, seen, 8).double()
    values = torch.randn(2, 2, seen, 5).double()
    old = seen - new

    def turned(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        angle = places[:, None] * frequencies
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    at, places = torch.arange(old, seen), torch.arange(seen)
    queries, keys = turned(bare_q, at), turned(bare_k, places)
    spec = LogitSpec(0.3, window, softcap)
    found = attend_grouped(queries, keys, values, spec, Rotation(frequencies, 1), group)
    near = queries @ keys.repeat_interleave(3, 1).mT
    far_q = turned(bare_q, at // group + window - window // group)
    far = far_q @ turned(bare_k, places // group).repeat_interleave(3, 1).mT
    logits = torch.where(at[:, None] - places < window, near, far) * 0.3
    logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
    share = logits.masked_fill(places > at[:, None], -torch.inf).softmax(-1)
    wanted = share @ values.repeat_interleave(3, 1)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("new", "old"), [(256, 0), (300, 77), (384, 500)])
def test_products_in_bfloat16_are_near_the_exact_attention(new: int, old: int) -> None:
    source = torch.Generator().manual_seed(new)
    queries = torch.randn(2, 6, new, 16, generator=source)
    keys, values = (torch.randn(2, 2, old + new, 16, generator=source) for _ in range(2))
    keys += 300 * torch.randn(2, 2, 1, 16, generator=source)  # as Qwen's: what all keys have in common
    found = attend(queries, keys, values, LogitSpec(0.25, mixed=True))
    wanted = attend(queries.double(), keys.double(), values.double(), LogitSpec(0.25))
    assert not torch.equal(found, attend(queries, keys, values, LogitSpec(0.25)))
    assert (found - wanted).norm() / wanted.norm() < 0.01


def test_fewer_queries_at_a_time_attend_alike(monkeypatch) -> None:
    queries, keys, values = (
        torch.randn(1, heads, length, 16) for heads, length in ((4, 200), (2, 300), (2, 300))
    )
    usual = attend_mixed(queries, keys, values, 0.25)
    monkeypatch.setattr(mixed_attention, "LOGITS", 1)
    torch.testing.assert_close(attend_mixed(queries, keys, values, 0.25), usual, atol=2e-2, rtol=2e-2)


def test_few_tokens_are_exact_whatever_products_are_mixed() -> None:
    queries, keys = torch.randn(1, 4, 40, 16), torch.randn(1, 2, 90, 16)
    exact, mixed = (attend(queries, keys, keys, LogitSpec(0.25, mixed=way)) for way in (False, True))
    assert torch.equal(exact, mixed)
