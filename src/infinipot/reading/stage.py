"""One pot that the cycles of many sessions run in, so that every kind of cycle is captured once for all.

A graph knows the addresses of one pot. Captured for each of a server's pots, graphs would take memory that
grows with their number, and a pause of all answers for each. To copy a pot in and out again takes a hundredth
of the time of a cycle.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.reading.plan import CyclePlan

if TYPE_CHECKING:
    from infinipot.reading.session import PotSession


class Stage:
    """A session of its own, of the same model, policy and sizes as those whose cycles it carries out."""

    def __init__(self, session: "PotSession") -> None:
        self.session = session

    def run(self, pot: Pot, plan: CyclePlan, inputs: list[Tensor]) -> Tensor:
        """Carry out a plan for a pot; return the last token's hidden state. If that fails, the pot stays."""
        here = self.session.pot
        here.restore(pot)
        hidden = self.session.repeat(plan, inputs)
        pot.restore(here)
        return hidden
