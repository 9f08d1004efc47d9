"""How an answer is generated, and next tokens from logits: greedy, or drawn at a temperature."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot.core.cuda.capturing import to_device
from infinipot.errors import check
from infinipot.reading.grammar import Grammar


@dataclass(frozen=True)
class Generation:
    """How an answer is generated."""

    max_new_tokens: int = 128
    temperature: float = 0.0
    seed: int | None = None
    top_p: float = 1.0  # only the likeliest tokens that have this much of the probability together
    grammar: Grammar | None = None  # what the answer must look like
    logprobs: int | None = None  # tell each token's log probability, and those of so many likeliest ones

    def __post_init__(self) -> None:
        check(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "use at least 1")
        mild = self.temperature == 0 or 1e-3 <= self.temperature <= 1e3
        check(mild, "temperature", self.temperature, "use 0, or 0.001 to 1000")
        check(0 < self.top_p <= 1, "top_p", self.top_p, "use more than 0, at most 1")
        check(self.seed is None or 0 <= self.seed < 2**63, "seed", self.seed, "use 0 to 2^63 - 1")

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the random source of one answer."""
        source = torch.Generator(device=device)
        source.seed() if self.seed is None else source.manual_seed(self.seed)
        return source


def sample_rows(logits: Tensor, wanted: Sequence[Generation], noise: Callable[[int], Tensor]) -> Tensor:
    """Pick a token for each row of logits [N, V] -> [N], in few launches; temperature 0 takes the likeliest.

    `noise(row)` is [1, V] of the row's own random source, exponentially distributed: `multinomial` divides
    shares by such noise too, and takes the largest.
    """
    drawn = [row for row, one in enumerate(wanted) if one.temperature > 0]
    if not drawn:
        return logits.argmax(-1)
    every = len(drawn) == len(wanted)
    rows = to_device(torch.tensor(drawn), logits.device)
    heat = to_device(torch.tensor([wanted[row].temperature for row in drawn]), logits.device)
    shares = _shares(logits if every else logits[rows], heat)
    if cut := [at for at, row in enumerate(drawn) if wanted[row].top_p < 1]:
        some = to_device(torch.tensor(cut), logits.device)
        most = to_device(torch.tensor([wanted[drawn[at]].top_p for at in cut]), logits.device)
        shares[some] = _likeliest(shares[some], most)
    tokens = (shares / torch.cat([noise(row) for row in drawn])).argmax(-1)
    return tokens if every else logits.argmax(-1).index_copy(0, rows, tokens)


def _shares(logits: Tensor, temperature: Tensor) -> Tensor:
    # Of NaN and infinity nothing can be drawn: one bad row would end every answer of its batch.
    return torch.softmax(torch.nan_to_num(logits.float() / temperature[:, None]), dim=-1)


def _likeliest(shares: Tensor, top_p: Tensor) -> Tensor:
    """Shares of the likeliest tokens that have `top_p` [N] together; the others have none."""
    ordered, tokens = shares.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered  # of the likelier ones: the likeliest always stays
    return torch.zeros_like(shares).scatter(-1, tokens, ordered.masked_fill(before >= top_p[:, None], 0))
