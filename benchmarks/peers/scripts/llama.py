"""Runs llama.cpp through llama-cpp-python; spoken to in lines of JSON by `worker.py`.

Stands alone: it may run in an interpreter that has no infinipot. Its cache holds the whole text.
"""

from __future__ import annotations

import json
import random
import sys
import time
from importlib import import_module
from itertools import pairwise
from typing import Any

QUESTION = 16
numpy, llama_cpp = import_module("numpy"), import_module("llama_cpp")  # has no types
BATCH = 2048  # tokens given at a time


class Bench:
    """The model, loaded once; every request is a method."""

    def load(self, gguf: str, context: int, threads: int, flash: bool) -> Any:
        """Load the file with room for `context` tokens."""
        self.model = llama_cpp.Llama(
            model_path=gguf,
            n_ctx=context,
            n_batch=BATCH,
            n_threads=threads or None,
            n_threads_batch=threads or None,
            flash_attn=flash,
            n_gpu_layers=0,
            verbose=False,
        )
        about, context = self.model.model, int(self.model.n_ctx())
        width = llama_cpp.llama_model_n_embd(about) // llama_cpp.llama_model_n_head(about)
        heads = llama_cpp.llama_model_n_head_kv(about)
        return {
            "version": llama_cpp.__version__,
            "trained": int(llama_cpp.llama_model_n_ctx_train(about)),
            "context": context,
            "weight_bytes": int(llama_cpp.llama_model_size(about)),
            "parameters": int(llama_cpp.llama_model_n_params(about)),
            # Keys and values, half precision.
            "cache_bytes": 2 * 2 * width * heads * llama_cpp.llama_model_n_layer(about) * context,
        }

    def run(self, length: int, new_tokens: int) -> Any:
        """Read, ask, answer."""
        self.model.reset()
        ids, question = self._text(length), self._text(QUESTION)
        started = time.perf_counter()
        self.model.eval(ids)
        read = time.perf_counter()
        self.model.eval(question)
        moments = [time.perf_counter(), *self._answer(new_tokens - 1)]
        import resource

        return {
            "first_token_s": moments[0] - started,
            "reading_s": read - started,
            "steps_s": [after - before for before, after in pairwise(moments)],
            "process_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def chunk(self, new: int, cached: int) -> Any:
        """Seconds of new tokens on cached ones, which are read once and then used again."""
        if self.model.n_tokens < cached:
            self.model.reset()
            self.model.eval(self._text(cached))
        self.model.n_tokens = cached  # what lies beyond is dropped by the next eval
        ids = self._text(new)
        started = time.perf_counter()
        self.model.eval(ids)
        return {"seconds": time.perf_counter() - started}

    def decode(self, filled: int, count: int) -> Any:
        """Seconds of each token of an answer after a text of `filled` tokens."""
        if self.model.n_tokens < filled:
            self.model.reset()
            self.model.eval(self._text(filled))
        self.model.n_tokens = filled
        self.model.eval(self._text(1))  # the last token of the question
        moments = [time.perf_counter(), *self._answer(count)]
        return {"steps_s": [after - before for before, after in pairwise(moments)]}

    def _answer(self, count: int) -> list[float]:
        moments = []
        for _ in range(count):
            logits = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
            token = int(numpy.ctypeslib.as_array(logits, (self.model.n_vocab(),)).argmax())
            self.model.eval([token])
            moments.append(time.perf_counter())
        return moments

    def _text(self, count: int) -> list[int]:
        source = random.Random(count)
        size = self.model.n_vocab()
        return [source.randrange(size) for _ in range(count)]


def main() -> None:
    """Answer every line until there are no more."""
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = getattr(bench, request.pop("do"))(**request)
        except MemoryError:
            found = {"failed": "out of memory"}
        except Exception as error:  # foreign code: whatever happens is told, not raised
            found = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]}
        sys.stdout.write(json.dumps({"peer": "llama.cpp", **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
