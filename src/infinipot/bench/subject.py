"""The model that is measured: first bare, for plain transformers, then ready for pots."""

import gc
from dataclasses import dataclass, replace
from typing import Any

import torch

from infinipot.bench.plan import Plan
from infinipot.errors import ConfigError
from infinipot.hf import plain, shapes
from infinipot.hf.loading import choose_device, choose_dtype
from infinipot.hf.loading import load as load_weights
from infinipot.hf.model import HFModel
from infinipot.hf.packed.choice import choose_weights
from infinipot.hf.packed.load import skeleton
from infinipot.hf.packed.modules import packed_bytes
from infinipot.hf.speed.prepare import prepare, resolve
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.models.memory import peak_memory_bytes
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.text.files import title
from infinipot.text.tokenizer import Format, Tokenizer


@dataclass
class Subject:
    """A model, what is known of the model, and the memory taken once its weights were loaded."""

    name: str
    bare: Any  # the transformers model
    tokenizer: Tokenizer  # without stop tokens, so that every answer has the length that is timed
    format: Format
    device: torch.device
    dtype: torch.dtype  # of the weights as loaded
    fuse: bool = False
    mixed: bool = False  # products in bfloat16, on a CPU
    held: str = ""  # how its weights are held where they are packed
    computes: str = ""  # what it computes in, once `ready`
    model: HFModel | None = None  # once `ready`

    def __post_init__(self) -> None:
        config = self.bare.config.get_text_config()
        weights = [*self.bare.parameters(), *(self.bare.buffers() if self.held else ())]
        whole = self.bare
        if self.held:  # few bits are no parameters of torch's
            whole = skeleton(self.bare.config, self.dtype)
            whole.tie_weights()
        self.parameters: int = sum(weight.numel() for weight in whole.parameters())
        self.weight_bytes: int = sum(weight.nbytes for weight in weights) + packed_bytes(self.bare)
        self.vocabulary = int(config.vocab_size)
        self.trained = int(getattr(config, "max_position_embeddings", 0))  # the longest text of its training
        self.entry_bytes = plain.entry_bytes(config, self.dtype.itemsize)  # a token's in a whole text's cache
        self.taken = torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def ready(self) -> HFModel:
        """Switch the model to our attention, fused where that was asked; plain transformers is over then."""
        if self.model is None:
            self.model = HFModel(self.bare)
            self.computes = prepare(self.model, self.mixed, self.fuse, packed=bool(self.held))
        return self.model

    def reader(self, recipe: Recipe) -> Reader:
        """Return a reader with an empty pot; what comes twice is captured, so a short text warms up."""
        reader = replace(recipe, format=self.format).reader(self.ready(), self.tokenizer)
        reader.session.capture_after = 1
        return reader

    def text(self, count: int, seed: int = 1) -> list[int]:
        """Return random ids: speed does not depend on what they say."""
        source = torch.Generator().manual_seed(seed)
        ids: list[int] = torch.randint(0, self.vocabulary, (count,), generator=source).tolist()
        return ids

    def sweep(self) -> None:
        """Give back what earlier measurements left behind, forget their peaks, wait for the device."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def peak(self) -> dict[str, int]:
        """Return the most memory there was since `sweep`, as columns of a row."""
        if self.device.type != "cuda":
            return {"process_peak_bytes": peak_memory_bytes()}
        found = torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)
        return {"allocated_bytes": found[0] - self.taken, "reserved_bytes": found[1] - self.taken}

    def describe(self) -> dict[str, Any]:
        """Return what is known of the model as JSON-ready data."""
        names = ("name", "parameters", "weight_bytes", "computes", "held", "trained", "entry_bytes", "fuse")
        return {"dtype": str(self.dtype).removeprefix("torch."), **{one: getattr(self, one) for one in names}}


def open_subject(plan: Plan) -> Subject:
    """Load the model or make one with random weights."""
    device = choose_device(plan.device)
    kind, mixed = resolve(plan.dtype, device)
    fuse = plan.fuse and device.type == "cuda"
    if plan.random:
        dtype = choose_dtype(kind, device)
        choice = choose_weights(plan.weights, device, dtype, None)
        if choice.packed and not choice.on_card:
            problem = f"random weights in {plan.weights} are for CUDA cards"
            raise ConfigError(problem, field="weights", remedy="use `weights` full")
        bare = shapes.build(plan.random, device, dtype, choice.on_card or "full")
        name = f"{plan.random}, random weights"
        return Subject(name, bare, plain.Words(), "plain", device, dtype, fuse, mixed, choice.how)
    loaded = load_weights(plan.model, str(device), kind, weights=plan.weights)
    loaded.model.set_attn_implementation("sdpa")
    tokenizer = HFTokenizer(loaded.tokenizer, add_bos=loaded.add_bos)
    tokenizer.stop_ids = frozenset()
    known = (title(plan.model), loaded.model, tokenizer, loaded.format, device, loaded.model.dtype)
    return Subject(*known, fuse, mixed, loaded.choice.how)
