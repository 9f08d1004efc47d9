import pytest
import torch

from infinipot.core.scores import novelty, novelty_by_parts, pool, received, softcapped


def slow_score(queries, keys, scale, softcap=None):
    """Equation 2 in loops."""
    batch, heads, count, _ = queries.shape
    kv_heads, slots = keys.shape[1], keys.shape[2]
    total = torch.zeros(batch, kv_heads, slots, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            kv = h // (heads // kv_heads)
            for i in range(count):
                seen = slots - count + i + 1
                logits = keys[b, kv, :seen].double() @ queries[b, h, i].double() * scale
                if softcap:
                    logits = torch.tanh(logits / softcap) * softcap
                total[b, kv, :seen] += torch.softmax(logits, -1) / (heads // kv_heads)
    return total


@pytest.mark.parametrize("softcap", [None, 4.0])
@pytest.mark.parametrize(("heads", "kv_heads", "batch"), [(4, 4, 1), (6, 2, 3)])
def test_attention_received_is_equation_2(
    heads: int, kv_heads: int, batch: int, softcap: float | None
) -> None:
    queries, keys = torch.randn(batch, heads, 9, 8), torch.randn(batch, kv_heads, 40, 8)
    fast = received(queries, keys, 0.7, softcap, block=4)
    torch.testing.assert_close(fast.double(), slow_score(queries, keys, 0.7, softcap), atol=1e-6, rtol=1e-5)


def test_novelty_is_minus_log_p_in_blocks() -> None:
    hidden, targets, weight = torch.randn(2, 7, 5), torch.randint(0, 11, (2, 7)), torch.randn(11, 5)
    asked = []

    def head(rows: torch.Tensor) -> torch.Tensor:
        asked.append(rows.shape[0])
        return rows @ weight.T

    found = novelty(hidden, targets, head, vocabulary=11, most=35)
    wanted = -torch.log_softmax((hidden @ weight.T).double(), -1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(found.double(), wanted, atol=1e-6, rtol=1e-5)
    assert max(asked) == 3  # never [tokens, vocabulary]


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_novelty_by_parts_of_the_head_is_the_same(softcap: float | None) -> None:
    hidden, targets, head = torch.randn(2, 5, 8), torch.randint(0, 23, (2, 5)), torch.randn(23, 8)
    flat = hidden.flatten(0, 1)
    parts = ((start, flat @ head[start : start + 7].T) for start in range(0, 23, 7))
    logits = softcapped(hidden @ head.T, softcap)
    wanted = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    assert torch.allclose(novelty_by_parts(targets, parts, softcap), wanted, atol=1e-5)


def test_pooling_uses_only_neighbours_that_exist() -> None:
    score = torch.tensor([[[1.0, 2.0, 6.0, 0.0]]])
    assert pool(score, 3, "mean").tolist() == [[[1.5, 3.0, pytest.approx(8 / 3), 3.0]]]
    assert pool(score, 3, "max").tolist() == [[[2.0, 6.0, 6.0, 6.0]]]
    assert pool(score, 1, "mean") is score
