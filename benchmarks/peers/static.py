"""Plain transformers with its static cache, for which `generate` compiles decoding on CUDA."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList

from infinipot.bench.subject import Subject
from infinipot.bench.systems import QUESTION, Transformers, figures
from infinipot.hf.plain import cache_bytes
from peers.measurement import beyond


class Static(Transformers):
    """As `Transformers`, with `generate`; a cache of another size is compiled anew."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        compiled = subject.device.type == "cuda"
        how = "decoding compiled" if compiled else "plain: generate() compiles on CUDA alone"
        self.about |= {"system": "transformers-static", "engine": f"static cache, {how}"}

    def warm_up(self, length: int, new_tokens: int) -> None:
        list(self.run(length, new_tokens))

    @torch.no_grad()
    def run(self, length: int, new_tokens: int) -> Generator[str, None, dict[str, Any]]:
        yield from ()
        subject, moments = self.subject, []

        class Clock(StoppingCriteria):
            def __call__(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
                subject.synchronize()
                moments.append(time.perf_counter())
                return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

        model = subject.bare
        model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
        ids = torch.tensor([subject.text(length + QUESTION)], device=subject.device)
        subject.synchronize()
        started = time.perf_counter()
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            do_sample=False,
            cache_implementation="static",
            stopping_criteria=StoppingCriteriaList([Clock()]),
            return_dict_in_generate=True,
        )
        read = started + (moments[0] - started) * length / (length + QUESTION)  # text and question are one
        found = figures(started, read, moments, cache_bytes(out.past_key_values))
        return {**found, "note": beyond(length, subject.trained)}
