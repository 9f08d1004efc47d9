"""How an answer is generated, and next tokens from logits: greedy, or drawn at a temperature."""

from dataclasses import dataclass

import torch
from torch import Tensor

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


def sample(
    logits: Tensor, temperature: float = 0.0, generator: torch.Generator | None = None, top_p: float = 1.0
) -> Tensor:
    """Pick a token for each row of logits [B, V] -> [B]; temperature 0 takes the likeliest."""
    if temperature <= 0:
        return logits.argmax(-1)
    # Of NaN and infinity nothing can be drawn: one bad row would end every answer of its batch.
    shares = torch.softmax(torch.nan_to_num(logits.float() / temperature), dim=-1)
    if top_p < 1:
        ordered, tokens = shares.sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # of the likelier ones: the likeliest always stays
        shares = torch.zeros_like(shares).scatter(-1, tokens, ordered.masked_fill(before >= top_p, 0))
    return torch.multinomial(shares, 1, generator=generator)[:, 0]
