"""Triton kernels for CUDA: what the pot does around the model's own products, in few launches.

Only imported where there is a GPU, or Triton's interpreter in the tests; see `dispatch`.
"""

from infinipot.core.cuda.attention_kernels import attend_rows, merge, received, serves
from infinipot.core.cuda.product_kernels import merge_rounded, product, product_alone, round_rows, unpack
from infinipot.core.cuda.rounded_attention_kernels import attend_rounded
from infinipot.core.cuda.rounded_kernels import append_rounded, keep_rounded, widen
from infinipot.core.cuda.slot_kernels import append, keep
from infinipot.core.cuda.step_kernels import add_norm, angles_at, apart, attend_turned, gated, turns

__all__ = [
    "add_norm", "angles_at", "apart", "append", "append_rounded", "attend_rounded", "attend_rows",
    "attend_turned", "gated", "keep", "keep_rounded", "merge", "merge_rounded", "product", "product_alone",
    "received", "round_rows", "serves", "turns", "unpack", "widen",
]  # fmt: skip
