import pytest
import torch

from infinipot import attention
from infinipot.attention import attend, attend_masked


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
    found = attend(queries, keys, values, 0.9, window, softcap)
    wanted = slow_attention(queries, keys, values, 0.9, window, softcap)
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
