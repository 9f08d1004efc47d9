"""Runs SnapKV of NVIDIA's kvpress; spoken to in lines of JSON by `worker.py`.

Stands alone: it runs in an interpreter that has kvpress, with its own torch and transformers, and not
infinipot, since importing kvpress patches attention for the whole process. The whole text goes through the
model, its cache is compressed on the way, and the question and the answer follow, as in kvpress' pipeline.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

QUESTION = 16
kvpress = import_module("kvpress")  # has no types


class Bench:
    """The model, loaded once; every request is a method."""

    def load(self, model: str, shape: dict[str, Any] | None, device: str, dtype: str, threads: int) -> Any:
        """Load a folder or a hub id, or make a shape with random weights."""
        if threads:
            torch.set_num_threads(threads)
        self.device, kind = torch.device(device), getattr(torch, dtype)
        torch.manual_seed(0)
        if shape is not None:
            with self.device:
                made = AutoModelForCausalLM.from_config(
                    AutoConfig.for_model(**shape), dtype=kind, attn_implementation="sdpa"
                )
        else:
            how = {"dtype": kind, "attn_implementation": "sdpa"}
            if (Path(model) / "model.gguf").is_file():  # a folder of our catalogue
                how["gguf_file"] = "model.gguf"
            made = AutoModelForCausalLM.from_pretrained(model, **how)
        self.model = made.to(self.device).eval().requires_grad_(False)
        self.weights = torch.cuda.memory_allocated() if self.device.type == "cuda" else 0
        return {
            "versions": {name: version(name) for name in ("kvpress", "transformers", "torch")},
            "weight_bytes": sum(weight.nbytes for weight in self.model.parameters()),
            "trained": int(getattr(self.model.config, "max_position_embeddings", 0)),
        }

    def run(self, length: int, capacity: int, new_tokens: int) -> Any:
        """Read, compress, ask, answer."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        ids, question = self._text(length, 1), self._text(QUESTION, 2)
        self._settle()
        started = time.perf_counter()
        cache = DynamicCache()
        with torch.no_grad():
            with kvpress.SnapKVPress(compression_ratio=max(0.0, 1 - capacity / length))(self.model):
                self.model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
            self._settle()
            read = time.perf_counter()
            moments = self._answer(question, cache, length, new_tokens)
        found = {
            "first_token_s": moments[0] - started,
            "reading_s": read - started,
            "steps_s": [after - before for before, after in pairwise(moments)],
            "cache_bytes": sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers),
        }
        if self.device.type == "cuda":
            found["allocated_bytes"] = torch.cuda.max_memory_allocated() - self.weights
            found["reserved_bytes"] = torch.cuda.max_memory_reserved() - self.weights
        else:
            import resource

            found["process_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return found

    def _answer(self, ids: torch.Tensor, cache: Any, start: int, count: int) -> list[float]:
        """Moments of greedy tokens; positions run on although the cache got shorter."""
        moments = []
        for _ in range(count):
            places = torch.arange(start, start + ids.shape[1], device=self.device)[None]
            out = self.model(ids, past_key_values=cache, position_ids=places, logits_to_keep=1)
            token = int(out.logits[0, -1].argmax())
            moments.append(time.perf_counter())
            start += ids.shape[1]
            ids = torch.full((1, 1), token, dtype=torch.long, device=self.device)
        return moments

    def _text(self, count: int, seed: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(seed)
        size = self.model.config.get_text_config().vocab_size
        return torch.randint(0, size, (1, count), generator=source).to(self.device)

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    """Answer every line until there are no more."""
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = getattr(bench, request.pop("do"))(**request)
        except (torch.OutOfMemoryError, MemoryError):
            found = {"failed": "out of memory"}
        except Exception as error:  # foreign code: whatever happens is told, not raised
            text = " ".join(str(error).split())
            short = "out of memory" if "t allocate memory" in text else f"{type(error).__name__}: {text}"
            found = {"failed": short[:160]}
        sys.stdout.write(json.dumps({"peer": "kvpress", **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
