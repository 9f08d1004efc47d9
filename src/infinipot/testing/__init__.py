"""Public test doubles that need no downloads: a byte tokenizer and a tiny random model."""

from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

__all__ = ["ByteTokenizer", "ToyModel"]
