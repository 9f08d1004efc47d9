"""The model that is measured: first bare, for peers that take it as it is, then ready for pots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from infinipot.bench.clock import Memory
from infinipot.bench.plan import Plan
from infinipot.bench.shapes import build
from infinipot.hf.loading import choose_device, choose_dtype
from infinipot.hf.loading import load as load_weights
from infinipot.hf.model import HFModel
from infinipot.hf.speed.prepare import prepare, resolve
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.files import title
from infinipot.text.tokenizer import Format, Frame, Tokenizer

PIECE = 65536  # tokens handed to a reader at a time, as a tokenizer would
QUESTION = 16  # tokens of the question
BYTES = 4  # of a text in one token of ours, about as in real vocabularies


class Words(ByteTokenizer):
    """For random weights: as many tokens as a real tokenizer would make, and an answer never ends."""

    stop_ids = frozenset()

    def encode(self, text: str) -> list[int]:
        """Ids of the text, one for every four bytes."""
        return super().encode(text)[::BYTES]


class Endless:
    """A tokenizer whose answers never end, so that every one has the length that is to be timed."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, of: Tokenizer) -> None:
        self._of = of

    def encode(self, text: str) -> list[int]:
        """As the tokenizer does."""
        return self._of.encode(text)

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        """As the tokenizer does."""
        return self._of.encode_stream(pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """As the tokenizer does."""
        return self._of.decode(ids)

    def frame(self, format: Format) -> Frame:
        """As the tokenizer does."""
        return self._of.frame(format)

    def dialogue(self, roles: Sequence[str], format: Format) -> list[tuple[int, ...]]:
        """As the tokenizer does."""
        return self._of.dialogue(roles, format)


@dataclass
class Subject:
    """A model, what is known of it, and where memory stood when it was loaded."""

    name: str
    bare: Any  # the transformers model
    tokenizer: Tokenizer
    format: Format
    device: torch.device
    dtype: torch.dtype
    memory: Memory
    fuse: bool = False
    mixed: bool = False  # products in bfloat16, on a CPU
    computes: str = ""  # what it computes in, once `ready`
    model: HFModel | None = None  # once `ready`
    parameters: int = field(init=False)
    weight_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        weights = list(self.bare.parameters())
        self.parameters = sum(weight.numel() for weight in weights)
        self.weight_bytes = sum(weight.nbytes for weight in weights)

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""
        return int(self.bare.config.get_text_config().vocab_size)

    @property
    def trained(self) -> int:
        """The longest text the model was trained for."""
        return int(getattr(self.bare.config.get_text_config(), "max_position_embeddings", 0))

    @property
    def entry_bytes(self) -> int:
        """Bytes of one token's keys and values in a full cache."""
        config = self.bare.config.get_text_config()
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * size * self.dtype.itemsize)

    def ready(self) -> HFModel:
        """Switch the model to our attention, fused where that was asked; peers are over after this."""
        if self.model is None:
            self.model = HFModel(self.bare)
            self.computes = prepare(self.model, self.mixed, self.fuse)
        return self.model

    def reader(self, recipe: Recipe) -> Reader:
        """Return a reader with an empty pot; what comes twice is captured: a short text warms it up."""
        reader = replace(recipe, format=self.format).reader(self.ready(), self.tokenizer)
        reader.capture_after = 1
        return reader

    def describe(self) -> dict[str, Any]:
        """Return what is known of the model as JSON-ready data."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "dtype": str(self.dtype).removeprefix("torch."),  # of the weights as loaded, and of the peers
            "computes": self.computes,
            "trained_window": self.trained,
            "full_kv_bytes_a_token": self.entry_bytes,
            "fused": self.fuse,
        }


def open_subject(plan: Plan) -> Subject:
    """Load the model or make one with random weights."""
    device = choose_device(plan.device)
    fuses = plan.fuse and device.type == "cuda"
    kind, mixed = resolve(plan.dtype, device)
    if plan.random:
        dtype = choose_dtype(kind, device)
        bare, name = build(plan.random, device, dtype), f"{plan.random}, random weights"
        return Subject(name, bare, Words(), "plain", device, dtype, Memory(device), fuses, mixed)
    loaded = load_weights(plan.model, str(device), kind)
    loaded.model.set_attn_implementation("sdpa")
    tokenizer = HFTokenizer(loaded.tokenizer, add_bos=loaded.add_bos, eos_ids=loaded.stop_ids)
    memory = Memory(device)
    return Subject(
        title(plan.model),
        loaded.model,
        Endless(tokenizer),
        loaded.format,
        device,
        loaded.dtype,
        memory,
        fuses,
        mixed,
    )


def text(count: int, vocabulary: int, seed: int = 1) -> list[int]:
    """Random ids: speed does not depend on what they say."""
    source = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, vocabulary, (count,), generator=source).tolist()
    return ids


def pieces(ids: list[int]) -> Iterator[list[int]]:
    """The ids as a stream."""
    return (ids[start : start + PIECE] for start in range(0, len(ids), PIECE))
