"""How far a pull is, as those who fetch a model tell it."""

from dataclasses import dataclass
from typing import Literal

Stage = Literal["waiting", "asking the hub", "downloading", "joining", "converting"]
BLOCK = 1 << 20  # bytes copied between two reports


@dataclass(frozen=True)
class Progress:
    """How far a pull is; a total of 0 means that the end is not known."""

    stage: Stage
    done: int
    total: int
