"""What one forward pass is to do, decided before it runs: a cycle's plan is its captured graph's key."""

from dataclasses import dataclass, replace

BLOCK = 2048  # most tokens in one forward: bounds activations when the pot is large
LONG = 256  # tokens from which on a forward without distillation is worth a graph
CAPTURE_AFTER = 4  # times a plan is carried out before it is captured: capturing costs as much as a few
RECENT = 64  # last slots that survive a distillation between texts and answers, so that both stay coherent


@dataclass(frozen=True)
class CyclePlan:
    """One forward pass: how many tokens, and what happens after them. Two equal plans are one computation."""

    tokens: int  # new ones, of the text or prompt
    catalyst: int  # tokens of the catalyst that run behind them in the same pass, and are dropped
    distil: bool  # reduce the pot to `budget` slots afterwards
    budget: int
    recent: int  # last slots that stay whatever the policy says
    scored: bool  # somebody will ask how novel these tokens were, or what they attended to
    fill: int  # of the pot before: the addresses a graph reads and writes follow from `fill` and `anchored`
    anchored: int
    follows: bool  # the hidden state before the first token is known

    @property
    def forward(self) -> "CyclePlan":
        """What runs before the distillation: the same whatever is left, so a text's end shares its graph."""
        return replace(self, distil=False, budget=0, recent=0)

    @property
    def distillation(self) -> "CyclePlan":
        """What runs after the forward."""
        now = self.fill + self.tokens
        return replace(self, tokens=0, catalyst=0, scored=False, fill=now, follows=False)

    @property
    def is_long(self) -> bool:
        """Say whether the forward is worth a graph, should it come again and again."""
        return self.distil or self.tokens >= LONG
