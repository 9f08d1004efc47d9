"""What `compare.py` measures in each of two checkouts: reading, decoding, and witnesses of what is computed.

Not run by hand. Uses what both checkouts have: names of the top-level package, a reader's and a pot's public
methods, and the store. A model is loaded by name, or built with random weights of a known shape, with a
tokenizer made on the spot: nothing is downloaded for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import statistics
import sys
import tempfile
import time
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).resolve().parent))  # last: nothing of a checkout is hidden
from rounds import serve


def imported() -> Any:
    """Return the checkout's package; where `platformdirs` is missing, no folder of the user's is needed."""
    try:
        import_module("platformdirs")
    except ModuleNotFoundError:
        made: Any = ModuleType("platformdirs")
        made.user_cache_path = made.user_data_path = lambda name, *_, **__: Path(tempfile.gettempdir()) / name
        sys.modules["platformdirs"] = made
    return import_module("infinipot")


infinipot = imported()
SHAPES = {
    "llama-3-8b": (128256, 4096, 14336, 32, 32, 8),
    "llama-3.2-1b": (128256, 2048, 8192, 16, 32, 8),
    "smollm2": (49152, 576, 1536, 30, 9, 3),
    "small": (1024, 512, 1024, 4, 8, 2),
}
PIECE, QUESTION, SKIP = 65536, 16, 8
TAILS = ({"tail": "distil"}, {"fit": False})  # how the two checkouts spell the same thing


# The model ------------------------------------------------------------------------------


def random_engine(shape: str, device: str, dtype: str, fused: bool) -> Any:
    """Return an engine with random weights, made fast as `open_engine` does."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = torch.bfloat16 if device.startswith("cuda") else torch.float32
    if dtype != "auto":
        kind = getattr(torch, dtype)
    vocabulary, hidden, inner, layers, heads, kv = SHAPES[shape]
    config = AutoConfig.for_model(
        "llama",
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=kind).eval().requires_grad_(False)
    reader = infinipot.attach(model, byte_tokenizer(), format="plain")
    computes = found("hf.speed.prepare", "hf.prepare").prepare(reader.model, False, fused)
    return engine_of(f"{shape}, random weights", reader.model, reader.tokenizer, computes)


def engine_of(name: str, model: Any, tokenizer: Any, computes: str) -> Any:
    """Return an `Engine`, whatever further names this checkout knows its weights by."""
    known = {"name": name, "format": "plain", "model": model, "tokenizer": tokenizer, "dtype": computes}
    fields = {field.name for field in dataclasses.fields(infinipot.Engine)}
    sample = hashlib.sha256(name.encode()).hexdigest()  # hashing gigabytes would tell nothing more
    return infinipot.Engine(**known, **({"sample": sample} if "sample" in fields else {}))


def byte_tokenizer() -> Any:
    """Return a fast tokenizer of transformers with one id for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def found(*names: str) -> Any:
    """Return the first module of these that this checkout has."""
    for name in names:
        try:
            return import_module(f"infinipot.{name}")
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("infinipot"):
                raise
    raise SystemExit(f"this checkout has none of {', '.join(names)}")


def distilling(**options: Any) -> Any:
    """Return a recipe that distils a text's end."""
    for tail in TAILS:
        try:
            return infinipot.Recipe.named(**options, **tail)
        except (infinipot.InfiniPotError, TypeError):
            continue
    raise SystemExit("this checkout distils no text's end")


# What is measured -----------------------------------------------------------------------


class Measured:
    """One model, and everything that is asked of it."""

    def __init__(self, args: argparse.Namespace) -> None:
        device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        self.args, self.cuda = args, device.startswith("cuda")
        if args.random:
            self.engine = random_engine(args.random, device, args.dtype, self.cuda)
        else:
            self.engine = infinipot.open_engine(args.model, device, args.dtype, fused=self.cuda)
        self.engine.tokenizer.stop_ids = frozenset()  # every answer has the length that is timed
        self.recipe = infinipot.Recipe.named(args.recipe, capacity=args.capacity, format=self.engine.format)
        self.reader = self.engine.reader(self.recipe)

    def text(self, count: int, seed: int) -> list[int]:
        source = torch.Generator().manual_seed(seed)
        most = self.engine.model.vocabulary
        return torch.randint(0, most, (count,), generator=source).tolist()

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def read(self, ids: list[int]) -> float:
        """Return the seconds of reading a text from its beginning."""
        self.reader.clear()
        self.wait()
        started = time.perf_counter()
        for _ in self.reader.reading_tokens(ids[at : at + PIECE] for at in range(0, len(ids), PIECE)):
            pass
        self.wait()
        return time.perf_counter() - started

    def answer(self, count: int) -> tuple[float, float]:
        """Return the seconds to the first token, and the milliseconds of a later one."""
        moments = [time.perf_counter()]
        generation = infinipot.Generation(count)
        for _ in self.reader.generate(self.text(QUESTION, 2), generation, final=True):
            moments.append(time.perf_counter())
        steps = [after - before for before, after in pairwise(moments[1:])]
        return moments[1] - moments[0], 1000 * statistics.median(steps[SKIP - 1 :])

    def warm_up(self) -> dict[str, Any]:
        """Read and answer until all that will be timed was compiled and captured."""
        started = time.perf_counter()
        ids = self.text(self.args.tokens, 1)
        short = ids[: min(len(ids), 4 * self.args.capacity)]
        for _ in range(6 if self.cuda else 1):
            self.read(short)
            self.answer(self.args.new_tokens if self.cuda else SKIP + 2)
        return {"warm_up_s": round(time.perf_counter() - started, 2)}

    def speed(self) -> dict[str, Any]:
        """Read and answer once; everything is warm."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds = self.read(self.text(self.args.tokens, 1))
        first, decode_ms = self.answer(self.args.new_tokens)
        told = {
            "reading_s": seconds,
            "tokens_s": self.args.tokens / seconds,
            "first_token_s": seconds + first,
            "decode_ms": decode_ms,
            "cycles": self.reader.pot.cycles,
            "pot_bytes": self.reader.pot.nbytes,
        }
        if self.cuda:
            told["reserved_bytes"] = torch.cuda.max_memory_reserved()
        return told

    # Witnesses ----------------------------------------------------------------------

    def witness(self, folder: str, other: str = "") -> dict[str, Any]:
        """Write logits, kept slots, answers and a saved pot to a folder; load what `other` saved."""
        where, told = Path(folder), {}
        where.mkdir(parents=True, exist_ok=True)
        sizes = {"capacity": 512, "keep": 256, "format": self.engine.format}
        recipes = {"tail distilled": distilling(**sizes), "tail as it comes": infinipot.Recipe.named(**sizes)}
        for number, (name, recipe) in enumerate(recipes.items()):
            reader = self.engine.reader(recipe)
            for _ in reader.reading_tokens([self.text(3000, 3)]):
                pass
            tensors = {"logits": self.logits(reader), "slots": slots(reader)}
            pot = self.kept(reader, recipe, where, f"pot-{number}", other, tensors)
            asked, wanted = self.text(QUESTION, 4), infinipot.Generation(24)
            tensors["answer"] = torch.tensor(list(reader.generate(asked, wanted, final=False)))
            save_file(
                {what: one.contiguous() for what, one in tensors.items()}, where / f"{number}.safetensors"
            )
            told[name] = {"cycles": reader.pot.cycles, "pot": pot}
        return {"witness": told}

    @torch.no_grad()
    def logits(self, reader: Any) -> torch.Tensor:
        """[n, V] after a question, on a fork."""
        twin = reader.fork()
        ids = torch.tensor([self.text(QUESTION, 5)], device=reader.model.device)
        return reader.model.logits(reader.model.forward(ids, twin.pot))[0].float().cpu()

    def kept(
        self, reader: Any, recipe: Any, where: Path, name: str, other: str, tensors: dict[str, torch.Tensor]
    ) -> str:
        """Save the pot; where the other checkout saved its own, load that and compare what it computes."""
        try:
            store, match = found("store"), found("store.match")
        except ImportError as error:
            return f"not compared: {error}"
        card = match.card_of(self.engine, recipe, reader, "witness", "0" * 64, 3000)
        store.LocalStore(where).save(name, reader.state(), card, replace=True)
        if not other:
            return "saved"
        state, _ = store.LocalStore(Path(other)).load(name)
        twin = self.engine.reader(recipe)
        twin.restore(state)
        same = torch.equal(self.logits(twin), tensors["logits"])
        same &= torch.equal(slots(twin), tensors["slots"])
        return (
            "the other checkout's loads, and is the same"
            if same
            else "the other checkout's loads, and differs"
        )


def slots(reader: Any) -> torch.Tensor:
    """Which tokens every layer and head holds, one after the other."""
    layers = reader.pot.pot_layers
    return torch.cat([layer.source[0, :, : layer.fill].flatten().cpu() for layer in layers])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--random", default="")
    parser.add_argument("--recipe", default="infinipot")
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    measured = Measured(args)
    about = {
        "source": str(Path(infinipot.__file__).resolve()),
        "device": torch.cuda.get_device_name() if measured.cuda else "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "model": measured.engine.name,
        "computes": measured.engine.dtype,
    }
    serve(about, {"warm_up": measured.warm_up, "speed": measured.speed, "witness": measured.witness})


if __name__ == "__main__":
    main()
