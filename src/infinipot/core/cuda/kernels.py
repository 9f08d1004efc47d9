"""Triton kernels for CUDA: what the pot does around the model's own products, in few launches.

Only imported where there is a GPU, or Triton's interpreter in the tests; see `dispatch`.
"""

from infinipot.core.cuda.attention_kernels import attend_rows, merge, received, serves
from infinipot.core.cuda.slot_kernels import append, keep

__all__ = ["append", "attend_rows", "keep", "merge", "received", "serves"]
