"""The pot as a transformers Cache, so that any model, and `generate()`, can write into it."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from infinipot.core.pot import Pot
from infinipot.core.rows import Rows
from infinipot.core.window_layer import WindowLayer
from infinipot.hf.light import uncompiled


class PotCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """Shows a pot to transformers; holds no state of its own."""

    def __init__(self, pot: Pot | Rows) -> None:
        super().__init__(layers=[_Layer(pot, index) for index in range(len(pot.layers))])
        self.pot = pot

    @uncompiled  # it changes the pot
    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values; return what the layer may see."""
        return self.pot.append(layer_idx, key_states, value_states)


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of the pot, in the words transformers uses."""

    is_compileable = False
    supports_early_init = False

    def __init__(self, pot: Pot | Rows, index: int) -> None:
        self.pot, self.index = pot, index
        self.is_initialized = True

    @property
    def is_sliding(self) -> bool:
        return isinstance(self.pot.layers[self.index], WindowLayer)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the pot allocates when it is first written."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self.pot.append(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = self.pot.layers[self.index].entries
        return held + query_length, self.pot.fill - held

    def get_seq_length(self) -> int:
        """Filled slots: positions of new tokens go on from here, which is what CR-RoPE wants."""
        return self.pot.fill

    def get_max_length(self) -> int:
        return -1 if self.pot.mode.grows else self.pot.capacity
