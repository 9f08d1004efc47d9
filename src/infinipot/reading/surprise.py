"""How novel tokens are to a model: -log p of each (equation 4), by the head a model has for it."""

import torch
from torch import Tensor

from infinipot.core.scores import novelty, novelty_by_parts
from infinipot.reading.model import Model


def surprise(model: Model, hidden: Tensor, tokens: Tensor, last: Tensor | None) -> Tensor:
    """Novelty [B, n] of tokens with hidden states [B, n, H] after the hidden state `last` before them.

    The very first token has no past, so every token was equally likely.
    """
    if last is not None:
        return _after(model, torch.cat((last, hidden[:, :-1]), dim=1), tokens)
    first = torch.full_like(tokens[:, :1], model.vocabulary, dtype=torch.float32).log()
    rest = _after(model, hidden[:, :-1], tokens[:, 1:])
    return torch.cat((first.to(rest.device), rest), dim=1)


def _after(model: Model, hidden: Tensor, targets: Tensor) -> Tensor:
    """-log p [B, n] of targets after hidden states, with the head in parts where it comes so."""
    parts = getattr(model, "head_parts", lambda _: None)(hidden)
    if parts is not None:
        return novelty_by_parts(targets, parts, getattr(model, "softcap", None))
    head = getattr(model, "rough_logits", model.logits)  # an answer's tokens are never rough
    return novelty(hidden, targets, head, model.vocabulary)
