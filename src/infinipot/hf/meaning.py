"""A model that knows sentences by their meaning, where `infinipot models pull` has brought it.

It is all-mpnet-base-v2 (110 million parameters, Apache 2.0).
"""

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinipot.errors import foreign
from infinipot.hf.quiet import quiet
from infinipot.models import cache
from infinipot.models.catalog import SENTENCES

FILES = ("config.json", "model.safetensors", "tokenizer.json")  # of the archive
LONGEST, TOGETHER = 128, 64  # tokens of a sentence that count; sentences in one forward


def pull() -> cache.Pull:
    """Fetch the model of sentences unless it is there already, yielding progress."""
    return cache.pull(SENTENCES.alias, unpack)


def unpack(file: Path, folder: Path, alias: str) -> None:
    """Write what loading needs of an archive into a folder."""
    with zipfile.ZipFile(file) as archive:
        for name in FILES:
            with archive.open(f"{alias}/{name}") as source, (folder / name).open("wb") as sink:
                shutil.copyfileobj(source, sink)


def sentence_model(device: torch.device) -> "SentenceModel | None":
    """Load the model of sentences; None where it was not pulled."""
    there = cache.card(SENTENCES.alias) is not None
    return SentenceModel(cache.path(SENTENCES.alias), device) if there else None


class SentenceModel:
    """`infinipot.recall.meaning.Embedder`: a sentence is the mean of its tokens' last states."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoModel

        dtype = torch.float16 if device.type == "cuda" else torch.float32
        with foreign(f"the model of sentences in {folder} cannot be loaded"), quiet():
            found: Any = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=dtype)
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
            found[some] = torch.nn.functional.normalize(states.float().sum(1), dim=-1).cpu().half()
        return found.numpy()
