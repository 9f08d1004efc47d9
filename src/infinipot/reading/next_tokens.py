"""The next token of every sequence of a step, and its score if one is wanted: few launches, one wait.

Grammars, temperatures, seeds and log probabilities are rows of the same step: no sequence is chosen for by
itself, and the host waits for the device once, after it has given it the next step to do.
"""

from collections.abc import Sequence as Several

import torch
from torch import Tensor

from infinipot.core.cuda.capturing import to_device
from infinipot.reading.sampling import sample_rows
from infinipot.reading.sequence import Sequence, TokenScore


def logits_of(sequences: Several[Sequence]) -> Tensor:
    """Logits [N, V] of every sequence's next token: the last step's as they are, if none came since."""
    step, _ = sequences[0].next_logits
    rows = [one.next_logits[1] for one in sequences if one.next_logits[0] is step]
    if len(rows) < len(sequences):
        return torch.cat([one.logits for one in sequences])
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return step[rows[0] : rows[0] + len(rows)]
    return step[to_device(torch.tensor(rows), step.device)]


class NextTokens:
    """The next tokens [N] on the device, and on their way to the host."""

    def __init__(self, sequences: Several[Sequence]) -> None:
        logits = logits_of(sequences)
        wanted = [one.wanted for one in sequences]
        self.tokens = sample_rows(_allowed(sequences, logits), wanted, lambda row: sequences[row].noise())
        self._counts = {row: one.logprobs for row, one in enumerate(wanted) if one.logprobs is not None}
        self._first = [(row, one) for row, one in enumerate(sequences) if one.is_first]
        parts = [self.tokens, *([logits.amax(-1).isfinite()] if self._first else ())]
        parts += _scores(logits, self.tokens, self._counts) if self._counts else ()
        self._host = [part.to("cpu", non_blocking=True) for part in parts]
        self._arrived: torch.cuda.Event | None = None
        if self.tokens.device.type == "cuda":
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def on_host(self) -> list[tuple[int, TokenScore | None]]:
        """Wait for the tokens; return each with its score, if one is wanted. Notes which overflow."""
        if self._arrived is not None:
            self._arrived.synchronize()
        tokens, *scores = (part.tolist() for part in self._host)
        sound = scores.pop(0) if self._first else []
        for row, one in self._first:
            one.overflows = not sound[row]
        found: dict[int, TokenScore] = {}
        for (row, count), own, values, ids in zip(self._counts.items(), *(scores or [[]] * 3), strict=True):
            likeliest = tuple(zip(ids[:count], values[:count], strict=True))
            found[row] = TokenScore(tokens[row], own, likeliest)
        return [(token, found.get(row)) for row, token in enumerate(tokens)]


def _allowed(sequences: Several[Sequence], logits: Tensor) -> Tensor:
    """Logits [N, V] that tokens are chosen by: minus infinity where a sequence's grammar allows none."""
    rules = [None if one.unwritten else one.constraint for one in sequences]  # a prompt is as it is
    if all(rule is None for rule in rules):
        return logits
    size = logits.shape[-1]
    free = torch.ones(size, dtype=torch.bool)
    rows = [free if rule is None else rule.allowed(size) for rule in rules]
    return logits.masked_fill(~to_device(torch.stack(rows), logits.device), -torch.inf)


def _scores(logits: Tensor, tokens: Tensor, counts: dict[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Of rows that ask: log probabilities of their tokens [n], values and ids [n, k] of the likeliest."""
    rows = to_device(torch.tensor(list(counts)), logits.device)
    shares = torch.log_softmax(logits[rows].float(), -1)
    values, ids = shares.topk(min(max(counts.values()), shares.shape[-1]))
    return shares.gather(1, tokens[rows][:, None])[:, 0], values, ids
