"""The model of sentences: pulled as an archive, and what it makes of texts."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import MPNetConfig, MPNetModel
from typer.testing import CliRunner

from infinipot.cli import models
from infinipot.errors import ModelError
from infinipot.hf import meaning
from infinipot.hf.loading import load
from infinipot.models import cache, catalog
from toy_release import Seller

WORDS = ["<s>", "<pad>", "</s>", "the", "sea", "was", "calm", "a", "cobbler", "mends", "shoes"]
TEXTS = ["the sea was calm", "a cobbler mends shoes", "the sea", "calm"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a tiny random model."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    MPNetModel(MPNetConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(tmp_path / "tiny")
    made = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = Whitespace()
    made.save(str(tmp_path / "tiny" / "tokenizer.json"))
    return tmp_path / "tiny"


@pytest.fixture
def sold(tiny: Path, sell: Seller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as an archive in parts, with a file that nobody needs, under the real one's name."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in (*tiny.iterdir(), Path(__file__)):
            archive.write(file, f"{catalog.SENTENCES.alias}/{file.name}")
    toy = sell(packed.getvalue())
    given = {"parts": toy.parts, "size": toy.size, "sha256": toy.sha256}
    for module in (catalog, meaning):
        monkeypatch.setattr(module, "SENTENCES", replace(catalog.SENTENCES, **given))


@pytest.mark.usefixtures("sold", "home")
def test_it_is_there_once_it_was_pulled() -> None:
    assert meaning.sentence_model(torch.device("cpu")) is None
    assert [step.stage for step in meaning.pull()][-1] == "preparing"
    folder = cache.path(catalog.SENTENCES.alias)
    assert {file.name for file in folder.iterdir()} == {*meaning.FILES, cache.CARD}
    assert list(meaning.pull()) == []
    told = CliRunner().invoke(models.app, ["pull", catalog.SENTENCES.alias, "--json"], catch_exceptions=False)
    assert '"pulled": false' in told.stdout
    assert [one.card.alias for one in cache.installed()] == [catalog.SENTENCES.alias]
    made = meaning.sentence_model(torch.device("cpu"))
    assert made is not None
    assert made.vectors(TEXTS).shape == (4, 16)
    cache.remove(catalog.SENTENCES.alias)
    assert meaning.sentence_model(torch.device("cpu")) is None


def test_vectors_are_those_of_each_text_alone(tiny: Path) -> None:
    """The slow obvious twin: one text at a time, without padding, by transformers' own model."""
    theirs, split = MPNetModel.from_pretrained(tiny).eval(), Tokenizer.from_file(str(tiny / "tokenizer.json"))
    found = meaning.SentenceModel(tiny, torch.device("cpu")).vectors(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            states = theirs(torch.tensor([split.encode(text).ids])).last_hidden_state[0]
        wanted = states.mean(0) / states.mean(0).norm()
        np.testing.assert_allclose(vector, wanted.numpy(), atol=2e-3)


def test_it_is_no_model_to_ask() -> None:
    assert catalog.get(catalog.SENTENCES.alias) is None
    assert catalog.find(catalog.SENTENCES.alias) is catalog.SENTENCES
    with pytest.raises(ModelError, match=r"unknown model 'all-mpnet'.*did you mean 'all-mpnet-base-v2'"):
        catalog.find("all-mpnet")
    with pytest.raises(ModelError, match=r"answers nothing: name one of smollm2, .*\.gguf file"):
        load(catalog.SENTENCES.alias)


def test_a_damaged_one_is_told_of(tiny: Path) -> None:
    (tiny / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="model of sentences"):
        meaning.SentenceModel(tiny, torch.device("cpu"))
